"""Exactly-once delivery: each batch of rows is written to Kafka completely or not at all, and never twice, even if the
driver, tasks or brokers fail.

The driver side and the task side of two protocols, without Spark: :mod:`parallel` (one transaction per task; a record
of the decision ties the transactions together) and :mod:`atomic` (one transaction for the whole batch).
"""
