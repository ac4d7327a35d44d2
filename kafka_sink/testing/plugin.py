"""The pytest plugin: an embedded cluster for the session, a new topic for each test, and fault injection on request.

Loaded by pytest on the main thread at the start of every run in an environment with kafkalite. It must not import any
other module of kafkalite before a fixture is requested, and must not change a run that requests none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kafka_sink.broker.embedded_broker import EmbeddedCluster
    from kafka_sink.broker.faults.faults import Faults

_INI: Final = "kafkalite"
_MARK: Final = "kafkalite_topic"
_NODES: Final = "nodes"
_LONGEST_NAME: Final = 80

_numbers: Final = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_INI, "kafkalite's cluster: nodes=N and broker options, one NAME=VALUE per line", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARK}(partitions=1, configs={{}}): how to create the topic of the fixture kafkalite_topic",
    )


@pytest.fixture(scope="session")
def kafkalite_config(pytestconfig: pytest.Config) -> Mapping[str, Any]:
    """``nodes`` and broker options under Kafka's names, from the ini option ``kafkalite``; override this fixture to
    change them."""
    found: dict[str, str] = {}
    for line in pytestconfig.getini(_INI):
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise pytest.UsageError(f"ini option {_INI}: expected NAME=VALUE, such as num.partitions=3, not {line!r}")
        found[name.strip()] = value.strip()
    return found


@pytest.fixture(scope="session")
def kafkalite_cluster(kafkalite_config: Mapping[str, Any]) -> Iterator[EmbeddedCluster]:
    """A running cluster, stopped at the end of the session; clients connect to its ``bootstrap_servers``."""
    from kafka_sink.broker.config import BrokerConfig
    from kafka_sink.broker.embedded_broker import EmbeddedCluster
    from kafka_sink.common.config import parse
    from kafka_sink.common.errors import ConfigError

    options = dict(kafkalite_config)
    nodes = str(options.pop(_NODES, "1"))
    if not nodes.isdecimal():
        raise pytest.UsageError(f"kafkalite: nodes must be a whole number, got {nodes!r}")
    try:
        cluster = EmbeddedCluster(int(nodes), config=parse(BrokerConfig, options))
    except ConfigError as error:
        raise pytest.UsageError(f"kafkalite: {error}") from None
    with cluster:
        yield cluster


@pytest.fixture
def kafkalite_topic(request: pytest.FixtureRequest, kafkalite_cluster: EmbeddedCluster) -> Iterator[str]:
    """The name of a new topic, which is deleted after the test. Configured by
    ``@pytest.mark.kafkalite_topic(partitions=6)``."""
    from kafka_sink.client.blocking.admin import AdminClient
    from kafka_sink.common.errors import UnknownTopicOrPartitionError

    mark = request.node.get_closest_marker(_MARK)
    wanted: Mapping[str, Any] = {} if mark is None else mark.kwargs
    unknown = set(wanted) - {"partitions", "configs"}
    if unknown or (mark is not None and mark.args):
        raise pytest.UsageError(f"mark {_MARK}: expected partitions=… and configs=…, got {mark}")
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name).strip("-")[:_LONGEST_NAME]
    name = f"{slug}-{next(_numbers)}"
    kafkalite_cluster.create_topic(name, wanted.get("partitions", 1), configs=wanted.get("configs"))
    yield name
    with AdminClient(kafkalite_cluster.bootstrap_servers) as admin:
        try:
            admin.delete_topics([name])
        except UnknownTopicOrPartitionError:
            # The test has deleted it already.
            return


@pytest.fixture
def kafkalite_faults(kafkalite_cluster: EmbeddedCluster) -> Iterator[Faults]:
    """``kafkalite_cluster.faults``; all faults are removed after the test."""
    yield kafkalite_cluster.faults
    kafkalite_cluster.faults.clear()
