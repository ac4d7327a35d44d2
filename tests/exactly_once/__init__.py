"""Drivers that die: both protocols of exactly once in separate processes, killed and frozen at every step."""
