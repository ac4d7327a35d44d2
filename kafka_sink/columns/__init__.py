"""Layer 1: rows as Arrow columns of bytes, for formats and record batches: views, gathering, Kafka's variable integers.

Pure, on any thread. It never loops over rows, and depends neither on schemas nor on record batches.
"""
