"""Every way to write, with the restrictions of hosted Kafkas: only in the long run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafka_sink.common.errors import KafkaError
from tests.support.amounts import only_long
from tests.support.hosted_proxy import HOSTED, HostedProxy
from tests.support.readback import read_topic
from tests.support.write_ways import DF_WRITE, STREAM, WRITE, Way, WriteJob, in_ways

ROWS = 400


@only_long
@pytest.mark.behaviour("ApiVersions", "Each way to write works on what a hosted service offers, or is refused")
@pytest.mark.parametrize("service", HOSTED)
@in_ways()
def test_each_way_on_each_service(
    write: Way,
    service: str,
    spark: SparkSession,
    cluster: Any,
    new_topic: Callable[..., str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    topic = new_topic(2)
    refused = HOSTED[service].get("refused")
    with HostedProxy(cluster.bootstrap_servers, service) as proxy:
        options = {"kafka.bootstrap.servers": proxy.bootstrap_servers, "topic": topic}
        job = WriteJob(lambda rows: rows.selectExpr("cast(id as string) as value"), ROWS, options, topic, tmp_path)
        if refused and request.node.callspec.id.removesuffix(f"-{service}") not in (DF_WRITE, WRITE, STREAM):
            with pytest.raises((PySparkException, KafkaError), match=re.escape(refused)):
                write(spark, job)
            return
        write(spark, job)
    written = sorted(int(message.value or b"") for message in read_topic(cluster.bootstrap_servers, topic))
    assert written == list(range(ROWS))
