"""Bytes over sockets, plain or TLS: connections, listeners, addresses, and waking a poll.

Used by the thread that owns a connection. This package must not know frames.
"""
