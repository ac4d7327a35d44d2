"""Formats of keys and values: columns to payloads as bytes. It knows no Kafka, no Spark and no socket."""
