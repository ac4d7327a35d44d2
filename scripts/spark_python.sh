#!/bin/sh
# An interpreter for short jobs of Spark (PYSPARK_PYTHON): KAFKALITE_SPARK_PYTHON, with the environment's PySpark.
#
# Spark puts its pyspark.zip in front of the path. It has no bytecode, so each Python of a JVM, of which a write starts
# six, would compile a second's worth of sources.

set -f
kept=""
IFS=:
for each in $PYTHONPATH; do
    case $each in
        */pyspark.zip | */py4j-*-src.zip) ;;
        *) kept=$kept:$each ;;
    esac
done
PYTHONPATH=${kept#:} exec "$KAFKALITE_SPARK_PYTHON" "$@"
