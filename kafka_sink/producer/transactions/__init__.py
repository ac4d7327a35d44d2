"""Producer ids, sequences and transactions: the client side of KIP-98, KIP-360 and KIP-890.

The state and the queued requests have one lock. ``idempotence`` owns the sequences and decides whether a batch may be
sent again.
"""
