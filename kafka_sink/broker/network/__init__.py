"""The broker's network layer: acceptors, processors and the request channel, as Apache Kafka has them.

Owns connections: each belongs to one processor and is touched by its thread alone. Requests go to handlers, and
responses come back, through the request channel. It must never look into a request beyond its header.
"""
