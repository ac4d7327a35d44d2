"""The sender: drains batches by node, sends produce requests, and completes batches with the answers."""
