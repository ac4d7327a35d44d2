"""The steps of ``send`` and ``send_columns``: wait for metadata, serialize, check, choose partitions, append.

It owns the calling threads' view of topics. It runs on the thread that calls ``send`` or ``send_columns``, and blocks
it for at most ``max.block.ms``. It never uses the network: it requests metadata and waits.
"""
