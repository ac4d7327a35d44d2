"""Layer 1: Kafka's record batches (format version 2) as bytes. Knows no socket, clock or protocol message."""
