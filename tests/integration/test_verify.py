"""``kafkalite verify`` on topics that librdkafka wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from kafka_sink import EmbeddedCluster
from kafka_sink.cli.main import run
from kafka_sink.cli.options import BOOTSTRAP_SERVERS_VARIABLE
from kafka_sink.cli.output import EXIT_USAGE
from tests.conftest import Figure
from tests.support import amounts

ROWS = 1000
MEASURED_ROWS = amounts.VERIFY_ROWS
KEYS = 40
DAY_MS = 86_400_000
THEN_MS = 1_750_000_000_000

#: Topic, files and more arguments → exit code and what is printed with --json.
Verify = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def at() -> Iterator[str]:
    with EmbeddedCluster(nodes=1) as cluster:
        cluster.create_topic("one-partition", partitions=1)
        yield cluster.bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"verified-{os.urandom(4).hex()}"


def write(at: str, topic: str, rows: Iterator[int] | range, *, transactional_id: str | None = None) -> Producer:
    """Rows as records; with *transactional_id* in a transaction that is left open."""
    config: dict[str, Any] = {"bootstrap.servers": at, "partitioner": "murmur2_random"}
    if transactional_id is not None:
        config["transactional.id"] = transactional_id
    producer = Producer(config)
    if transactional_id is not None:
        producer.init_transactions(20)
        producer.begin_transaction()
    for row in rows:
        while True:
            try:
                producer.produce(topic, b"value %d" % row, b"key %d" % (row % KEYS), timestamp=THEN_MS + row)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(30)
    return producer


def table(rows: range) -> pa.Table:
    values = pa.array([f"value {row}" for row in rows])
    return pa.table({"key": pa.array([f"key {row % KEYS}" for row in rows]), "value": values})


@pytest.fixture
def verify(at: str, capsys: pytest.CaptureFixture[str]) -> Verify:
    def compare(topic: str, against: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run(["verify", topic, "--against", str(against), "--json", "--bootstrap-server", at, *arguments])
        printed = capsys.readouterr()
        assert printed.out, printed.err
        return code, json.loads(printed.out)

    return compare


@pytest.mark.behaviour("kafkalite verify", "Committed records are compared with a folder of Parquet files")
def test_what_was_committed_equals_a_folder_of_parquet_files(
    at: str, topic: str, tmp_path: Path, verify: Verify
) -> None:
    for part in range(3):
        pq.write_table(table(range(part * ROWS // 2, (part + 1) * ROWS // 2)), tmp_path / f"part-{part}.parquet")
    (tmp_path / "_SUCCESS").touch()
    write(at, topic, range(ROWS), transactional_id=topic).commit_transaction(20)
    write(at, topic, range(50), transactional_id=topic).abort_transaction(20)
    write(at, topic, range(ROWS, 3 * ROWS // 2))
    code, found = verify(topic, tmp_path)
    assert (code, found["equal"], found["written"]) == (0, True, 3 * ROWS // 2)
    assert (found["keys"], found["keys_judged"]) == (KEYS, KEYS)


def test_what_differs_is_counted(at: str, topic: str, tmp_path: Path, verify: Verify) -> None:
    file = tmp_path / "rows.csv"
    pa.csv.write_csv(table(range(ROWS)), file)
    write(at, topic, iter([1, 0, *range(2, ROWS - 1), 5, ROWS + 1, 0 + KEYS]))
    write(at, topic, range(1))
    code, found = verify(topic, file)
    assert (code, found["equal"]) == (1, False)
    assert (found["missing"], found["missing_rows"], found["twice"], found["extra"]) == (1, [ROWS - 1], 3, 1)


def test_columns_of_csv_are_text(at: str, topic: str, tmp_path: Path, verify: Verify) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("key,value\n007,2026-01-01\nNA,1.50\n")
    producer = Producer({"bootstrap.servers": at})
    for key, value in ((b"007", b"2026-01-01"), (b"NA", b"1.50")):
        producer.produce(topic, value, key)
    producer.flush(30)
    assert verify(topic, file)[1]["equal"]


def test_order_within_a_key(at: str, topic: str, tmp_path: Path, verify: Verify) -> None:
    pq.write_table(table(range(ROWS)), tmp_path / "rows.parquet")
    write(at, topic, iter([KEYS, *range(1, KEYS), 0, *range(KEYS + 1, ROWS)]))
    code, found = verify(topic, tmp_path)
    assert (code, found["missing"], found["twice"], found["keys_out_of_order"]) == (1, 0, 0, 1)
    code, found = verify(topic, tmp_path, "--no-order")
    assert (code, found["equal"]) == (0, True)


@pytest.mark.behaviour("kafkalite verify", "Ranges of offsets and of time limit the comparison")
def test_ranges_of_offsets_and_of_time(at: str, tmp_path: Path, verify: Verify) -> None:
    pq.write_table(table(range(100, 200)), tmp_path / "rows.parquet")
    topic = "one-partition"
    write(at, topic, range(300))
    code, found = verify(topic, tmp_path, "--since", str(THEN_MS + 100), "--until", str(THEN_MS + 200))
    assert (code, found["written"]) == (0, 100), found
    code, found = verify(topic, tmp_path, "--offsets", "0:100-199")
    assert (code, found["written"]) == (0, 100), found


@pytest.mark.behaviour("kafkalite verify", "Errors say what to do")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--value", "payload"], "has no column 'payload'; give --key or --value with one of key, value, number"),
        (["--value", "number"], "column 'number' is double, expected text or bytes"),
        (["--offsets", "0:5"], "expected one PARTITION:FIRST-LAST"),
        (["--offsets", "0:0-9", "--offsets", "0:20-29"], "expected one PARTITION:FIRST-LAST"),
        (["--since", "yesterday"], "expected ms since 1970"),
        (["--offsets", "0:1-2", "--until", "5"], "exclude each other"),
    ],
)
def test_errors_say_what_to_do(
    tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(table(range(3)).append_column("number", pa.array([0.5, 1.5, 2.5])), file)
    assert run(["verify", "t", "--against", str(file), *arguments]) == EXIT_USAGE
    assert says in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the peak of a process")
def test_memory_for_many_rows(at: str, topic: str, tmp_path: Path, figure: Figure) -> None:
    pq.write_table(table(range(MEASURED_ROWS)), tmp_path / "rows.parquet", row_group_size=50_000)
    pq.write_table(table(range(1)), tmp_path / "one.parquet")
    write(at, topic, range(MEASURED_ROWS))
    # Not getrusage: that begins with what this very process has.
    script = (
        "import re, sys; from kafka_sink.cli.main import run; code = run(sys.argv[1:]); "
        "print(code, re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    peaks = []
    for name, arguments in (("one", ["--offsets", "0:0-0"]), ("rows", [])):
        command = [sys.executable, "-c", script, "verify", topic, "--against", str(tmp_path / f"{name}.parquet")]
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env={**os.environ, BOOTSTRAP_SERVERS_VARIABLE: at},
        )
        code, peak = done.stderr.split()
        assert arguments or int(code) == 0, done.stdout
        peaks.append(int(peak) / 1024)
    figure(f"{MEASURED_ROWS} rows", f"peak of {peaks[1]:.0f} MiB, with one row {peaks[0]:.0f}")
