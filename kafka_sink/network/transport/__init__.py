"""Bytes over sockets, plain or TLS: connections, listeners, addresses, and waking a poll."""
