"""SASL mechanisms, both sides: they process tokens, which client and broker transport."""
