"""A schema registry: its client, and Confluent's wire format.

Called on the driver and by commands, and never by tasks. It knows no Kafka and no Spark.
"""
