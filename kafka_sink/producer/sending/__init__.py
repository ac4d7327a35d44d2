"""The sender: drains batches by node, sends produce requests, and completes batches with the answers.

``in_flight_batches`` decides how each batch ends, once (stored, sent again, split, refused, expired), even if the
answer arrives after the expiry.
"""
