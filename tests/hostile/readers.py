"""All readers of untrusted bytes and text: a table, and an attack on each of its rows.

A row names the functions that it covers. For any input, a reader ends within a number of steps proportional to the
size of the input, and returns a value or raises one of its own errors. ``test_readers.py`` compares the table with the
source: it fails for a function that reads and is in no row.

    python -m tests.hostile.fuzz --only NAME --minutes N
"""

from __future__ import annotations

import base64
import json
import random
import struct
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

from crc32c import crc32c

from kafka_sink.broker.authorizer import AclCache
from kafka_sink.broker.cluster import cluster_image
from kafka_sink.broker.config import BrokerConfig, EndPoint, parse_counts
from kafka_sink.broker.coordinator.group_metadata import subscribed_topics
from kafka_sink.broker.coordinator.group_store import GroupStore
from kafka_sink.broker.coordinator.store import CoordinatorStore, TransactionStore
from kafka_sink.broker.faults.faults import Faults, set_fault
from kafka_sink.broker.log.filesystem import CheckedFile
from kafka_sink.broker.log.producer_state import ProducerStateManager
from kafka_sink.broker.log.segment import OffsetIndex, Seal
from kafka_sink.cli.values.json_records import from_json_line
from kafka_sink.client.blocking.group_admin import assigned_in
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.columns.varint import encode_varint, read_varint, read_varlong
from kafka_sink.common.acl import AclBinding, AclOperation, ResourceType
from kafka_sink.common.clock import SYSTEM_CLOCK, moment_ms
from kafka_sink.common.config import parse
from kafka_sink.common.errors import (
    ApiError,
    AuthenticationError,
    ConfigError,
    CorruptRecordError,
    InvalidReceiveError,
    KafkaError,
    ProtocolError,
    SerializationError,
    UnsupportedVersionError,
)
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition, TransactionVersion
from kafka_sink.common.properties import load_properties
from kafka_sink.common.references import PROVIDERS, resolve
from kafka_sink.common.repeated_secrets import RepeatedSecrets
from kafka_sink.common.sasl_mechanisms import ScramCredential, credential_text, parse_credential
from kafka_sink.errors import SinkWriteError
from kafka_sink.exactly_once.model import Progress, ProgressError
from kafka_sink.exactly_once.progress import ProgressStore, decode_lists, encode_lists, latest_batch
from kafka_sink.exactly_once.transactions import (
    OpenTransaction,
    Transaction,
    is_writer_id,
    sink_of_id,
    split_writer_id,
    writer_id,
)
from kafka_sink.formats.schema_text import check_json
from kafka_sink.network.frames import READ_AHEAD_BYTES, UNLIMITED_MEMORY_POOL, FrameReader
from kafka_sink.network.sasl.bearer_token import OAuthBearerServer
from kafka_sink.network.sasl.mechanism import PlainServer
from kafka_sink.network.transport.tls_transport import subject_of
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.topic_limits import AFTER_MAX_MS, BEFORE_MAX_MS, MAX_MESSAGE_BYTES, TopicLimits
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.codec import decode
from kafka_sink.protocol.header import decode_request_body, decode_request_header, decode_response, encode_request
from kafka_sink.protocol.registry import APIS, api
from kafka_sink.protocol.schema import Struct
from kafka_sink.records.batch import is_transactional
from kafka_sink.records.compacted import filtered, parse_records
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.control import EndTransactionMarker, marker_batch, read_marker
from kafka_sink.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES
from kafka_sink.records.message_sets import read_all_formats
from kafka_sink.records.reader import Looking, read_batches
from kafka_sink.records.validation import BatchRules, validate_batch
from kafka_sink.registry.subjects import split_position, split_wire
from kafka_sink.reports.writes import InStream, Tail, read_writes
from kafka_sink.spark.errors import cause_of
from kafka_sink.spark.streaming.checkpoint import OffsetLogError, planned_offsets, read_offsets
from kafka_sink.spark.streaming.progress import lag_of
from kafka_sink.spark.task.task_outcome import TaskOutcome, TaskTransaction, outcome_of
from kafka_sink.testing.registry.schema_store import SchemaStore
from kafka_sink.trust.key_stores import KeyStoreError
from kafka_sink.ui.cluster_view import RecordSearch
from kafka_sink.ui.shown import ByteView, shown_time
from tests.fakes.immediate import returned
from tests.fakes.record_batches import make_batch
from tests.hostile import identities
from tests.hostile.batches import batch_of, record_of
from tests.hostile.identities import text
from tests.support.unpacked import decompress
from tests.unit.exactly_once.test_progress import Offsets

#: The most CPU time of a case: linear readers need less on any machine, quadratic ones need more.
_MOST_S: Final = 5.0
_MOST_S_PER_BYTE: Final = 50e-6
_GOLDEN: Final = Path(__file__).parents[1] / "golden"
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="kafkalite-readers-")  # removed when this process ends
_SCRATCH: Final = Path(_FOLDER.name)
#: The limit of decompressed data, in bytes.
_MOST_PLAIN: Final = 1 << 16
_SINK: Final = "s/t"

