"""Changes the source once at each place, and runs the unit tests that must notice it."""
