"""The log on disk: segments of record batches, their indexes, and producer state.

Request handlers (any handler thread) and the log manager's housekeeping thread call it; each partition has its own
lock. This package must not use sockets, requests or handlers.
"""
