"""The schema registry for tests and development, and its judges of compatibility.

It does not depend on Kafka. The client of a registry, which production uses, is in :mod:`kafka_sink.registry`.
"""
