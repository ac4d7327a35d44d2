"""What a client knows of the cluster: nodes, topics, partitions and their leaders, as immutable snapshots.

Replaced by the thread that receives an answer, read by every thread. This package must not send a request.
"""
