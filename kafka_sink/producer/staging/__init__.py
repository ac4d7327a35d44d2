"""Turns what the caller gives (records, Arrow columns) into checked input for the accumulator.

Owns what the caller's thread knows of topics. Runs on the thread that calls ``send`` or ``send_columns``, and blocks
it for ``max.block.ms`` at most. It must never touch the network: it asks for metadata and waits.
"""
