"""Formats of keys and values: columns to payloads as bytes; ``column_format`` has the object of each."""
