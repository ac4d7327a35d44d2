"""SASL mechanisms: bytes in, bytes out. What carries their tokens to a broker is the client's and the broker's part."""
