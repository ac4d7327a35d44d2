"""The trust of TLS: contexts, certificates and key stores.

Pure functions of files on the calling thread. This package must not open a socket.
"""
