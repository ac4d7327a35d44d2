"""The data of a cluster for the pages, read with the project's own clients; the rates of its partitions, computed from
successive end offsets; and its metrics for Prometheus, under the names of kafka_exporter if it has the same metric.

The threads of the web server call it. All callers within a second, or during a request, share its answer, and no lock
is held during the request. A group or a topic that cannot be read is shown with its problem, with the others. It only
sends requests that read.

Source: https://github.com/danielqsj/kafka_exporter#metrics.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kafka_sink.client.blocking.admin import AdminClient, AdminConfig
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common import config as common_config
from kafka_sink.common.bounded import known_number
from kafka_sink.common.clock import FOREVER_MS, SYSTEM_CLOCK, Clock, moment_ms, within
from kafka_sink.common.errors import ApiError, KafkaError, UnknownTopicOrPartitionError, UnsupportedVersionError
from kafka_sink.common.metrics import Metric, families
from kafka_sink.common.model import TopicPartition
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.consumer.log_reader import PeekLimits, newest_records, records_from
from kafka_sink.consumer.topic_reading import FromTime, Start
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import ProgressError
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.transactions import Transaction, TransactionDescription, sink_of_id
from kafka_sink.ui.documents import group_documents, topic_documents

#: The window of rates; in a shorter one they would fluctuate between the batches of a producer.
_WINDOW_MS: Final = 10_000
T = TypeVar("T")
#: The most groups that the page describes, and the most open transactions: each of them takes a request.
MOST_GROUPS: Final = 200
MOST_TRANSACTIONS: Final = 1_000
_UNENDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
#: The records on a page, and the newest records that are searched for a key or a value.
SHOWN_RECORDS: Final = 50
SEARCHED_RECORDS: Final = 5_000
_SHARED_MS: Final = 1_000
_READ_LIMITS: Final = PeekLimits(max_bytes=16 * 1024 * 1024, timeout_ms=5_000)


class Rates:
    """Records per second over the last ten seconds."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, deque[tuple[int, int]]] = {}

    def note(self, now_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        """Record the end offsets *ends* of partitions at *now_ms*."""
        for partition, end in ends.items():
            seen = self._seen.setdefault(partition, deque())
            if seen and end < seen[-1][1]:
                # The topic was deleted and created again.
                seen.clear()
            seen.append((now_ms, end))
            while len(seen) > 2 and seen[1][0] <= now_ms - _WINDOW_MS:
                seen.popleft()

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the offsets of all other partitions."""
        self._seen = {partition: self._seen[partition] for partition in partitions if partition in self._seen}

    def per_s(self, partitions: Iterable[TopicPartition]) -> float | None:
        """Records per second of all *partitions* together; None before each has two end offsets."""
        total = 0.0
        for partition in partitions:
            seen = self._seen.get(partition, deque())
            if len(seen) < 2 or seen[-1][0] == seen[0][0]:
                return None
            total += (seen[-1][1] - seen[0][1]) * 1000 / (seen[-1][0] - seen[0][0])
        return total


@dataclass(frozen=True, slots=True)
class TransactionView:
    """An open transaction. *sink* is the name of the sink to which it belongs, if any; *is_decided* if the sink has
    decided to commit it; *age_s* is None if the coordinator does not know its begin."""

    transactional_id: str
    state: str
    sink: str | None
    is_decided: bool
    age_s: int | None
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordSearch:
    """The records whose key contains *key* and whose value contains *value*, as UTF-8; *since* is the offset or the
    time (ISO 8601) at which the search begins, or empty."""

    key: str = ""
    value: str = ""
    since: str = ""

    def matches(self, record: ConsumedRecord) -> bool:
        return self.key.encode() in (record.key or b"") and self.value.encode() in (record.value or b"")

    def start(self) -> Start | None:
        """:raises ValueError: if *since* is neither an offset nor a time."""
        if not self.since:
            return None
        if (offset := known_number(self.since)) is not None:
            return offset
        try:
            return FromTime(moment_ms(self.since))
        except ValueError:
            raise ValueError(f"{self.since!r}: expected an offset, or a time such as 2026-01-31T12:00 (UTC)") from None


class ClusterView:
    """The cluster at *bootstrap_servers*; see :meth:`close`.

    :param properties: client properties under Kafka's names.
    :raises ConfigError: if a property is unknown or invalid.
    """

    def __init__(
        self, bootstrap_servers: str, properties: Mapping[str, Any], timeout_ms: int, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._properties = {**properties, "bootstrap.servers": bootstrap_servers}
        admin_options = {**common_config.known_to(AdminConfig, properties), "default.api.timeout.ms": timeout_ms}
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._topics = AdminClient(bootstrap_servers, admin_options, clock=clock)
        self._groups = GroupAdmin(bootstrap_servers, admin_options, clock=clock)
        self._transactions = CoordinatorClient(self._properties, timeout_ms=timeout_ms, clock=clock)
        self._rates = Rates()
        self._lock = threading.Lock()
        # Request → its answer, and the time of the answer.
        self._shared: dict[object, tuple[Future[Any], int]] = {}

    def close(self) -> None:
        """Close all connections, after the requests in progress."""
        self._topics.close()
        self._groups.close()
        self._transactions.close()

    def topics(self) -> list[dict[str, Any]]:
        """All topics except Kafka's internal ones, by name: ``topic_documents`` with the rates of topics and partitions
        and the number of ``offsets`` of a topic, including those of transaction markers.

        :raises ApiError: if no broker answered.
        """
        return self._share("topics", lambda: self._views(self._topics.list_topics(), are_all=True))

    def topic(self, name: str) -> dict[str, Any]:
        """As :meth:`topics`, for one topic. :raises UnknownTopicOrPartitionError: if it does not exist."""
        return self._share(("topic", name), lambda: self._views([name], are_all=False)[0])

    def records(self, topic: str, search: RecordSearch) -> list[ConsumedRecord]:
        """The newest records that match *search*, newest first; with a start the first ones from there, oldest first.

        :raises ValueError: if the start is neither an offset nor a time.
        """
        start = search.start()

        def read() -> list[ConsumedRecord]:
            if start is not None:
                return records_from(
                    self._properties, topic, start, SHOWN_RECORDS, _READ_LIMITS, search.matches, self._clock
                )
            count = SEARCHED_RECORDS if search.key or search.value else SHOWN_RECORDS
            records = newest_records(self._properties, topic, count, _READ_LIMITS, self._clock)
            return [record for record in reversed(records) if search.matches(record)][:SHOWN_RECORDS]

        return self._share(("records", topic, search), read)

    def groups(self) -> tuple[int, list[dict[str, Any]]]:
        """The number of groups, and the documents of the first ones (``group_documents``)."""

        def read() -> tuple[int, list[dict[str, Any]]]:
            names = sorted(self._groups.list_groups())
            return len(names), group_documents(self._groups, self._topics, names[:MOST_GROUPS])

        return self._share("groups", read)

    def group(self, name: str) -> dict[str, Any]:
        """The document of one group (``group_documents``).

        :raises ApiError: if it cannot be read, for example because it does not exist.
        """
        document = self._share(("group", name), lambda: group_documents(self._groups, self._topics, [name])[0])
        if document["problem"]:
            raise ApiError(document["problem"])
        return document

    def transactions(self) -> tuple[int, list[TransactionView]]:
        """The number of transactional ids, and the transactions that are open or being ended, the oldest first."""

        def read() -> tuple[int, list[TransactionView]]:
            client = self._transactions
            count, names = len(client.run(client.list_ids())), sorted(client.run(client.list_ids(_UNENDED)))
            described = client.run(client.describe(names[:MOST_TRANSACTIONS]))
            running = [transaction for transaction in described.values() if not transaction.is_over]
            decided = self._decided(running)
            views = [self._transaction(transaction, decided) for transaction in running]
            return count, sorted(views, key=lambda view: (-(view.age_s or 0), view.transactional_id))

        return self._share("transactions", read)

    def _share(self, key: object, read: Callable[[], T]) -> T:
        """The result of *read*, of a call of it by another thread now, or of a call within the last second."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            self._shared = {name: kept for name, kept in self._shared.items() if kept[1] > now_ms - _SHARED_MS}
            is_asked = key in self._shared
            answer: Future[T] = self._shared.setdefault(key, (Future(), FOREVER_MS))[0]
        if not is_asked:
            try:
                with within(self._timeout_ms, self._clock):
                    answer.set_result(read())
            except BaseException as error:
                answer.set_exception(error)
            with self._lock:
                self._shared[key] = answer, self._clock.monotonic_ms()
        return answer.result()

    def _views(self, names: list[str], *, are_all: bool) -> list[dict[str, Any]]:
        try:
            documents = topic_documents(self._topics, names)
        except UnknownTopicOrPartitionError:
            # One of all topics was deleted after they were listed; a single requested topic does not exist.
            present = set(self._topics.list_topics(include_internal=True))
            if len(names) == 1:
                raise
            documents = topic_documents(self._topics, [name for name in names if name in present])
        with self._lock:
            ends = {
                TopicPartition(document["topic"], entry["partition"]): entry["end_offset"]
                for document in documents
                for entry in document["partitions"]
                if entry["end_offset"] is not None
            }
            self._rates.note(self._clock.monotonic_ms(), ends)
            if are_all:
                self._rates.keep(ends)
            for document in documents:
                self._add_rates(document)
        return documents

    def _add_rates(self, document: dict[str, Any]) -> None:
        led, offsets = [], 0
        for entry in document["partitions"]:
            partition = TopicPartition(document["topic"], entry["partition"])
            entry["rate"] = self._rates.per_s([partition])
            if entry["leader"] is not None:
                led.append(partition)
            if entry["end_offset"] is not None:
                offsets += entry["end_offset"] - entry["first_offset"]
        document["rate"], document["offsets"] = self._rates.per_s(led), offsets
        document["without_leader"] = len(document["partitions"]) - len(led)

    def _decided(self, running: list[TransactionDescription]) -> set[Transaction]:
        """The transactions that the sinks of *running* have decided to commit."""
        client = self._transactions
        decided: set[Transaction] = set()
        sinks = {sink_of_id(described.transaction.transactional_id) for described in running}
        for name, topic in filter(None, sinks):
            # Another application may use a group with this name.
            with suppress(ProgressError, ApiError):
                progress = client.run(ProgressStore(client, name, topic).read(require_stable=False))
                decided.update(() if progress is None else progress.transactions)
        return decided

    def _transaction(self, described: TransactionDescription, decided: set[Transaction]) -> TransactionView:
        name = described.transaction.transactional_id
        sink, age_ms = sink_of_id(name), max(self._clock.wall_ms() - described.started_ms, 0)
        return TransactionView(
            name,
            described.state,
            None if sink is None else sink[0],
            described.transaction in decided,
            None if described.started_ms < 0 else age_ms // 1000,
            tuple(map(str, sorted(described.partitions))),
        )


FAMILIES: Final = {
    name: family
    for group, meanings in {
        "cluster": {
            "up": "1 if the cluster answers, 0 if not: all other metrics of the cluster are then missing. Try "
            "kafkalite topics list with the same options from the same machine.",
        },
        "topic": {
            "partition-under-replicated-partition": "1 if a replica of the partition is not in sync. Look for the "
            "broker that is down or slow: kafkalite topics describe.",
            "partition-oldest-offset": "First offset that the partition still has. It moves when retention or "
            "compaction deletes.",
            "partition-current-offset": "Offset of the next record of the partition, transaction markers included. "
            "Its rate is that of all writers.",
        },
        "consumergroup": {
            "members": "Members of the group. 0 is normal for the group of an exactly-once sink, which is no consumer.",
            "lag": "Records of the partition that the group has not committed. If it grows, its consumers are slower "
            "than the writers, or stopped; consumers with isolation.level=read_committed may also wait for an open "
            "transaction.",
        },
        "sink": {
            "progress-batch": "Last batch that an exactly-once sink has committed.",
            "progress-age-seconds": "Time since that commit. If it is far above the trigger's interval, the query is "
            "stalled or its source is empty.",
        },
        "transactions": {
            "open": "Transactions that are open in the cluster, of any application. It goes up and down with each "
            "batch.",
            "oldest-age-seconds": "Age of the oldest open transaction; 0 if there is none. Consumers with "
            "isolation.level=read_committed wait for it: beyond transaction.timeout.ms it hangs, see kafkalite txn "
            "hanging.",
        },
    }.items()
    for name, family in families(group, meanings).items()
}


def cluster_metrics(cluster: ClusterView) -> Iterator[Metric]:
    """Offsets of partitions, lags of groups, batches of sinks, and open transactions; only ``up`` with the value 0 if
    the cluster does not answer."""
    try:
        metrics = [*_of_topics(cluster), *_of_groups(cluster), *_of_transactions(cluster)]
    except (KafkaError, OSError):
        yield FAMILIES["up"].at(0)
        return
    yield FAMILIES["up"].at(1)
    yield from metrics


def _of_transactions(cluster: ClusterView) -> Iterator[Metric]:
    # A service may support no transactions.
    with suppress(UnsupportedVersionError):
        _, transactions = cluster.transactions()
        yield FAMILIES["open"].at(len(transactions))
        yield FAMILIES["oldest-age-seconds"].at(max((each.age_s or 0 for each in transactions), default=0))


def _of_topics(cluster: ClusterView) -> Iterator[Metric]:
    for topic in cluster.topics():
        for entry in topic["partitions"]:
            tags = (("topic", topic["topic"]), ("partition", str(entry["partition"])))
            yield FAMILIES["partition-under-replicated-partition"].at(len(entry["isr"]) < len(entry["replicas"]), *tags)
            if entry["end_offset"] is not None:
                yield FAMILIES["partition-oldest-offset"].at(entry["first_offset"], *tags)
                yield FAMILIES["partition-current-offset"].at(entry["end_offset"], *tags)


def _of_groups(cluster: ClusterView) -> Iterator[Metric]:
    for group in cluster.groups()[1]:
        name = ("consumergroup", group["group"])
        if group["problem"]:
            continue
        yield FAMILIES["members"].at(group["members"], name)
        for entry in group["partitions"]:
            if entry["lag"] is not None:
                yield FAMILIES["lag"].at(
                    entry["lag"], name, ("topic", entry["topic"]), ("partition", str(entry["partition"]))
                )
        for sink in group["sinks"]:
            of_sink = (("sink", group["group"]), ("topic", sink["topic"]))
            yield FAMILIES["progress-batch"].at(sink["last_batch"], *of_sink)
            yield FAMILIES["progress-age-seconds"].at(sink["age_s"], *of_sink)
