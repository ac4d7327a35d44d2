"""The request handlers: one module per API, which defines the versions that it serves.

Handler threads run them. Handlers use logs and cluster state; they must not use processors, sockets or selectors.
"""
