"""The same bytes to any broker: scripted requests, encoded and decoded by kafka-python, responses as trees to compare.

No code of ours encodes or decodes messages: kafka-python does, by the message schemas of Apache Kafka. The frames that
two brokers get are the same, byte for byte, except for topic ids, which each cluster generates: placeholders represent
them.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.api_key import ApiKey as ForeignApiKey
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas import load_json

from kafka_sink.broker.cluster.topic_state import InertTopicConfig, TopicConfig
from kafka_sink.common.config import keys
from tests.golden.make_protocol_golden import encode_with_kafka_python, kafka_python_class
from tests.support.wire import Wire

Json = dict[str, Any]
#: API key → versions.
Table = Mapping[int, Sequence[int]]

#: The coordinator's topic is being created or loaded: clients retry.
_NOT_YET: Final = frozenset({14, 15, 16})
_PATIENCE_S: Final = 60.0
#: APIs of brokers, which learn of a change only after the controller has responded to it.
_HEARD_LATER: Final = frozenset({"DescribeClientQuotas", "DescribeUserScramCredentials"})
_HEARD_S: Final = 5.0
_SILENCE_S: Final = 4.0
_NO_ID: Final = uuid.UUID(int=0)
_CORRELATION_ID: Final = 7
#: Times, and texts for people.
_LEFT_OUT: Final = frozenset({"throttle_time_ms", "error_message", "batch_index_error_message"})
#: The names of the items in lists of responses.
_NAMES: Final = {
    "topics": "name",
    "groups": "group_id",
    "transaction_states": "transactional_id",
    "config_resources": "resource_name",
}
#: Different on every machine.
_OF_DISKS: Final = frozenset({"log_dir", "partition_size", "total_bytes", "usable_bytes"})
#: Brokers replace an empty member id by the client id and a UUID.
_MEMBER_ID_CHARACTERS: Final = 36
#: Producer ids above this one are those of scenarios.
_PLAYED_PRODUCER_ID: Final = 100_000
#: The prefix of all names that scenarios create.
_OURS: Final = "diff"
_SETTINGS: Final = frozenset(
    {*keys(TopicConfig), *keys(InertTopicConfig), "num.partitions", "log.segment.bytes"}
    - {"max.decompressed.message.bytes"}
)


@dataclass(frozen=True)
class Ask:
    """A request, sent in every version that both brokers support and that is in *versions*.

    *values* are the request's fields by snake-case name, of all versions: each version uses those that it has. ``{v}``
    in a string is replaced by the API and version, so that each version has topics and groups of its own. Other fields
    have the schema's default.
    """

    api: str
    label: str
    values: Json
    versions: range = range(100)
    #: Retriable error codes are final responses here.
    final: bool = False
    #: The response lists all items of the cluster.
    everything: bool = False

    @property
    def key(self) -> int:
        return int(load_json(f"{self.api}Request")["apiKey"])


def topic_id(name: str) -> uuid.UUID:
    """Return the placeholder in requests for the id of the topic *name*."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def filled(value: Any, mark: str) -> Any:
    """Return *value* with every ``{v}`` replaced, and Python values in the form that the golden encoder accepts."""
    if isinstance(value, dict):
        return {name: filled(item, mark) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, mark) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, uuid.UUID):
        return str(value)
    return value.replace("{v}", mark) if isinstance(value, str) else value


#: The fields of an ACL in CreateAcls.
_ACL: Final = (
    "resource_type",
    "resource_name",
    "resource_pattern_type",
    "principal",
    "host",
    "operation",
    "permission_type",
)


