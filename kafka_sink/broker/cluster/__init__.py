"""The state of the cluster: brokers, topics, partitions and their leaders, and the ownership of logs.

This package owns the cluster image, which handlers read without a lock; changes are made under one. When several
processes share a data directory, the state is kept in files. The package must not answer requests.
"""
