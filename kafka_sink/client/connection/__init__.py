"""The connections of a client: their states, versions, and the requests that are in flight on them.

Owned by one thread, which calls ``poll``. This package must not block outside of it.
"""
