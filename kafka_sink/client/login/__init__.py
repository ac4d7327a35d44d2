"""The authentication of a client: credentials, tokens and the client's side of SASL."""
