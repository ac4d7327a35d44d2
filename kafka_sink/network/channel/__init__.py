"""A connection with its login: a transport, an authenticator, and the frame in each direction."""
