"""The steps of ``send`` and ``send_columns``: wait for metadata, serialize, check, choose partitions, append."""
