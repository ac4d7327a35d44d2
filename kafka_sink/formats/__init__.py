"""Formats of keys and values: columns to payloads as bytes; ``column_format`` has the object of each.

Pure: the driver checks columns with them, and tasks encode. They know no Kafka, no Spark and no socket.
"""
