"""Producer ids, sequences and transactions: the client side of KIP-98, KIP-360 and KIP-890.

It owns the state of the transaction and the queued requests, under one lock. The calling thread begins and ends
transactions; the sender thread sends the requests. ``idempotence`` owns the sequences and decides whether a batch may
be sent again. Nothing in this package sends a request itself.
"""
