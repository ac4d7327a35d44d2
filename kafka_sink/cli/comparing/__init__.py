"""Records compared with the rows that were expected.

Used on the main thread. This package must not read a topic by itself.
"""
