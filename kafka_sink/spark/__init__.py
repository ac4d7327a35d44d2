"""The Spark sink: the only package that imports pyspark."""
