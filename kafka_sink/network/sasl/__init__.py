"""SASL mechanisms, which only process tokens; client and broker transport the tokens."""