class Broker:
    """One side of the comparison, which collects responses by request."""

    def __init__(self, bootstrap_servers: str, sasl_address: str = "") -> None:
        """*sasl_address*: a listener for :meth:`log_in`."""
        self._bootstrap_servers = bootstrap_servers
        self._sasl_address = sasl_address
        self._user = ""
        self._ports = {address.rpartition(":")[2] for address in (bootstrap_servers, sasl_address)}
        self._names: dict[str, str] = {}
        self._ids: dict[str, uuid.UUID] = {}
        self._producer_ids: dict[int, str] = {}
        self._wire = self._connected()
        self.answers: dict[str, Any] = {}
        self.versions = self._table()
        # Uses up producer id 0, which responses without a producer have, too.
        asked = {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1}
        while self._exchange("InitProducerId", 4, encode_with_kafka_python("InitProducerIdRequest", 4, asked))[
            "error_code"
        ]:
            time.sleep(0.05)

    def close(self) -> None:
        self._wire.close()

    def log_in(self, user: str) -> None:
        """Send all further requests as *user*, with PLAIN and the name as password; unauthenticated if it is empty."""
        self._wire.close()
        self._user = user
        self._wire = self._connected()

    def _connected(self) -> Wire:
        if not self._user:
            return Wire(self._bootstrap_servers, patience_s=_SILENCE_S)
        self._wire = Wire(self._sasl_address, patience_s=_SILENCE_S)
        token = f"\0{self._user}\0{self._user}".encode()
        for api, version, values in (
            ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
            ("SaslAuthenticate", 2, {"auth_bytes": token.hex()}),
        ):
            answer = self._exchange(api, version, encode_with_kafka_python(f"{api}Request", version, values))
            assert answer["error_code"] == 0, answer
        return self._wire

    def _table(self) -> dict[int, range]:
        answer = self._exchange("ApiVersions", 0, b"")
        return {entry["api_key"]: range(entry["min_version"], entry["max_version"] + 1) for entry in answer["api_keys"]}

    def create_topics(self, topics: Mapping[str, Json]) -> None:
        """Create *topics* (name → values of CreateTopics) and wait until the broker knows leaders and ids."""
        asked = [{"name": name, "replication_factor": 1, **values} for name, values in topics.items()]
        body = encode_with_kafka_python("CreateTopicsRequest", 5, filled({"topics": asked, "timeout_ms": 9000}, ""))
        created = self._exchange("CreateTopics", 5, body)
        assert [topic["error_code"] for topic in created["topics"]] == [0] * len(topics), created
        deadline = time.monotonic() + _PATIENCE_S
        body = encode_with_kafka_python("MetadataRequest", 12, {"topics": [{"name": name} for name in topics]})
        while time.monotonic() < deadline:
            described = self._exchange("Metadata", 12, body)["topics"]
            if all(topic["error_code"] == 0 for topic in described):
                self._ids = {topic["name"]: uuid.UUID(str(topic["topic_id"])) for topic in described}
                self._names = {str(number): f"id of {name}" for name, number in self._ids.items()}
                break
            time.sleep(0.05)
        # Kafka's metadata has a leader before that broker knows that it leads.
        wanted = [
            {
                "name": name,
                "partitions": [{"partition_index": n, "timestamp": -1} for n in range(values["num_partitions"])],
            }
            for name, values in topics.items()
        ]
        body = encode_with_kafka_python("ListOffsetsRequest", 1, {"replica_id": -1, "topics": wanted})
        while time.monotonic() < deadline:
            if _codes(self._exchange("ListOffsets", 1, body)) == {0}:
                return
            time.sleep(0.05)
        raise AssertionError(f"the topics have no leaders after {_PATIENCE_S} s")

    def await_acls(self, creations: Sequence[Json]) -> None:
        """Wait until the broker knows *creations*: Kafka's controller responds before its brokers apply them."""
        codes = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
        everything = dict.fromkeys(codes, 1) | dict.fromkeys(
            ("resource_name_filter", "principal_filter", "host_filter")
        )
        body = encode_with_kafka_python("DescribeAclsRequest", 3, everything)
        wanted = {tuple(str(each[field]) for field in _ACL) for each in creations}
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            known = {
                tuple(
                    str({**each, **resource, "resource_pattern_type": resource["pattern_type"]}[field])
                    for field in _ACL
                )
                for resource in self._exchange("DescribeAcls", 3, body)["resources"]
                for each in resource["acls"]
            }
            if wanted <= known:
                return
            time.sleep(0.05)
        raise AssertionError(f"ACLs are unknown after {_PATIENCE_S} s: {wanted - known}")

    def play(self, scenario: str, asks: Sequence[Ask], versions: Table, other: Broker | None = None) -> int:
        """Send all of *asks* in the versions of *versions*; return the number of requests.

        *other* has got the same requests: if the brokers of a real Kafka learn of a change later, the request is
        repeated until the responses are equal or some time has passed.
        """
        number = 0
        for ask in asks:
            for version in versions.get(ask.key, range(0)):
                if version in ask.versions:
                    mark = f"{ask.api.lower()}-{version}"
                    body = encode_with_kafka_python(f"{ask.api}Request", version, filled(ask.values, mark))
                    name = f"{scenario}: {ask.api} v{version}: {ask.label}"
                    self.note(name, ask, version, body, None if other is None else other.answers.get(name))
                    number += 1
        return number

    def note(self, name: str, ask: Ask, version: int, body: bytes, expected: Any = None) -> None:
        """Send *body*, and record the response under *name*."""
        for wanted, given in self._ids.items():
            body = body.replace(topic_id(wanted).bytes, given.bytes)
        deadline = time.monotonic() + _PATIENCE_S
        answer = self._exchange(ask.api, version, body)
        while not ask.final and _codes(answer) & _NOT_YET and time.monotonic() < deadline:
            time.sleep(0.05)
            answer = self._exchange(ask.api, version, body)
        deadline = time.monotonic() + _HEARD_S
        while ask.api in _HEARD_LATER and expected is not None and time.monotonic() < deadline:
            if isinstance(answer, str) or self._noted(ask, answer) == expected:
                break
            time.sleep(0.05)
            answer = self._exchange(ask.api, version, body)
        assert name not in self.answers, name
        self.answers[name] = self._noted(ask, answer)

    def _noted(self, ask: Ask, answer: Any) -> Any:
        return self._plain(_ours(answer) if ask.everything else answer, "")

    def _exchange(self, api: str, version: int, body: bytes) -> Any:
        schema = load_json(f"{api}Request")
        flexible = schema["flexibleVersions"].rstrip("+")
        tags = b"\0" * (flexible != "none" and version >= int(flexible))
        header = struct.pack(">hhih", schema["apiKey"], version, _CORRELATION_ID, 4) + b"diff"
        try:
            self._wire.send_frame(header + tags + body)
            frame = self._wire.receive_frame()
        except TimeoutError:
            return self._lost("no answer")
        except ConnectionError:
            return self._lost("the connection is closed")
        assert frame[:4] == struct.pack(">i", _CORRELATION_ID)
        # The response to ApiVersions has the oldest header in every version (KIP-511).
        begin = 4 + (len(tags) if api != "ApiVersions" else 0)
        kind: Any = kafka_python_class(f"{api}Response")
        # Not kind.decode, which decodes every error response to ApiVersions as version 0.
        return ApiMessage.decode.__func__(kind, frame[begin:], version=version).to_dict(json=False)

    def _lost(self, what: str) -> str:
        self._wire.close()
        self._wire = self._connected()
        return what

    def _plain(self, value: Any, name: str) -> Any:
        """Return *value* without the values that differ between any two clusters, and with sorted lists."""
        if isinstance(value, dict):
            return {key: self._plain(item, key) for key, item in value.items() if key not in _LEFT_OUT}
        if isinstance(value, (list, tuple, set, frozenset)):
            return sorted((self._plain(item, name) for item in value if _is_compared(name, item)), key=repr)
        if isinstance(value, uuid.UUID):
            return "no id" if value == _NO_ID else self._names.get(str(value), "an id")
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).hex()
        if name == "port" and str(value) in self._ports:
            return "its port"
        if name in _OF_DISKS and value not in (-1, ""):
            return f"its {name}"
        if name == "cluster_id" and value:
            return "its cluster"
        if (name == "member_id" and len(value) > _MEMBER_ID_CHARACTERS) or (name == "session_id" and value > 0):
            return f"a {name}"
        if name == "producer_id" and 0 <= value < _PLAYED_PRODUCER_ID:
            return self._producer_ids.setdefault(value, f"producer {len(self._producer_ids)}")
        return value


