"""The request handlers: one function per API, with the versions that it serves, in a module per kind.

Handler threads run them. Handlers use logs and cluster state; they must not use processors, sockets or selectors.
"""
