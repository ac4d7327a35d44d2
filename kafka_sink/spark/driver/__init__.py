"""The driver side of a write: the plan before the tasks, the commit after them, and the report.

Owns the plan of a batch. Runs in the planner and committer processes that Spark starts on the driver's machine, or in
the user's own process. It never handles rows.
"""
