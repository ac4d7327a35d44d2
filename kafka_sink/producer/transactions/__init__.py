"""Producer ids, sequences and transactions: the client's side of KIP-98, KIP-360 and KIP-890.

Owns the state of the transaction and the requests that wait, under one lock; the caller's thread begins and ends
transactions, the sender thread sends the requests. Nothing here sends anything itself.
"""
