"""The ledger: the part that proves each promise, and the last result of each part: ``scripts/prove.sh``."""
