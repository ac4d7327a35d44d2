"""The pytest plugin: embedded clusters, topics and registries for tests, and fault injection on request.

Loaded by pytest on the main thread at the start of every run in an environment with kafkalite. It must not import any
other module of kafkalite before a fixture is requested, and must not change a run that requests none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kafka_sink.broker.embedded_broker import EmbeddedCluster
    from kafka_sink.broker.faults.faults import Faults
    from kafka_sink.testing.clusters import ClusterSettings, SharedCluster
    from kafka_sink.testing.registry.embedded_registry import EmbeddedRegistry

    Cluster = EmbeddedCluster | SharedCluster

_INI: Final = "kafkalite"
_TOPIC_MARK: Final = "kafkalite_topic"
_TOPICS_MARK: Final = "kafkalite_topics"
_SHARED: Final = "shared"
_LONGEST_NAME: Final = 80
#: In the process that distributes the tests of pytest-xdist: the cluster of all its workers.
_SHARED_CLUSTER: Final = pytest.StashKey["tuple[EmbeddedCluster, dict[str, Any]]"]()

_numbers: Final = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _INI,
        "kafkalite's clusters, one NAME=VALUE per line: nodes, security, mechanism, shared, and options of the broker",
        type="linelist",
    )


def pytest_configure(config: pytest.Config) -> None:
    topic = f"{_TOPIC_MARK}(partitions=1, configs={{}}): how to create the topic of the fixture kafkalite_topic"
    topics = f"{_TOPICS_MARK}(*names, partitions=1, configs={{}}): topics that are new and empty for this test"
    for mark in (topic, topics):
        config.addinivalue_line("markers", mark)


def pytest_unconfigure(config: pytest.Config) -> None:
    shared = config.stash.get(_SHARED_CLUSTER, None)
    if shared is not None:
        cluster, connection = shared
        cluster.stop()
        shutil.rmtree(connection["locks"], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called by pytest-xdist for each worker, in the process that starts them: pass it the shared cluster's address."""
    config: pytest.Config = node.config
    ini_settings = _ini_settings(config)
    if not _is_shared(ini_settings):
        return
    if _SHARED_CLUSTER not in config.stash:
        settings = _settings(ini_settings)
        cluster = settings.cluster()
        cluster.start()
        connection = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "security": dataclasses.asdict(settings.security),
            "locks": tempfile.mkdtemp(prefix="kafkalite-locks-"),
        }
        config.stash[_SHARED_CLUSTER] = cluster, connection
    node.workerinput[_INI] = config.stash[_SHARED_CLUSTER][1]


def _ini_settings(config: pytest.Config) -> dict[str, str]:
    settings: dict[str, str] = {}
    for line in config.getini(_INI):
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise pytest.UsageError(f"ini option {_INI}: expected NAME=VALUE, such as num.partitions=3, not {line!r}")
        settings[name.strip()] = value.strip()
    return settings


def _is_shared(settings: Mapping[str, Any]) -> bool:
    value = str(settings.get(_SHARED, "false")).lower()
    if value not in ("true", "false"):
        raise pytest.UsageError(f"kafkalite: {_SHARED} must be true or false, got {value!r}")
    return value == "true"


def _settings(settings: Mapping[str, Any]) -> ClusterSettings:
    from kafka_sink.common.errors import KafkaError
    from kafka_sink.testing.clusters import ClusterSettings

    try:
        return ClusterSettings.of({name: value for name, value in settings.items() if name != _SHARED})
    except KafkaError as error:
        raise pytest.UsageError(f"kafkalite: {error}") from None


def _shared_connection(config: pytest.Config) -> Mapping[str, Any] | None:
    """The connection to the shared cluster, in a worker of pytest-xdist that has one."""
    connection: Mapping[str, Any] | None = getattr(config, "workerinput", {}).get(_INI)
    return connection


@pytest.fixture(scope="session")
def kafkalite_config(pytestconfig: pytest.Config) -> Mapping[str, Any]:
    """``nodes``, ``security``, ``mechanism`` and broker options under Kafka's names or those of ``BrokerConfig``, from
    the ini option ``kafkalite``; override this fixture to change them."""
    return _ini_settings(pytestconfig)


@pytest.fixture(scope="session")
def _kafkalite_settings(pytestconfig: pytest.Config, kafkalite_config: Mapping[str, Any]) -> ClusterSettings:
    connection = _shared_connection(pytestconfig)
    if connection is None:
        return _settings(kafkalite_config)
    if dict(kafkalite_config) != _ini_settings(pytestconfig):
        raise pytest.UsageError(
            f"kafkalite: a cluster with {_SHARED}=true has the settings of the ini option {_INI}; remove the fixture "
            f"kafkalite_config, or {_SHARED}=true"
        )
    from kafka_sink.testing.clusters import ClusterSecurity

    return dataclasses.replace(_settings(kafkalite_config), security=ClusterSecurity(**connection["security"]))


@pytest.fixture(scope="session")
def kafkalite_cluster(pytestconfig: pytest.Config, _kafkalite_settings: ClusterSettings) -> Iterator[Cluster]:
    """A running cluster, stopped at the end of the session; clients connect to its ``bootstrap_servers``. Each worker
    of pytest-xdist has its own, unless the ini option says ``shared=true``."""
    connection = _shared_connection(pytestconfig)
    if connection is not None:
        from kafka_sink.testing.clusters import SharedCluster

        yield SharedCluster(connection["bootstrap_servers"], _kafkalite_settings.security)
        return
    with _kafkalite_settings.cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafkalite_module_cluster(_kafkalite_settings: ClusterSettings) -> Iterator[EmbeddedCluster]:
    """As ``kafkalite_cluster``, for the tests of one module."""
    with _kafkalite_settings.cluster() as cluster:
        yield cluster


