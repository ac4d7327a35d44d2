"""Write a file of ``tests/golden/state/``: the state that this version leaves in Kafka and in reports.

    python -m tests.golden.make_state tests/golden/state/VERSION.json

Run once for each release; the files of earlier releases are never written again.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_sink import EmbeddedCluster, __version__
from kafka_sink.client.blocking.group_admin import GroupAdmin

SINK = "orders-job"
TOPIC = "orders"


def main(target: Path) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(9).repartition(3).selectExpr("cast(id AS string) AS value")
    with EmbeddedCluster() as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.create_topic(TOPIC, 3)
        report = Path(folder, "report.jsonl")
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC, "reportPath": str(report)}
        # The last one was committed earlier.
        for more in (1, 2, None, 2):
            version = {} if more is None else {"txnAppId": SINK, "txnVersion": str(more)}
            rows.write.format("kafkalite").options(**options, **version).mode("append").save()
        with GroupAdmin(cluster.bootstrap_servers) as admin:
            offsets = admin.committed(SINK)
        state = {
            "written_by": f"kafkalite {__version__}",
            "group": SINK,
            "topic": TOPIC,
            "progress": [
                {"partition": place.partition, "offset": offset.offset, "metadata": offset.metadata}
                for place, offset in offsets.items()
            ],
            "report": [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()],
        }
    target.write_text(json.dumps(state, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
