"""The schema registry for tests and development, and the judges of compatibility that it asks.

It knows no Kafka. What production needs of a registry, its client, is in :mod:`kafka_sink.registry`.
"""
