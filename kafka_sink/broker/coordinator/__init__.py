"""The group coordinator and the transaction coordinator: members, committed offsets and transactions.

This package uses neither sockets nor requests; :mod:`kafka_sink.broker.handlers` translates requests into calls.
"""
