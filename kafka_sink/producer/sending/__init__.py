"""The sender: drains batches by node, sends produce requests, and completes batches with the answers.

It owns batches from the drain until they are done: ``in_flight_batches`` decides how each ends, once (stored, sent
again, split, refused, expired), also if the answer arrives after the expiry. It runs on the sender thread only, and
blocks only in the poll of the network client.
"""
