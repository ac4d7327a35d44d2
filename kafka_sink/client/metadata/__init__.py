"""The cluster as a client has it: nodes, topics, partitions and their leaders, as immutable snapshots."""
