"""Requests for which the calling thread waits: the admin client, and exchanges with coordinators and leaders.

Used by one thread at a time. This package must not start a thread.
"""
