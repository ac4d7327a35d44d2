"""Lineage: an OpenLineage event for each write, if OpenLineage's environment variables configure a destination.

Called on the driver, in the process that commits. A thread sends the event, for which the write waits some seconds at
most; a failure is logged and never affects the write.

Source: https://openlineage.io/docs/client/python, https://openlineage.io/docs/spec/naming (Kafka), and the facets of
https://openlineage.io/docs/spec/facets.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.threads import start_thread
from kafka_sink.common.version import VERSION
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.write_spec import WriteSpec

Ranges: TypeAlias = Mapping[TopicPartition, PartitionRange]

_PREFIX: Final = "OPENLINEAGE_"
_DISABLED: Final = "OPENLINEAGE_DISABLED"
_NAMESPACE: Final = "OPENLINEAGE_NAMESPACE"
#: Name and password in an address; a colon with digits is a port.
_LOGIN: Final = re.compile(r"//[^/@]*:(?!\d+(?:/|$))[^@]*@+")
_PRODUCER: Final = f"https://pypi.org/project/kafkalite/{VERSION}"
LONGEST_S: Final = 5.0

_log = logging.getLogger(__name__)


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether OpenLineage's variables configure a destination."""
    is_disabled = environment.get(_DISABLED, "").lower() == "true"
    return not is_disabled and any(name.startswith(_PREFIX) and name != _DISABLED for name in environment)


def emit(ranges: Ranges, spec: WriteSpec, inputs: Sequence[str] = (), *, failure: str | None = None) -> None:
    """Send the event of a write that has read the files *inputs* and written *ranges*, or has ended with *failure*."""
    if not is_configured():
        return

    def send() -> None:
        try:
            from openlineage.client import OpenLineageClient

            client = OpenLineageClient()
            client.emit(_event(ranges, spec, inputs, failure))
            # Transports with their own thread have not sent it yet; clients before 1.35 have none, and no close().
            getattr(client, "close", bool)()
        except ModuleNotFoundError as error:
            _log.warning(
                "no lineage event is sent: the package %s is missing; pip install 'kafkalite[openlineage]'", error.name
            )
        except Exception as error:
            _log.warning("the lineage event of this write was not sent: %s", error)

    thread = start_thread("openlineage", send)
    thread.join(LONGEST_S)
    if thread.is_alive():
        _log.warning("the OpenLineage server did not accept the event of this write within %.0f s", LONGEST_S)


def _event(ranges: Ranges, spec: WriteSpec, inputs: Sequence[str], failure: str | None) -> Any:
    from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run

    facets: dict[str, Any] = {}
    if failure is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(failure, "python", producer=_PRODUCER)
    return RunEvent(
        eventTime=datetime.fromtimestamp(SYSTEM_CLOCK.wall_ms() / 1000, UTC).isoformat(),
        producer=_PRODUCER,
        run=Run(str(uuid.uuid4()), facets),
        job=Job(os.environ.get(_NAMESPACE, "default"), spec.job),
        eventType=RunState.COMPLETE if failure is None else RunState.FAIL,
        inputs=[InputDataset(*file_name(path)) for path in inputs],
        outputs=_outputs(ranges, spec),
    )


def _outputs(ranges: Ranges, spec: WriteSpec) -> list[Any]:
    """A dataset for each topic with rows in *ranges*: its columns, rows, and the offsets that the rows have."""
    import attr
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import OutputDatasetFacet, output_statistics_output_dataset, schema_dataset

    @attr.define
    class KafkaOffsetsFacet(OutputDatasetFacet):
        """First and last offset of the rows in each partition."""

        partitions: list[dict[str, int]] = attr.field(factory=list)

    topics: dict[str, list[tuple[int, PartitionRange]]] = defaultdict(list)
    for (topic, partition), rows in sorted(ranges.items()):
        topics[topic].append((partition, rows))
    columns = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in spec.columns]
    schema = schema_dataset.SchemaDatasetFacet(fields=columns, producer=_PRODUCER)
    server = spec.producer.bootstrap_servers[0]
    outputs = []
    for topic, parts in topics.items():
        offsets = [
            {"partition": partition, "firstOffset": part.first_offset, "lastOffset": part.last_offset}
            for partition, part in parts
        ]
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            sum(part.rows for _, part in parts), producer=_PRODUCER
        )
        own = {"outputStatistics": statistics, "kafkalite_offsets": KafkaOffsetsFacet(partitions=offsets)}
        outputs.append(OutputDataset(f"kafka://{server}", topic, own, facets={"schema": schema}))
    return outputs


def file_name(path: str) -> tuple[str, str]:
    """Namespace and name of a file, by OpenLineage's rules, without a login in its address. In addresses of Azure,
    the part before the @ is a container."""
    parts = urlsplit(_LOGIN.sub("//", path))
    scheme = "file" if parts.scheme in ("", "file") else parts.scheme
    return (scheme, parts.path) if scheme == "file" else (f"{scheme}://{parts.netloc}", parts.path.lstrip("/"))
