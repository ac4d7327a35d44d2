"""The options of clients: names, types, defaults, and what Java's names mean here.

Plain values, read on any thread. This package must not open a file or a socket.
"""
