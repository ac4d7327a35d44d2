"""The sender: drains batches by node, sends produce requests, and completes batches from the answers.

Owns batches from the drain to their end. Runs on the sender thread only. It must never block on anything but the poll
of the network client.
"""
