"""The steps of ``send`` and ``send_columns``: wait for metadata, serialize, check, choose partitions, append.

``topic_metadata`` is Kafka's ``waitOnMetadata``, ``record_staging`` and ``column_staging`` its ``doSend``.
``record_staging`` hashes the key of a record itself; ``plugins`` choose the partitions of other records and of columns.
It runs on the thread that calls ``send`` or ``send_columns``, and blocks it for at most ``max.block.ms``. It never uses
the network: it requests metadata and waits.
"""
