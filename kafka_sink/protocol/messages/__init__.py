"""The messages of all APIs, in a module per kind: declarations and nothing else. Those that every task needs have a
module of their own. :mod:`kafka_sink.protocol.registry` lists them.
"""
