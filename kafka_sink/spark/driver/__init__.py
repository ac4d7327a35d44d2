"""The driver side of a write: the plan before the tasks, the jobs, the commit after them, and the report."""