Read = Callable[[bytes], object]
Errors = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True)
class Reader:
    """A reader of *seeds*, which are valid inputs; *of* are the functions that it covers, as ``module:function``.

    *share* is the fraction of cases that it gets: readers that derive keys or open files are slow. *steps* is the
    number of source lines that it may execute for any input, in addition to those per byte.
    """

    name: str
    of: str
    read: Read
    seeds: tuple[bytes, ...]
    error: Errors = ()
    share: float = 1.0
    steps: int = 20_000


# --- Consumers, sinks, topics -----------------------------------------------------------------------------------------


def _assignment(*topics: tuple[bytes, Sequence[int]]) -> bytes:
    parts = [struct.pack(f">h{len(name)}si{len(of)}i", len(name), name, len(of), *of) for name, of in topics]
    return struct.pack(">hi", 0, len(topics)) + b"".join(parts) + struct.pack(">i", -1)


#: Its 2³¹-1 topics have the length -6: a reader without checks never ends.
_STANDS_STILL: Final = struct.pack(">hihsiihq", 0, 2**31 - 1, 1, b"t", 1, 0, -6, 0)
_ASSIGNMENTS: Final = (_assignment((b"orders", [0, 1, 2]), (b"t", [7])), _assignment(), _STANDS_STILL)


def _subscribed(data: bytes) -> None:
    subscribed_topics(data)


def _read_progress(data: bytes) -> None:
    offsets = Offsets()
    for partition, metadata in enumerate(text(data).split("\n")):
        offsets.found[partition] = OffsetAndMetadata(7, metadata)
    latest_batch(offsets.found[0])
    returned(ProgressStore(offsets, "s", "t").read())  # type: ignore[arg-type]


def _progress_seeds() -> Iterable[bytes]:
    for file in sorted((_GOLDEN / "state").glob("*.json")):
        for part in json.loads(file.read_text(encoding="utf-8"))["progress"]:
            yield part["metadata"].encode()
    for each in _LISTS:
        yield f"kafkalite3|2|1|6|w|1764000000|offsets|7|3|{each}".encode()
    yield f"kafkalite3|1|2|6|w|0||7|3|{_LISTS[0][:8]}\n6|{_LISTS[0][8:]}".encode()
    yield b"kafkalite2|1|1|w|0||AAAAAAAAAhICAg=="
    yield b"kafkalite1|2|2147483647|w|0|"


def _progress(transactions: Iterable[Transaction], ends: Iterable[tuple[TopicPartition, int]]) -> Progress:
    return Progress(7, "w", TransactionVersion.V2, 0, tuple(transactions), "", None, tuple(ends))


_LISTED: Final = _progress(
    (Transaction(writer_id(_SINK, bytes([n % 3] * 6), n), 4_000 + 130 * n, n) for n in range(9)),
    ((TopicPartition(topic, n), 2**n) for topic in ("a", "t") for n in range(4)),
)
_LISTS: Final = [encode_lists(_LISTED, _SINK, dense=dense) for dense in (False, True)]


def _lists(data: bytes) -> None:
    for with_ends in (False, True):
        lists = decode_lists(_SINK, text(data), with_ends=with_ends)
        # The lists can be encoded again, and their transactional ids are ids of the sink.
        encode_lists(_progress(*lists), _SINK)
        assert all(is_writer_id(_SINK, each.transactional_id) for each in lists.transactions)


def _ids(data: bytes) -> None:
    name = text(data)
    sink_of_id(name)
    if is_writer_id(_SINK, name):
        split_writer_id(_SINK, name)


def _topic_settings(data: bytes) -> None:
    for name in (MAX_MESSAGE_BYTES, BEFORE_MAX_MS, AFTER_MAX_MS):
        limits = TopicLimits.of({name: text(data)})
        known = [limits.max_message_bytes, *(each and each.most_ms for each in (limits.before, limits.after))]
        assert all(each is None or 0 <= each < 2**63 for each in known)


# --- Records ----------------------------------------------------------------------------------------------------------


def _with_crc(data: bytes) -> bytes:
    """Return *data* with a valid checksum in its first batch, so that a reader parses its contents."""
    if len(data) < HEADER_BYTES:
        return data
    size = min(max(struct.unpack_from(">i", data, 8)[0] + 12, HEADER_BYTES), len(data))
    return data[:CRC_AT] + struct.pack(">I", crc32c(data[ATTRIBUTES_AT:size])) + data[ATTRIBUTES_AT:]


def _fetched(data: bytes) -> None:
    for batch in read_all_formats(data):
        assert isinstance(batch.verify_crc(), bool)
        for record in batch.records(_MOST_PLAIN, looking=Looking()):
            assert isinstance(record.offset, int)
    for batch in read_all_formats(data):
        for _ in batch.records(_MOST_PLAIN, start=2):
            pass


