"""Avro payloads from Arrow columns, as spark-avro's ``to_avro`` writes them, without a loop over rows."""
