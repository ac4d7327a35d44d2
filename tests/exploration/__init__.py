"""Every interleaving of a small world of exactly-once drivers."""
