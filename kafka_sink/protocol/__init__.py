"""Layer 1: encodes and decodes Kafka's messages. Uses no sockets, threads or clocks; imports only ``common``."""
