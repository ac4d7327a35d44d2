"""The check before a job: what a write would need from this machine, the network and the cluster, looked up without
writing anything.

``steps`` is the ordered list of steps and runs it; ``connection_steps`` and ``cluster_steps`` hold what each step asks
and how it judges the answer; ``probe`` opens connections; ``findings`` is the result and its table; ``permissions`` is
the list of those that a sink needs. Used by the command line and by Spark's driver and executors, on the calling
thread.
"""
