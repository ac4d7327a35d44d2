"""Credentials, tokens and the client's side of SASL: how a client proves who it is."""
