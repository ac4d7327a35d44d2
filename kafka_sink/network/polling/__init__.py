"""The selector: which channels are served, in which order, and when they are closed.

Owned by one thread. This package must not decode a frame.
"""
