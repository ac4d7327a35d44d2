"""What the broker does with a request: one module per API, which owns the versions it serves.

Run by handler threads. Handlers know logs and cluster state; they must never know a processor, a socket or a selector.
"""
