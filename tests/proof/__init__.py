"""The ledger: which promise is proven by which part, and what each part found last: ``scripts/prove.sh``."""
