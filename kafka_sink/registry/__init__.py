"""A schema registry: its client, Confluent's wire format, and a registry in memory.

Called on the driver and by commands, and never by tasks. It knows no Kafka and no Spark.
"""
