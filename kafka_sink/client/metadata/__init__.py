"""A client's view of the cluster: nodes, topics, partitions and their leaders, as immutable snapshots."""