def _validated(data: bytes) -> None:
    rules = BatchRules(1 << 20, _MOST_PLAIN, 2**62, 2**62, log_append_time=False, needs_key=bool(len(data) % 2))
    with suppress(ApiError):
        is_transactional(data)
    validate_batch(_with_crc(data), rules, 1_000, 9)


def _compacted(data: bytes) -> None:
    for batch in read_batches(data):
        filtered(batch, lambda record: record.key != b"a", 5, dated=True)


def _marker(data: bytes) -> None:
    read_marker(data)


def _batches() -> Iterable[bytes]:
    yield from map(
        bytes, (make_batch([b"a", b"b", None], keys=[b"a", b"b", b"c"], compression=c) for c in CompressionType)
    )
    records = [record_of(0, b"v" * 9, key=b"\2k"), record_of(1, headers=b"\2\4kk\2v"), record_of(2)]
    yield batch_of(records) + batch_of(records, CompressionType.ZSTD, base=3)
    makers = ("kafka_clients", "librdkafka")
    for maker in makers:
        for packed in json.loads((_GOLDEN / "records" / f"{maker}.json").read_text())["batches"].values():
            yield base64.b64decode(packed)[:4_000]


def _message_sets() -> Iterable[bytes]:
    """Yield each message of the golden segment with the next one."""
    segment = base64.b64decode(json.loads((_GOLDEN / "records" / "message_sets.json").read_text())["segment"])
    sizes = [batch.header.size_in_bytes for batch in read_all_formats(segment)]
    for number in range(len(sizes) - 1):
        first = sum(sizes[:number])
        yield segment[first : first + sizes[number] + sizes[number + 1]]


def _packed(data: bytes) -> None:
    kind = CompressionType(data[0] % 5) if data else CompressionType.NONE
    decompress(kind, data[1:], _MOST_PLAIN)


def _packed_seeds() -> Iterable[bytes]:
    for kind in CompressionType:
        yield bytes([kind]) + bytes(compress(kind, b"record " * 40)) + bytes(compress(kind, bytes(30)))
    yield b"\4" + struct.pack("<II", 0x184D2A50, 3) + b"abc" + bytes(compress(CompressionType.ZSTD, b"x"))


def _varints(data: bytes) -> None:
    at = 0
    while at < len(data):
        _, after = read_varlong(data, at)
        with suppress(CorruptRecordError):
            _, after = read_varint(data, at)
        assert after > at
        at = after


# --- Messages ---------------------------------------------------------------------------------------------------------

_KINDS: Final[dict[bytes, type[Struct]]] = {
    kind.__name__.encode(): kind for entry in APIS.values() for kind in (entry.request, entry.response)
}


def _message(data: bytes) -> None:
    """Decode a message from its name, its version and its bytes."""
    name, _, rest = data.partition(b"|")
    version, _, body = rest.partition(b"|")
    if name in _KINDS and version.isdigit():
        decode(_KINDS[name], body, int(version[:4]))


def _messages() -> Iterable[bytes]:
    golden = json.loads((_GOLDEN / "protocol" / "kafka_clients.json").read_text())["messages"]
    for name, versions in golden.items():
        if name.encode() in _KINDS:
            for version, forms in list(versions.items())[:: max(len(versions) - 1, 1)]:
                yield f"{name}|{version}|".encode() + bytes.fromhex(next(iter(forms.values())))[:3_000]


def _request(data: bytes) -> None:
    header, at = decode_request_header(data)
    decode_request_body(header, data, at)


def _requests() -> Iterable[bytes]:
    for key in APIS:
        version = api(key).versions.max
        yield b"".join(map(bytes, encode_request(key, version, 7, "client", api(key).request())))


def _answer(data: bytes) -> None:
    for key in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FETCH):
        with suppress(ProtocolError):
            decode_response(key, api(key).versions.max, data)


