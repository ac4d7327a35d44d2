"""The sender: drains batches by node, sends produce requests, and completes batches with the answers.

It owns batches from the drain until they are done. It runs on the sender thread only, and blocks only in the poll of
the network client.
"""
