"""A schema registry: its client, Confluent's wire format, and a registry in memory. It knows no Kafka, no Spark."""
