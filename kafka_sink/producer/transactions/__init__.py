"""Producer ids, sequences and transactions: the client side of KIP-98, KIP-360 and KIP-890."""
