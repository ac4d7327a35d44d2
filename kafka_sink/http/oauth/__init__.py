"""Bearer tokens: their renewal ahead of time, and the token endpoint of an identity provider (OAuth 2.0).

Owns the tokens of a process, which all its clients with the same credentials share, and for each a thread that renews
it. It does not use Kafka's protocol. Tokens and secrets must never appear in a text.
"""
