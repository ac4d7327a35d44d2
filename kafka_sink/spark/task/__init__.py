"""One Spark task: from Arrow batches to acknowledged rows, and the message that it commits with.

Owns the producer of the task, and the connections that the worker process keeps for its next task. Runs in Spark's
Python workers. It must never decide about other tasks: it reports to the driver.
"""
