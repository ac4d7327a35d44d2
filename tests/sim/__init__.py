"""A deterministic simulation of producer, network and brokers; see README.md."""
