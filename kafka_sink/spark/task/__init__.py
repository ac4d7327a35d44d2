"""One Spark task: sends Arrow batches, waits for their acknowledgements, and creates the commit message."""
