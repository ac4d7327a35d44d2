"""Who reads what, and how far they are: groups and transactions, as the coordinator of each knows them.

Nothing here knows a socket or a request; :mod:`kafka_sink.broker.handlers` stands between.
"""
