"""Bearer tokens: their renewal ahead of time, and the token endpoint of an identity provider (OAuth 2.0).

Owns the tokens of a process, which all its clients with the same credentials share, and a thread for each that renews
it. It knows no Kafka protocol. Tokens and secrets must never appear in a text.
"""
