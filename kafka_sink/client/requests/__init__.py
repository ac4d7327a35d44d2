"""Requests and their answers as values: what to ask, and what an answer means.

Pure functions on the calling thread. This package must not send or wait.
"""
