"""Streams rows to a topic with writeStream: from files that appear in a folder, a socket, or the rate source.

Run by spark-submit. Ends when all available rows are written (--until-written), or after SIGTERM or Ctrl-C as soon as
the current micro-batch is completed. After any other end, a run with the same --checkpoint continues where this one
ended.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import kafka_sink
from job_arguments import job_parser, read_records, run_job, sink_name, to_kafka


def main() -> None:
    parser = job_parser(__doc__, is_stream=True)
    stream = parser.add_argument_group("stream")
    stream.add_argument("--checkpoint", required=True, help="folder that is kept between runs")
    stream.add_argument("--guarantee", choices=["exactly-once", "at-least-once"], default="exactly-once")
    stream.add_argument("--name", help="unique name of the sink for exactly-once (default: the topic)")
    stream.add_argument("--trigger", default="1 second", help="time between micro-batches (default 1 second)")
    stream.add_argument("--until-written", action="store_true", help="stop when all available rows are written")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("stream-to-kafka").getOrCreate()
    kafka_sink.register(spark)
    writer = read_records(spark, arguments, is_stream=True).writeStream.format("kafkalite")
    writer = writer.options(**to_kafka(arguments)).option("checkpointLocation", arguments.checkpoint)
    if arguments.guarantee == "exactly-once":
        writer = writer.options(deliveryGuarantee="exactly-once", transactionalIdPrefix=sink_name(arguments))
    trigger = {"availableNow": True} if arguments.until_written else {"processingTime": arguments.trigger}
    kafka_sink.run_until_stopped(writer.trigger(**trigger).start())
    spark.stop()


if __name__ == "__main__":
    run_job(main)
