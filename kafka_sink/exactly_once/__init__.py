"""Exactly once: batches of rows that are in Kafka as a whole or not at all, whatever dies, and never twice.

The driver's half and the tasks' half of two protocols, without Spark: :mod:`parallel` (a transaction for each task,
held together by a record of what was decided) and :mod:`atomic` (one transaction for the whole batch).
"""