class _Wire:
    """The bytes of a connection, a few at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_into(self, target: memoryview) -> int:
        if not self._data:
            raise EOFError
        taken, self._data = self._data[: min(len(target), 7)], self._data[min(len(target), 7) :]
        target[: len(taken)] = taken
        return len(taken)

    def readv(self, targets: Sequence[memoryview]) -> int:
        return self.read_into(targets[0])


def _frames(data: bytes) -> None:
    wire, reader = _Wire(data), FrameReader("", 1 << 16, UNLIMITED_MEMORY_POOL, memoryview(bytearray(READ_AHEAD_BYTES)))
    # Each call reads bytes, or the connection has ended.
    for _ in range(2 * len(data) + 2):
        reader.read_from(cast("Any", wire).read_into)
    raise AssertionError("the reader does not see the end")


# --- What the embedded broker and the registry keep -------------------------------------------------------------------


def _index(data: bytes) -> None:
    OffsetIndex.from_bytes(data, 4096)
    OffsetIndex.from_bytes(b"KLX2" + struct.pack(">I", crc32c(data[8:])) + data[8:], 4096)


def _index_seed() -> bytes:
    index = OffsetIndex(4096)
    for number in range(5):
        index.add(number, number * 5000, number)
    index.add_epoch(0, 0)
    return index.to_bytes(Seal(1, 2, 3, 4))


def _producers(data: bytes) -> None:
    ProducerStateManager(1).load(data)


_PRODUCERS: Final = b'{"format":%d,"producers":[[5,0,9,[[0,1,0,1,3]],-1,3,-1]],"aborted":[[5,0,1]]}'


def _producer_seeds() -> Iterable[bytes]:
    form = json.loads(ProducerStateManager(1).to_bytes())["format"]
    yield _PRODUCERS % form


def _image(data: bytes) -> None:
    cluster_image.decode(data, BrokerConfig(), [1, 2])


def _image_seed() -> bytes:
    credential = ScramCredential.of("SCRAM-SHA-256", "p", salt=bytes(4))
    acl = AclBinding(
        principal="User:a", operation=AclOperation.READ, resource_type=ResourceType.TOPIC, resource_name="t"
    )
    image = json.loads(cluster_image.encode(cluster_image.ClusterImage("id", (1, 2))))
    topic = {"name": "t", "id": uuid.UUID(int=5).hex, "configs": {"retention.ms": "5"}, "partitions": [[1, 2, 0]]}
    image |= {"topics": [topic], "acls": AclCache((acl,)).encoded(), "broker_configs": {"num.partitions": "2"}}
    image |= {"quotas": [[{"user": "a"}, {"producer_byte_rate": 5.0}]]}
    image |= {"scram_users": [credential_text("SCRAM-SHA-256", "a", credential)]}
    return json.dumps(image).encode()


class _Kept:
    """A file of the registry."""

    path = "registry"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data


def _registry_file(data: bytes) -> None:
    SchemaStore(cast("CheckedFile", _Kept(data)))


def _registry_seed() -> bytes:
    version = {"id": 1, "deleted": False, "schema": '"string"'}
    state = {"lastId": 1, "subjects": {"t-value": {"1": version}}, "levels": {}, "modes": {}}
    return json.dumps(state).encode()


_COORDINATORS: Final[list[CoordinatorStore]] = []


def _coordinators(data: bytes) -> None:
    if not _COORDINATORS:
        _COORDINATORS.append(CoordinatorStore(_SCRATCH, flush_writes=False))
    store = _COORDINATORS[0]
    with store.transaction() as connection:
        connection.execute("INSERT OR REPLACE INTO consumer_groups VALUES ('g', ?)", (text(data),))
        connection.execute(
            "INSERT OR REPLACE INTO transactions VALUES ('t', 1, 1, 1, 1, 1, 1, 1, 'Empty', 1, 1, ?, '[]')",
            (text(data),),
        )
    with suppress(ConfigError):
        TransactionStore(store).load()
    GroupStore(store, 1_000_000).load_consumers()


_CONSUMERS: Final = json.dumps(
    {
        "epoch": 1,
        "assignment_epoch": 1,
        "topics": {uuid.UUID(int=5).hex: 2},
        "regexes": {"a.*": ["t"]},
        "targets": {"m": [[uuid.UUID(int=5).hex, 0]]},
        "members": [],
    }
).encode()


# --- Files and texts --------------------------------------------------------------------------------------------------


def _in_file(data: bytes) -> Path:
    file = _SCRATCH / "file"
    file.write_bytes(data)
    return file


def _report(data: bytes) -> None:
    file = _in_file(data)
    for line in Tail(file).read():
        assert line is not None
    _, writes = read_writes(file, 100)
    for write in writes:
        # Displays encode the remark.
        InStream(write, None).remark.encode()
        shown_time(write.timestamp_ms or 0)


def _reports() -> Iterable[bytes]:
    for file in sorted((_GOLDEN / "state").glob("*.json")):
        lines = json.loads(file.read_text(encoding="utf-8"))["report"]
        yield "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    failed = {**lines[0], "decision": "failed", "error": "\ud800"}
    yield f'{json.dumps(failed)}\n{{"source": {{"batch": 1, "lag": 5}}}}\n'.encode()


def _properties(data: bytes) -> None:
    load_properties(str(_in_file(data)))


class _Checkpoint:
    """The files of a checkpoint: each entry is the same text."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def names(self, folder: str) -> list[str]:
        return text(self._data[:20]).split("/")

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        return self._data[20:], len(self._data) % 2 == 0


