"""The fixtures of the matrix: keys, an embedded cluster and a real Kafka with all listeners, and the rows.

KAFKALITE_MATRIX=full (``scripts/test.sh --matrix``) selects every cell instead of a choice, and KAFKALITE_MATRIX_MB the
MB that each of them writes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix.cells import PATHS
from tests.matrix.payload import Payload, make_payload
from tests.support import amounts
from tests.support.ports import free_ports
from tests.support.real_kafka import running_kafka
from tests.support.securities import (
    CUT,
    PLAINTEXT,
    SASL_SSL,
    SECURITIES,
    Keys,
    SecureServer,
    create_scram_user,
    embedded_server,
    kafka_arguments,
    kafka_server,
    make_keys,
)

IS_FULL = amounts.MATRIX == "full"
MEGABYTES = amounts.MATRIX_MB
#: The name of the property that passes a cell to the table.
CELL = "cell"

#: Kafka removes deleted topics from the disk within seconds, so that it can store those of the next cells.
KAFKA_PROPERTIES = (
    "log.segment.delete.delay.ms=1000",
    "log.retention.check.interval.ms=2000",
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def embedded(keys: Keys) -> Iterator[SecureServer]:
    with embedded_server(keys) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    with secure_kafka(keys, tmp_path_factory.mktemp("secure-kafka")) as server:
        yield server


@contextlib.contextmanager
def secure_kafka(keys: Keys, directory: Path) -> Iterator[SecureServer]:
    ports = {each: free_ports(1) for each in (*SECURITIES, CUT)}
    front, behind, plaintext = free_ports(1), ports[CUT], ports.pop(PLAINTEXT)
    arguments = ("--port", str(plaintext), *kafka_arguments(keys, ports, {CUT: front}), *KAFKA_PROPERTIES)
    with running_kafka(directory, *arguments) as running:
        server = kafka_server(keys, running.bootstrap_servers, {**ports, CUT: front}, {front: behind})
        create_scram_user(running.bootstrap_servers, server.client_properties(SASL_SSL))
        yield server


@pytest.fixture(scope="session")
def payload(tmp_path_factory: pytest.TempPathFactory) -> Payload:
    return make_payload(tmp_path_factory.mktemp("rows"), MEGABYTES)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of cells: a line for each broker, security and codec, with the seconds of each path."""
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    count, rows, megabytes, seconds, red = 0, 0, 0.0, 0.0, []
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            told = dict(getattr(report, "user_properties", ())).get(CELL)
            if told is None or report.when != "call":
                continue
            cell = json.loads(str(told))
            is_red = outcome != "passed"
            line = cells.setdefault((cell["broker"], cell["security"], cell["codec"]), {})
            line[cell["path"]] = "RED" if is_red else f"{cell['seconds']:.1f}{'*' if cell['memory'] == 'small' else ''}"
            count, seconds = count + 1, seconds + report.duration
            if is_red:
                red.append(report.nodeid)
            else:
                rows, megabytes = rows + cell["rows"], megabytes + cell["megabytes"]
    if not cells:
        return
    terminalreporter.section("matrix: seconds of each write (* with little memory)")
    write = terminalreporter.line
    write(f"{'broker':<10}{'security':<16}{'codec':<7}" + "".join(f"{path:>23}" for path in PATHS))
    for (broker, security, codec), line in sorted(cells.items()):
        write(f"{broker:<10}{security:<16}{codec:<7}" + "".join(f"{line.get(path, '–'):>23}" for path in PATHS))
    write(f"{count} cells, {rows:,} rows and {megabytes:,.0f} MB whole, {seconds:,.0f} s, {len(red)} red")
    for name in red:
        write(f"RED {name}")
