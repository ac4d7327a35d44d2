"""The ``kafkalite`` command: broker, topics, produce, consume."""