def _checkpoint(data: bytes) -> None:
    read_offsets(lambda: cast("Any", _Checkpoint(data)), None)
    with suppress(OffsetLogError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        planned_offsets(cast("Any", _Checkpoint(data)), 5)


def _lag(data: bytes) -> None:
    lag_of(text(data))


def _options(data: bytes) -> None:
    value = text(data)
    names = ("bootstrap.servers", "retry.backoff.ms", "sasl.login.refresh.window.factor")
    for name in names:
        with suppress(ConfigError):
            parse(ClientConfig, {"bootstrap.servers": "h:1", name: value})
    for read in (lambda: EndPoint.parse(value), lambda: parse_counts("x", tuple(value.split(",")))):
        with suppress(ConfigError):
            read()
    parse(ProducerConfig, {"bootstrap.servers": "h:1", "linger.ms": value, "acks": value})


def _fault(data: bytes) -> None:
    set_fault(Faults(), text(data))


def _outcome(data: bytes) -> None:
    outcome_of(text(data)).to_json()


def _task_error(data: bytes) -> None:
    str(cause_of(RuntimeError(text(data))))


_TASK_ERRORS: Final = (
    b'x\nkafka_sink.errors.SinkWriteError: late\nkafkalite failure: {"kind": "SinkWriteError", "cause_class": "E", '
    b'"code": "NONE", "topic": "t", "partition": 1, "option": null, "column": null, "is_permanent": true}\n\tat x',
    b"kafka_sink.errors.TornBatchError: x",
)


def _outcomes() -> Iterable[bytes]:
    written = OpenTransaction(_LISTED.transactions[0], frozenset({TopicPartition("t", 0)}))
    yield TaskOutcome(task_partition=3, transaction=TaskTransaction(open=written)).to_json().encode()
    yield TaskOutcome(failure=SinkWriteError("no", topic="t", partition=1)).to_json().encode()


def _shown(data: bytes) -> None:
    ByteView()(data)
    if len(data) >= 8:
        shown_time(struct.unpack_from(">q", data)[0])


def _search(data: bytes) -> None:
    start = RecordSearch(since=text(data)).start()
    assert not isinstance(start, int) or start < 2**63


def _wire(data: bytes) -> None:
    schema_id, rest = split_wire(data)
    assert 0 <= schema_id < 2**32
    position, _ = split_position(rest)
    assert position
    assert len(position) <= len(rest)


def _json_line(data: bytes) -> None:
    from_json_line("t", data)


def _json_text(data: bytes) -> None:
    check_json(text(data))


def _subject(data: bytes) -> None:
    subject_of(data).encode()


_ORDERS_OFFSETS: Final = b'10/11/12/13/14/15/16v1\n{"batchWatermarkMs":0}\n{"orders":{"0":5}}\n{"logOffset":3}'

TABLE: Final = (
    Reader("assignments of consumers", "client.blocking.group_admin:assigned_in", assigned_in, _ASSIGNMENTS),
    Reader("subscriptions", "broker.coordinator.group_metadata:subscribed_topics", _subscribed, _ASSIGNMENTS),
    Reader(
        "progress of sinks",
        "exactly_once.progress:_FirstPart.of exactly_once.progress:latest_batch",
        _read_progress,
        tuple(_progress_seeds()),
        ProgressError,
    ),
    Reader(
        "lists of transactions and ends",
        "exactly_once.progress:decode_lists exactly_once.progress:_transactions_of_process "
        "exactly_once.progress:_undense",
        _lists,
        tuple(each.encode() for each in _LISTS),
        ValueError,
    ),
    Reader(
        "transactional ids",
        "exactly_once.transactions:split_writer_id exactly_once.transactions:sink_of_id",
        _ids,
        (writer_id(_SINK, bytes(6), 17).encode(), b"s/t.driver", b"s/t.000000000000." + b"9" * 5000),
    ),
    Reader(
        "settings of topics",
        "producer.topic_limits:TopicLimits.of producer.topic_limits:_time_limit",
        _topic_settings,
        (b"1048588", b"-1", b"1MB"),
    ),
    Reader(
        "fetched batches",
        "records.batch:parse_header records.batch:verify_crc records.reader:_read_record records.reader:_read_headers "
        "records.reader:_read_bytes records.spans:_long_length",
        _fetched,
        tuple(_batches()),
        CorruptRecordError,
        steps=1_000_000,
    ),
    Reader(
        "message sets",
        "records.message_sets:MessageView._field records.message_sets:_message_at",
        _fetched,
        tuple(_message_sets()),
        CorruptRecordError,
        steps=1_000_000,
    ),
    Reader(
        "produced batches",
        "records.validation:_check_deltas records.batch:is_transactional",
        _validated,
        tuple(_batches()),
        ApiError,
        steps=1_000_000,
    ),
    Reader(
        "compacted batches",
        "records.compacted:read_keyed",
        _compacted,
        tuple(_batches()),
        CorruptRecordError,
        steps=1_000_000,
    ),
    Reader(
        "control batches",
        "records.control:read_marker",
        _marker,
        (bytes(marker_batch(EndTransactionMarker(5, 1, True, 3), 9)), bytes(make_batch([b"a"], is_control=True))),
        CorruptRecordError,
    ),
    Reader(
        "split records",
        "records.compacted:parse_records",
        parse_records,
        (record_of(0) + record_of(1, b"v" * 200),),
        CorruptRecordError,
    ),
    Reader(
        "compressed data",
        "records.compression:_unzstd records.compression:_scan_zstd_frame records.compression:_unsnappy",
        _packed,
        tuple(_packed_seeds()),
        CorruptRecordError,
    ),
    Reader(
        "variable-length numbers",
        "columns.varint:read_varint columns.varint:read_varlong",
        _varints,
        (b"".join(map(encode_varint, (0, 5, -1, 300, 2**31 - 1, -(2**63)))),),
        CorruptRecordError,
    ),
    Reader(
        "messages",
        "protocol.decoder:_fixed_reader.read protocol.decoder:_uuid_of protocol.primitives:read_int16_length "
        "protocol.primitives:read_int32_length",
        _message,
        tuple(_messages()),
        (ProtocolError, UnsupportedVersionError),
    ),
    Reader(
        "requests",
        "protocol.header:decode_request_header",
        _request,
        tuple(_requests()),
        (ProtocolError, UnsupportedVersionError),
    ),
    Reader("answers", "protocol.header:decode_response", _answer, (bytes(40), struct.pack(">ihi", 7, 35, 0))),
    Reader(
        "frames",
        "network.frames:FrameReader._begin",
        _frames,
        (struct.pack(">i", 3) + b"abc" + struct.pack(">i", 0) + struct.pack(">i", 40) + bytes(40),),
        (InvalidReceiveError, EOFError),
    ),
    Reader("seals of segments", "broker.log.segment:OffsetIndex.from_bytes", _index, (_index_seed(),)),
    Reader(
        "snapshots of producers",
        "broker.log.producer_state:ProducerStateManager.load",
        _producers,
        tuple(_producer_seeds()),
    ),
    Reader(
        "images of clusters",
        "broker.cluster.cluster_image:decode broker.cluster.cluster_image:_decode_topic "
        "broker.authorizer:AclCache.decode",
        _image,
        (_image_seed(),),
        ConfigError,
        share=0.5,
        steps=200_000,
    ),
    Reader(
        "coordinators' files",
        "broker.coordinator.group_store:GroupStore.load_consumers broker.coordinator.group_store:_decoded "
        "broker.coordinator.group_store:_owned broker.coordinator.store:TransactionStore._load",
        _coordinators,
        (_CONSUMERS, b'[["t", 0]]'),
        ConfigError,
        share=0.5,
    ),
    Reader(
        "the registry's file",
        "testing.registry.schema_store:RegistryState.of",
        _registry_file,
        (_registry_seed(),),
        ConfigError,
    ),
    Reader(
        "reports",
        "reports.writes:_parsed reports.writes:_duration reports.writes:SinkProgress.of_report "
        "reports.writes:Tail.read ui.shown:shown_time",
        _report,
        tuple(_reports()),
        ValueError,
        share=0.5,
    ),
    Reader(
        "properties",
        "common.properties:_escaped",
        _properties,
        (b"a=b\n# c\nd : e\\\n f\\u0041\\t\n", b"\xef\xbb\xbfx y\n"),
        ConfigError,
        share=0.5,
    ),
    Reader(
        "checkpoints",
        "spark.streaming.checkpoint:planned_offsets "
        "spark.streaming.checkpoint:_entry spark.streaming.checkpoint:_logged_files",
        _checkpoint,
        (_ORDERS_OFFSETS, b"0/1" + bytes(17) + b'v1\n{"path":"a","timestamp":1,"batchId":5}'),
    ),
    Reader(
        "offsets in Spark's progress",
        "spark.streaming.progress:lag_of spark.streaming.progress:_lag_of",
        _lag,
        (b'{"sources":[{"endOffset":{"t":{"0":5,"1":7}},"latestOffset":{"t":{"0":9,"1":7}}}]}',),
    ),
    Reader(
        "commit messages",
        "spark.task.task_outcome:_decode spark.task.task_outcome:outcome_of spark.task.task_outcome:_transaction",
        _outcome,
        tuple(_outcomes()),
        KafkaError,
    ),
    Reader("errors of tasks", "spark.errors:cause_of", _task_error, _TASK_ERRORS),
    Reader(
        "options",
        "common.config:_parse_int client.options.config:_parse_address broker.config:EndPoint.parse "
        "broker.config:parse_counts producer.config:ProducerConfig.acks_code",
        _options,
        (b"h:9092,[::1]:9093", b"PLAINTEXT://h:1", b"SSL:5,x:7", b"100", b"0.5", b"all"),
        ConfigError,
        share=0.5,
        steps=100_000,
    ),
    Reader(
        "faults",
        "broker.faults.faults:_whole broker.faults.faults:_share",
        _fault,
        (b"produce:topic=orders,every=10,close=half", b"fetch:share=0.5,times=3"),
        ConfigError,
    ),
    Reader(
        "bytes on pages",
        "ui.shown:ByteView.__call__ ui.shown:_is_json ui.shown:_text",
        _shown,
        (b'{"a":1}', b"\0\0\0\0\1x", bytes(8)),
    ),
    Reader(
        "start of a search", "ui.cluster_view:RecordSearch.start", _search, (b"17", b"2026-01-31T12:00"), ValueError
    ),
    Reader(
        "moments",
        "common.clock:moment_ms",
        lambda data: moment_ms(text(data)),
        (b"17", b"2026-01-31T12:00Z"),
        ValueError,
    ),
    Reader(
        "headers of schemas",
        "registry.subjects:split_wire registry.subjects:split_position",
        _wire,
        (b"\0\0\0\0\1\4\2\2xyz", b"\0\0\0\0\1\0xyz"),
        SerializationError,
    ),
    Reader(
        "lines of records",
        "cli.values.json_records:json_object cli.values.json_records:bytes_from_json",
        _json_line,
        (b'{"key":"k","value":{"base64":"AAA="},"partition":1,"timestamp":5,"headers":[["a","b"]]}',),
        SerializationError,
    ),
    Reader(
        "JSON of records",
        "formats.schema_text:check_json",
        _json_text,
        (b'{"a":[1,2.5,null,"x"]}',),
        CorruptRecordError,
    ),
    Reader(
        "subjects of certificates",
        "network.transport.tls_transport:_elements network.transport.tls_transport:_shown",
        _subject,
        tuple(identities.certificates()),
        ValueError,
    ),
    Reader(
        "PLAIN",
        "network.sasl.mechanism:PlainServer.evaluate",
        lambda data: PlainServer({"a": "b"}).evaluate(data),
        (b"\0a\0b", b"a\0a\0b"),
        AuthenticationError,
    ),
    Reader(
        "SCRAM, client",
        "network.sasl.scram:ScramClient._prove network.sasl.scram:_decode",
        identities.scram_client,
        (identities.SCRAM_FIRST + b"|v=rmF9pqV8S7suAoZWja4dJRkFsKQ=", b"e=x|e=y"),
        AuthenticationError,
        share=0.2,
    ),
    Reader(
        "SCRAM, broker",
        "network.sasl.scram:_text network.sasl.scram:ScramServer.evaluate",
        identities.scram_server,
        (identities.CLIENT_FIRST + b"|c=biws,r=rOprNGfwEbeRWgbNEkqOsrv,p=dHzbZapWIk4=",),
        AuthenticationError,
    ),
    Reader(
        "SCRAM, credentials",
        "common.sasl_mechanisms:parse_credential",
        lambda data: parse_credential(text(data)),
        (identities.SCRAM_LINE,),
        ConfigError,
    ),
    Reader(
        "OAUTHBEARER, client",
        "network.sasl.bearer_token:OAuthBearerClient.respond",
        identities.oauth_client,
        (b'{"status":"invalid_token"}', b""),
        AuthenticationError,
    ),
    Reader(
        "OAUTHBEARER, broker",
        "network.sasl.bearer_token:OAuthBearerServer.evaluate",
        lambda data: OAuthBearerServer(SYSTEM_CLOCK).evaluate(data),
        (f"n,a=dora,\1auth=Bearer {identities.TOKEN[0]}\1k=v\1\1".encode(),),
        AuthenticationError,
    ),
    Reader(
        "tokens",
        "network.sasl.bearer_token:_part network.sasl.bearer_token:milliseconds",
        identities.token,
        (identities.TOKEN[0].encode(), b"opaque 1e9 \xc3\xa4 1790000000", *identities.odd_tokens()),
        AuthenticationError,
    ),
    Reader(
        "answers of token endpoints",
        "http.oauth.token_endpoint:_json http.oauth.token_endpoint:_seconds",
        identities.endpoint_answer,
        identities.ENDPOINT_ANSWERS,
        AuthenticationError,
        share=0.3,
    ),
    Reader(
        "addresses of token endpoints",
        "http.oauth.token_endpoint:TokenEndpoint",
        identities.endpoint_address,
        (b"https://a.b:81/c?d#e", b"file:///a", b"http://[::1]/x", b"http://[::1]/x@y"),
        ConfigError,
    ),
    Reader(
        "JAAS",
        "network.sasl.jaas:_unescaped network.sasl.jaas:parse_jaas",
        identities.jaas,
        identities.JAAS_LINES,
        ConfigError,
    ),
    Reader(
        "options of login modules",
        "client.login.channel_security:kerberos_login client.login.token_source:token_source",
        identities.login_options,
        identities.JAAS_LINES[1:],
        (ConfigError, AuthenticationError),
        share=0.1,
    ),
    Reader(
        "references to secrets",
        "common.references:resolve",
        lambda data: resolve("x", text(data), PROVIDERS),
        (b"a${env:NAME_}b${file:/nowhere:k}", b"${dir:/nowhere:f}"),
        ConfigError,
        share=0.5,
    ),
    Reader(
        "texts that repeat secrets",
        "common.repeated_secrets:_plain",
        lambda data: RepeatedSecrets(["s3cr3t pass", "p"]).hidden_in(text(data)),
        (b"refused: s3cr3t%20pass", b"a \\u0073\\x33cr3t pass &#115; &amp;"),
        share=0.5,
        steps=200_000,
    ),
    Reader(
        "PEM", "trust.pem:_algorithm trust.pem:_rebuilt_block", identities.pem, identities.PEMS, ConfigError, share=0.1
    ),
    Reader(
        "JKS",
        "trust.key_stores:read_jks trust.key_stores:unprotect trust.key_stores:_element",
        lambda data: identities.key_store(identities.jks(data)),
        (identities.jks_body(),),
        KeyStoreError,
        share=0.3,
    ),
    Reader(
        "PKCS12",
        "trust.key_stores:_elements trust.key_stores:_most_iterations",
        identities.key_store,
        tuple(identities.pkcs12_stores()),
        KeyStoreError,
        share=0.1,
        steps=200_000,
    ),
)
READERS: Final = {each.name: each for each in TABLE}


# --- The attack -------------------------------------------------------------------------------------------------------


class StandsStill(BaseException):
    """A reader takes more steps than allowed for its input. No code under test catches it."""


class _Steps:
    """Counts the executed lines of our source, and raises :class:`StandsStill` after too many."""

    def __init__(self, most: int) -> None:
        self._left = most

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *raised: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: object) -> Any:
        return self._line if "/kafka_sink/" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, _: object) -> Any:
        self._left -= 1
        if self._left < 0:
            raise StandsStill(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return self._line


#: Steps per byte: a byte may be an item of a collection, for which objects are created and checked.
_STEPS_PER_BYTE: Final = 300


def read_once(reader: Reader, data: bytes, *, counts: bool = True) -> bool:
    """Return whether *reader* accepts *data*.

    :raises AssertionError: if it does not end in time, or raises an error that is not its own.
    """
    most_s = _MOST_S + _MOST_S_PER_BYTE * len(data)
    began_s = time.thread_time()
    try:
        with _Steps(reader.steps + _STEPS_PER_BYTE * len(data)) if counts else nullcontext():
            reader.read(data)
        is_taken = True
    except reader.error:
        is_taken = False
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise AssertionError(f"{reader.name}: {data!r:.2000}: {error!r}") from error
    took_s = time.thread_time() - began_s
    assert took_s < most_s, f"{reader.name}: {data!r:.2000}: {took_s:.1f} s of CPU for {len(data)} bytes"
    return is_taken


def attack_of(reader: Reader) -> Callable[[random.Random], None]:
    """Return an attack of ``fuzz.py`` that runs one random case."""

    def attack(rng: random.Random) -> None:
        is_long = rng.random() < 0.02
        read_once(reader, (stretched if is_long else changed)(rng, rng.choice(reader.seeds)), counts=not is_long)

    return attack


#: Bytes with a special meaning for parsers, and numbers that no reader expects.
_TELLING: Final = (
    *(bytes([each]) for each in b'\0\1\x7f\x80\xff"\\=,;.:|{}[]${}%\n\r -0129eEnul+/'),
    *(
        b"\xff\xfa",
        b"\x7f\xff\xff\xff",
        b"\x80\0\0\0",
        b"\xff" * 4,
        b"\xff" * 9 + b"\1",
        b"\x80" * 6,
        b"\xfe\xff\xff\xff\x0f",
    ),
    *(
        b"9" * 300,
        b"9" * 5_000,
        b"-1",
        b"1e999",
        b"null",
        b"NaN",
        b"Infinity",
        b"1_0",
        b"\xd9\xa3",
        b"\\ud800",
        b"true",
    ),
    *(b"[" * 5_000, b'{"a":' * 3_000, b"\x30\x80" * 300, b"\x24\x80" * 300),
)


def changed(rng: random.Random, whole: bytes) -> bytes:
    """Return *whole* with a few changes, or truncated, or noise."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.choice((0, 1, 2, 9, 60)))
    data = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randint(0, len(data))
        end = min(len(data), at + rng.choice((1, 2, 4, 8, 60)))
        match rng.randrange(7):
            case 0:
                del data[at:end]
            case 1:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 2:
                telling = rng.choice(_TELLING)
                data[at : at + len(telling)] = telling
            case 3:
                data[at:at] = rng.choice(_TELLING)
            case 4:
                data[at:at] = data[at:end] * rng.randint(1, 30)
            case 5 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case _:
                del data[at:]
    return bytes(data)


def stretched(rng: random.Random, whole: bytes) -> bytes:
    """Return *whole* with a part of it repeated up to 100 kB, for which quadratic readers take too long."""
    at = rng.randint(0, len(whole))
    part = whole[at : at + rng.choice((1, 2, 3, 8, 60))] or b"\0"
    return whole[:at] + part * (100_000 // len(part)) + whole[at:]
