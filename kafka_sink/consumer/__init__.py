"""Reads partitions, for the ``kafkalite consume`` command, for checks and for tests.

It owns the position in each partition, on the caller's thread. It must never join a group.
"""
