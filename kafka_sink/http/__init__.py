"""HTTP: bounded exchanges with a registry or an identity provider, bearer tokens, and servers for this machine.

An exchange runs on the calling thread; a server has a thread, and one for each connection. Tokens and secrets must
never appear in a text.
"""