@pytest.fixture
def kafkalite_function_cluster(_kafkalite_settings: ClusterSettings) -> Iterator[EmbeddedCluster]:
    """As ``kafkalite_cluster``, for one test, which may stop its nodes."""
    with _kafkalite_settings.cluster() as cluster:
        yield cluster


@pytest.fixture
def kafkalite_client(kafkalite_cluster: Cluster, _kafkalite_settings: ClusterSettings) -> dict[str, str]:
    """The options with which clients connect to ``kafkalite_cluster``, under the names of Kafka's own clients, as
    :class:`~kafka_sink.KafkaProducer` accepts them; Spark's options have ``kafka.`` before the names."""
    return _kafkalite_settings.security.client(kafkalite_cluster.bootstrap_servers)


@pytest.fixture
def kafkalite_librdkafka(kafkalite_cluster: Cluster, _kafkalite_settings: ClusterSettings) -> dict[str, Any]:
    """As ``kafkalite_client``, under the names of librdkafka, for confluent-kafka."""
    return _kafkalite_settings.security.librdkafka(kafkalite_cluster.bootstrap_servers)


@pytest.fixture
def kafkalite_aiokafka(kafkalite_cluster: Cluster, _kafkalite_settings: ClusterSettings) -> dict[str, Any]:
    """As ``kafkalite_client``, under the names of aiokafka and kafka-python; pass them to a constructor with ``**``."""
    return _kafkalite_settings.security.aiokafka(kafkalite_cluster.bootstrap_servers)


@pytest.fixture
def kafkalite_topic(request: pytest.FixtureRequest, kafkalite_cluster: Cluster) -> Iterator[str]:
    """The name of a new topic, which is deleted after the test. Configured by
    ``@pytest.mark.kafkalite_topic(partitions=6)``."""
    mark = request.node.get_closest_marker(_TOPIC_MARK)
    if mark is not None and mark.args:
        raise pytest.UsageError(f"mark {_TOPIC_MARK}: expected partitions=… and configs=…, got {mark}")
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name).strip("-")[:_LONGEST_NAME]
    # Workers of pytest-xdist may share a cluster.
    name = f"{slug}-{os.environ.get('PYTEST_XDIST_WORKER', '')}{next(_numbers)}"
    yield from _with_topics(kafkalite_cluster, mark, [name])


@pytest.fixture
def kafkalite_topics(request: pytest.FixtureRequest, kafkalite_cluster: Cluster) -> Iterator[tuple[str, ...]]:
    """The topics of ``@pytest.mark.kafkalite_topics("orders", "payments", partitions=6)``: new and empty, even if an
    earlier test used topics with these names; deleted after the test."""
    mark = request.node.get_closest_marker(_TOPICS_MARK)
    if mark is None or not mark.args or not all(isinstance(name, str) for name in mark.args):
        raise pytest.UsageError(f"the fixture kafkalite_topics needs @pytest.mark.{_TOPICS_MARK}(NAME, …), got {mark}")
    from kafka_sink.testing.clusters import delete_if_there

    with _locked(_shared_connection(request.config), mark.args):
        for name in mark.args:
            delete_if_there(kafkalite_cluster, name)
        for _ in _with_topics(kafkalite_cluster, mark, mark.args):
            yield mark.args


@contextlib.contextmanager
def _locked(connection: Mapping[str, Any] | None, names: Sequence[str]) -> Iterator[None]:
    """Lock *names* among the workers with the same cluster; the system releases the locks of a worker that died."""
    folder = None if connection is None else Path(connection["locks"])
    with contextlib.ExitStack() as files:
        # In the same order in all workers, so that no two wait for each other.
        for name in sorted(set(names)):
            if folder is not None:
                fcntl.flock(files.enter_context((folder / f"{name}.lock").open("w")), fcntl.LOCK_EX)
        yield


def _with_topics(cluster: Cluster, mark: pytest.Mark | None, names: Sequence[str]) -> Iterator[str]:
    """Create the topics *names* with the arguments of *mark*, yield the first of them, and delete all."""
    from kafka_sink.testing.clusters import delete_if_there

    wanted: Mapping[str, Any] = {} if mark is None else mark.kwargs
    if mark is not None and set(wanted) - {"partitions", "configs"}:
        raise pytest.UsageError(f"mark {mark.name}: expected partitions=… and configs=…, got {mark}")
    for name in names:
        cluster.create_topic(name, wanted.get("partitions", 1), configs=wanted.get("configs"))
    yield names[0]
    for name in names:
        delete_if_there(cluster, name)


@pytest.fixture
def kafkalite_registry() -> Iterator[EmbeddedRegistry]:
    """A schema registry without schemas; ``kafkalite_registry.url`` is its address."""
    from kafka_sink.testing.registry.embedded_registry import EmbeddedRegistry

    with EmbeddedRegistry() as registry:
        yield registry


@pytest.fixture
def kafkalite_faults(kafkalite_cluster: Cluster) -> Iterator[Faults]:
    """``kafkalite_cluster.faults``; all faults are removed after the test."""
    from kafka_sink.broker.embedded_broker import EmbeddedCluster

    if not isinstance(kafkalite_cluster, EmbeddedCluster):
        raise pytest.UsageError(f"kafkalite_faults needs a cluster in this process: remove {_SHARED}=true")
    yield kafkalite_cluster.faults
    kafkalite_cluster.faults.clear()
