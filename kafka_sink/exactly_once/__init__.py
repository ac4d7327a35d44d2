"""Exactly-once delivery: each batch of rows is written to Kafka completely or not at all, and never twice, even if the
driver, tasks or brokers fail.

The driver side (:mod:`protocols`) and the task side (:mod:`writing`), without Spark.
"""
