"""Layer 1: encodes and decodes Kafka's messages, which are declared as data.

Pure, on any thread. Uses no sockets, threads or clocks; imports only ``common``.
"""
