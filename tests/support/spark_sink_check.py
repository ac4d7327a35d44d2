"""The options that Spark's own Kafka sink accepts: a program, since its jars need a JVM of their own.

    python -m tests.support.spark_sink_check JARS

Reads one JSON array of sets of options from stdin, and prints one with the reason why each is rejected, or null. The
options are processed as in a write: ``KafkaSourceProvider`` converts them to a producer's properties, with which each
task creates a ``KafkaProducer``. No record is sent; the producers try to connect in the background until the JVM ends.

Source: apache/spark ``KafkaSourceProvider.kafkaParamsForProducer``, ``InternalKafkaProducerPool``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway


def companion(package: Any, name: str) -> Any:
    """Return Scala's object *name*."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def refusal(jvm: Any, options: dict[str, str]) -> str | None:
    """Return why Spark's sink rejects *options*; None if it accepts them."""
    given = jvm.java.util.HashMap()
    for name, value in options.items():
        given.put(name, value)
    scala = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(given)
    insensitive = companion(jvm.org.apache.spark.sql.catalyst.util, "CaseInsensitiveMap").apply(scala)
    provider = companion(jvm.org.apache.spark.sql.kafka010, "KafkaSourceProvider")
    try:
        parameters = provider.kafkaParamsForProducer(insensitive)
        for name in ("sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms"):
            # Without these, a failed login would wait for an identity provider.
            parameters.put(name, "1")
        jvm.org.apache.kafka.clients.producer.KafkaProducer(parameters)
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.toString())
    return None


def main() -> None:
    (jars,) = sys.argv[1:]
    sets = json.load(sys.stdin)
    conf = SparkConf(loadDefaults=False).set("spark.driver.extraClassPath", jars.replace(",", ":"))
    conf.set("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -Dlog4j2.level=OFF")
    gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
    try:
        verdicts = [refusal(gateway.jvm, options) for options in sets]
    finally:
        gateway.shutdown()
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main()
