"""Frames that are sent and received, and the memory for them.

Owned by one channel at a time. This package must not poll.
"""
