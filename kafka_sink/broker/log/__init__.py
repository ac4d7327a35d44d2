"""The log on disk: segments of record batches, their indexes and what they say about producers.

Called by request handlers (any handler thread) and by the log manager's own housekeeping thread; every partition is
guarded by its own lock. Must never know a socket, a request or a handler.
"""
