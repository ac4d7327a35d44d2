"""HTTP: bounded exchanges with a registry or an identity provider, bearer tokens, and servers for this machine.

An exchange runs on the calling thread; a server has one thread, and one per connection. Tokens and secrets must never
appear in a text.
"""
