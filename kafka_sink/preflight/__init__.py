"""The check before a job: what a write would need from this machine, the network and the cluster, looked up without
writing anything.

``check`` has the ordered list of steps; the modules ``…_steps`` hold what each step asks and how it judges the answer;
``findings`` has the target, runs the steps, and is the result and its table. Used by the command line and by Spark's
driver and executors, on the calling thread.
"""
