"""Reading partitions back: for the ``kafkalite consume`` command, for checks and for tests; no consumer groups."""