def _is_compared(name: str, item: Any) -> bool:
    """Whether *item* is compared: of settings, only those that both brokers have."""
    return name != "configs" or item["name"] in _SETTINGS


def _ours(answer: Any) -> Any:
    """Return the items of a complete list that scenarios have created, without those that other tests have left."""
    if not isinstance(answer, dict):
        return answer
    kept = {}
    for name, value in answer.items():
        of = _NAMES.get(name)
        if name == "results":
            kept[name] = [_ours(item) for item in value]
        else:
            kept[name] = value if of is None else [item for item in value if (item[of] or _OURS).startswith(_OURS)]
    return kept


def _codes(answer: Any) -> set[int]:
    """Return all error codes in *answer*, at any depth."""
    if isinstance(answer, dict):
        own = {answer["error_code"]} if isinstance(answer.get("error_code"), int) else set()
        return own.union(*(_codes(item) for item in answer.values()))
    return set().union(*(_codes(item) for item in answer)) if isinstance(answer, list) else set()


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each difference of two trees: its path, and the value in each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            yield from differences(ours.get(key, "absent"), theirs.get(key, "absent"), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif ours != theirs:
        yield path, ours, theirs


def name_of(key: int) -> str:
    """Return Kafka's name of an API."""
    return str(ForeignApiKey(key).name)
