"""SASL mechanisms for both sides: they process tokens; client and broker transport them."""
