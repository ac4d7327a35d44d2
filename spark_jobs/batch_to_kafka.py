"""Writes files to a topic: at least once, or with --version each version of --name exactly once.

Run by spark-submit. Prints the report of the write as one JSON line; a version that is already committed is skipped,
which is also a success.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from pyspark.sql import SparkSession

import kafka_sink
from job_arguments import job_parser, read_records, refuse, run_job, sink_name, to_kafka


def main() -> None:
    parser = job_parser(__doc__, is_stream=False)
    batch = parser.add_argument_group("batch")
    batch.add_argument(
        "--version",
        type=int,
        help="number of this write, higher than that of the last run; each number is written once",
    )
    batch.add_argument("--name", help="name of the application that numbers its writes (default: the topic)")
    batch.add_argument(
        "--guarantee",
        choices=["atomic", "parallel"],
        default="atomic",
        help="with --version: one transaction for all tasks, which moves rows between tasks, "
        "or one per task, which does not",
    )
    arguments = parser.parse_args()
    if arguments.name and arguments.version is None:
        refuse(
            "--name is the application that numbers its writes: add --version, or remove --name to write at least once"
        )

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
