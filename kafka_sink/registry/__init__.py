"""A schema registry: its client, and Confluent's wire format; tasks send no requests to it."""
