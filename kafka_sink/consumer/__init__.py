"""Reads partitions, for the ``kafkalite consume`` command, for checks and for tests; without consumer groups."""
