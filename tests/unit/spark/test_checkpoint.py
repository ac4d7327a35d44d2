"""The query to which a checkpoint folder belongs, and the batches that are planned in it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from kafka_sink.exactly_once.model import PlannedOffsets
from kafka_sink.spark.streaming import checkpoint
from kafka_sink.spark.streaming.checkpoint import LocalFiles, OffsetsReading, query_of
from tests.support.cases import with_each


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_checkpoint_on_this_machine_says_which_query_it_is_of(tmp_path: Path, form: str) -> None:
    (tmp_path / "metadata").write_text('{"id":"5f0c8d7e-1"}')
    assert query_of(form.format(tmp_path)) == "5f0c8d7e-1"


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"id": 7}', "\udcff"])
def test_query_of_a_checkpoint_without_valid_metadata_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_bytes(text.encode(errors="surrogateescape"))
    assert query_of(str(tmp_path)) is None


@with_each("location", [None, "", "hdfs://nn:8020/checkpoints/orders", "s3a://bucket/x", "file://host/x", "/absent"])
def test_query_of_an_unreadable_checkpoint_is_unknown(location: str | None) -> None:
    assert query_of(location) is None


class Answers:
    """A store that answers only when the test permits it."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked = 0

    def __call__(self, location: str) -> LocalFiles:
        self.asked += 1
        self.may_answer.wait(60)
        raise OSError(f"{location} is not to be repeated")


def test_what_is_planned_is_read_from_this_machine(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for number in range(2):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{number}")
    found = OffsetsReading(f"file://{tmp_path}").result()
    assert (found.version, found.unknown) == (1, "")
    assert OffsetsReading(str(tmp_path), 1).result() == found


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows", "A checkpoint that cannot be read is no error"
)
@pytest.mark.parametrize(
    ("location", "unknown"),
    [
        (None, "the location of the checkpoint is not known"),
        ("dbfs:/checkpoints", "only Spark can read a checkpoint"),
        ("/absent", "cannot be read from here (FileNotFoundError)"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_no_error(location: str | None, unknown: str) -> None:
    found = OffsetsReading(location).result()
    assert unknown in found.unknown
    assert not found.digest


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows", "A file system that does not answer costs one wait"
)
def test_unresponsive_store_costs_one_wait_and_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Answers()
    monkeypatch.setattr(checkpoint, "ArrowFiles", store)
    monkeypatch.setattr(checkpoint, "LIMIT_MS", 20)
    for said in (
        "could not be read within 20 ms",
        "a recent attempt to read the checkpoint failed, or took more than 20 ms",
    ):
        assert OffsetsReading("s3a://unresponsive/x").result().unknown.endswith(said)
    store.may_answer.set()
    assert store.asked == 1


def test_an_error_of_a_store_does_not_tell_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Answers()
    store.may_answer.set()
    monkeypatch.setattr(checkpoint, "ArrowFiles", store)
    unknown = OffsetsReading("s3://key:secret@bucket/x").result().unknown
    assert unknown == "the checkpoint cannot be read from here (OSError)"


#: Azure's client without credentials: it runs a command to find some, and ends the process.
ENDS = "import os, subprocess; subprocess.run('az --version', shell=True); os.abort()"
#: A local store replaces Azure's.
READS = f"""
from pyarrow import fs
from kafka_sink.spark.streaming import checkpoint
checkpoint._opened = lambda location: (fs.LocalFileSystem(), location.removeprefix("abfss:/"))
{checkpoint.PROGRAM}
"""


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows", "A store's client that ends its process ends no other one"
)
def test_checkpoint_in_azures_store_is_read_in_own_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    az, asked = tmp_path / "az", tmp_path / "asked"
    az.write_text(f"#!/bin/sh\n: > {asked}\n")
    az.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "offsets").mkdir()
    for number in (2, 3):
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"a":{number}}}')
    location = f"abfss:/{tmp_path}"
    assert checkpoint.read_in_own_process(location, 3, 60, program=ENDS).unknown.startswith("only Spark can read")
    assert not asked.exists()
    expected = OffsetsReading(str(tmp_path), 3).result()
    assert expected.digest
    assert checkpoint.read_in_own_process(location, 3, 60, program=READS) == expected


def test_azures_store_is_left_alone_after_its_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int | None]] = []

    def ended(location: str, version: int | None, timeout_s: float) -> PlannedOffsets:
        asked.append((location, version))
        return PlannedOffsets(unknown="only Spark can read it")

    monkeypatch.setattr(checkpoint, "read_in_own_process", ended)
    location = "abfss://c@account.dfs.core.windows.net/x"
    assert OffsetsReading(location, 3).result().unknown == "only Spark can read it"
    assert "a recent attempt to read the checkpoint failed" in OffsetsReading(location, 4).result().unknown
    assert asked == [(location, 3)]


class _Store(BaseHTTPRequestHandler):
    """The part of S3 that lists and reads objects."""

    objects: ClassVar[dict[str, bytes]] = {}

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query, name = parse_qs(parts.query), parts.path.removeprefix("/bucket/")
        if "list-type" in query:
            names = [each for each in self.objects if each.startswith(query["prefix"][0])]
            listed = "".join(f"<Contents><Key>{each}</Key><Size>1</Size></Contents>" for each in names)
            return self._answer(200, f"<ListBucketResult>{listed}</ListBucketResult>".encode())
        if name not in self.objects:
            return self._answer(404, b"")
        data, part = self.objects[name], self.headers.get("Range")
        if part is None:
            return self._answer(200, data)
        first, last = map(int, part.removeprefix("bytes=").split("-"))
        return self._answer(206, data[first : last + 1])

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    monkeypatch.setattr(_Store, "objects", {})
    with ThreadingHTTPServer(("127.0.0.1", 0), _Store) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        yield _Store.objects
        server.shutdown()
        serving.join()


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows",
    "Checkpoints are read from object stores and through Hadoop's file systems",
)
def test_what_is_planned_is_read_from_an_object_store(store: dict[str, bytes], tmp_path: Path) -> None:
    for folder in ("offsets", "sources/0"):
        (tmp_path / folder).mkdir(parents=True)
    texts = {f"offsets/{number}": f'v1\n{{}}\n{{"logOffset":{number}}}' for number in (0, 1)}
    texts |= {"sources/0/0.compact": "v1", "sources/0/1": 'v1\n{"path":"file:///a","timestamp":1,"batchId":1}'}
    for path, text in texts.items():
        (tmp_path / path).write_text(text)
        store[f"orders/{path}"] = text.encode()
    found = OffsetsReading("s3a://bucket/orders").result()
    assert found == OffsetsReading(str(tmp_path)).result()
    assert found.digest
    store.clear()
    assert OffsetsReading("s3a://bucket/orders", 1).result().unknown.endswith("(FileNotFoundError)")
