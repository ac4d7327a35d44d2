"""One Spark task: sends Arrow batches, waits for their acknowledgements, and creates the commit message.

Owns the producer of the task, and the connections that the worker process keeps for its next task. Runs in Spark's
Python workers. It never makes decisions about other tasks; it reports to the driver.
"""
