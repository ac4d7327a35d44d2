"""The state of the cluster: brokers, topics, partitions and their leaders.

This package owns the cluster image, which handlers read without a lock; changes are made under one, and are on disk
before they are visible. The package must not answer requests.
"""
