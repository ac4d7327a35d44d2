"""The steps of ``send`` and ``send_columns``: wait for metadata, serialize, check, choose partitions, append.

``topic_metadata`` is Kafka's ``waitOnMetadata``, ``record_staging`` and ``column_staging`` its ``doSend``.
"""
