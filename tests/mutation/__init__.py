"""Changes the source at each place in turn, and runs the unit tests that must detect the change."""
