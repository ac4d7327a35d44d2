"""The state of the cluster: brokers, topics, partitions and their leaders, and who has which log open.

Owns the cluster's image, which handlers read without a lock; changes are made under one. With several processes over
one data directory it is kept in files. It must never answer a request itself.
"""
