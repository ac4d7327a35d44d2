"""Drivers that die: both protocols of exactly once in real processes, killed and frozen at every step."""
