"""Layer 1: Kafka's record batches (format version 2) as bytes. It depends on no socket, clock or protocol message."""
