"""Converts the caller's records and Arrow columns to checked input for the accumulator.

It owns the calling threads' view of topics. It runs on the thread that calls ``send`` or ``send_columns``, and blocks
it for at most ``max.block.ms``. It never uses the network: it requests metadata and waits.
"""
