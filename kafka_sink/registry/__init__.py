"""A schema registry: its client, and Confluent's wire format; no task asks one."""
