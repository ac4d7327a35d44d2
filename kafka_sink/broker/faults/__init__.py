"""Fault injection: failures of the broker, the network or the disk that clients may see, triggered on demand.

It owns the faults that are set; request handlers and processors query it. It must not modify a handler.
"""
