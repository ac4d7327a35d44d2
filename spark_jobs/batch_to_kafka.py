"""Writes files to a topic: at least once, or with --version each version of --name exactly once.

Run by spark-submit. Prints what was written as one JSON line; a version that is committed already is skipped, which is
a success too.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink.spark.job_arguments import job_parser, read_records, refuse, run_job, sink_name, to_kafka


def main() -> None:
    parser = job_parser(__doc__, is_stream=False)
    batch = parser.add_argument_group("batch")
    batch.add_argument(
        "--version", type=int, help="this write's number, larger from run to run: written once, or skipped"
    )
    batch.add_argument("--name", help="the application whose numbers these are (default: the topic's)")
    batch.add_argument(
        "--guarantee",
        choices=["atomic", "parallel"],
        default="atomic",
        help="with --version: one transaction for all and rows move between tasks, or one a task and none moves",
    )
    arguments = parser.parse_args()
    if arguments.name and arguments.version is None:
        refuse("--name says whose numbers the versions are: give --version too, or leave it out for at-least-once")

    spark = SparkSession.builder.appName("batch-to-kafka").getOrCreate()
    report = kafka_sink.write(
        read_records(spark, arguments, is_stream=False),
        options=to_kafka(arguments),
        app_id=None if arguments.version is None else sink_name(arguments),
        version=arguments.version,
        atomic=arguments.guarantee == "atomic",
    )
    places = {str(place): [part.first_offset, part.last_offset] for place, part in report.partitions.items()}
    print(json.dumps({**asdict(report), "partitions": places}), flush=True)
    spark.stop()


if __name__ == "__main__":
    run_job(main)
