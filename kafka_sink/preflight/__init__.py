"""The check before a job: what a write would need from this machine, the network and the cluster; it writes nothing."""
