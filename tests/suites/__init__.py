"""The test suites of other projects' clients, run against the embedded broker."""
