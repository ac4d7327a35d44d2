"""The ``kafkalite`` command: broker, topics, groups, txn, produce, consume, verify."""
