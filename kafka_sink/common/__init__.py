"""Layer 0: what every other package stands on. Imports nothing of the project but itself."""
