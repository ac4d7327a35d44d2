"""A connection with its login: a transport, an authenticator, and the frame in each direction.

Owned by the thread of its selector. This package must not choose which channel is served.
"""
