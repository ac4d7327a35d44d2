"""Layer 1: Kafka's record batches (format version 2) as bytes.

Pure, on any thread. It depends on no socket, clock or protocol message.
"""
