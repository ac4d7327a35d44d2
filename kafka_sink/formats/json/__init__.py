"""JSON payloads from Arrow columns, as Spark's ``to_json`` writes them, without a loop over rows."""
