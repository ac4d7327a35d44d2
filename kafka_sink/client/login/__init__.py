"""How a client proves who it is: credentials, tokens, and one side of SASL.

Used by the thread that owns the connection, and by threads that renew tokens. This package must not show a secret in a
text.
"""
