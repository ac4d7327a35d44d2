"""Layer 1: Kafka's messages to bytes and back. Knows no socket, thread or clock; imports common only."""
