"""Fetch sessions (KIP-227): what they answer beside fetches without one, and who makes room for whom."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from kafka_sink.broker import fetch_sessions
from kafka_sink.broker.fetch_sessions import FetchSessions
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kafka_sink.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.fakes.broker_node import BrokerNode
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import make_batch
from tests.support.cases import with_each

VERSION = 17
PARTITIONS = 4
NOBODY = UUID(int=7)


@dataclass
class Reader:
    """A client with a session of topic ``t`` on *node*, which remembers what it was told of each partition."""

    node: BrokerNode
    session_id: int = 0
    epoch: int = 0
    offsets: dict[int, int] = field(default_factory=dict)
    #: Partition → error, end and start, as last told.
    told: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def fetch(self, changed: dict[int, int], forgotten: list[int]) -> list[PartitionData]:
        self.offsets.update(changed)
        for index in forgotten:
            del self.offsets[index], self.told[index]
        parts = ask(self, changed, forgotten, self.session_id, self.epoch)
        self.epoch += 1
        self.told.update({part.partition_index: state(part) for part in parts})
        return parts


def state(part: PartitionData) -> tuple[int, int, int]:
    return part.error_code, part.high_watermark, part.log_start_offset


def ask(
    reader: Reader, offsets: dict[int, int], forgotten: list[int], session_id: int, epoch: int
) -> list[PartitionData]:
    topic = reader.node.cluster.topic("t")
    assert topic is not None
    wanted = [FetchPartition(index, -1, offset, partition_max_bytes=1 << 20) for index, offset in offsets.items()]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic("", topic.topic_id, wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic("", topic.topic_id, forgotten)] if forgotten else [],
    )
    answer = reader.node.call(ApiKey.FETCH, VERSION, request)
    assert isinstance(answer, FetchResponse) and answer.error_code == ErrorCode.NONE
    if epoch >= 0:
        reader.session_id = answer.session_id
    return [part for each in answer.responses for part in each.partitions]


def append(node: BrokerNode, index: int) -> None:
    topic = node.cluster.topic("t")
    assert topic is not None
    data = TopicProduceData("", topic.topic_id, [PartitionProduceData(index, make_batch((b"v",)))])
    node.call(ApiKey.PRODUCE, 13, ProduceRequest(None, 1, 1000, [data]))


@pytest.mark.behaviour(
    "Fetch sessions", "A session tells a client what fetches without one tell, and no partition without news"
)
@with_each("seed", range(10))
def test_a_session_tells_what_full_fetches_tell(seed: int) -> None:
    chosen = random.Random(seed)
    node = BrokerNode()
    node.cluster.create_topic("t", PARTITIONS)
    reader = Reader(node)
    # The last one does not exist.
    reader.fetch(dict.fromkeys(range(PARTITIONS + 1), 0), [])
    assert reader.session_id
    for _ in range(40):
        for index in chosen.sample(range(PARTITIONS), chosen.randrange(2)):
            append(node, index)
        ends = {index: max(end, 0) for index, (_, end, _) in reader.told.items()}
        moved = {index: ends.get(index, 0) for index in range(PARTITIONS + 1) if chosen.random() < 0.3}
        rest = [index for index in reader.offsets if index not in moved]
        forgotten = chosen.sample(rest, 1) if len(rest) > 1 and chosen.random() < 0.3 else []
        before = {**reader.told}
        news = reader.fetch(moved, forgotten)
        whole = {part.partition_index: part for part in ask(reader, reader.offsets, [], 0, -1)}
        assert reader.told == {index: state(part) for index, part in whole.items()}
        for part in news:
            assert part.records == whole[part.partition_index].records
        unsaid = whole.keys() - {part.partition_index for part in news}
        assert all(not whole[index].records and before[index][0] == ErrorCode.NONE for index in unsaid)
        assert len(news) == len({part.partition_index for part in news})


@pytest.mark.behaviour("Fetch sessions", "Each partition has its turn: those that gave records are read last")
def test_partitions_with_records_are_read_last() -> None:
    node = BrokerNode()
    node.cluster.create_topic("t", 3)
    reader = Reader(node)
    reader.fetch(dict.fromkeys(range(3), 0), [])
    append(node, 0)
    assert [part.partition_index for part in reader.fetch({}, [])] == [0]
    append(node, 1)
    append(node, 2)
    assert [part.partition_index for part in reader.fetch({}, [])] == [1, 2, 0]


class Cache:
    """Sessions on a fake clock, without a broker."""

    def __init__(self, slots: int) -> None:
        self.clock = FakeClock()
        self.sessions = FetchSessions(slots, self.clock)
        self.epochs: dict[int, int] = {}

    def start(self, size: int) -> int:
        topics = [FetchTopic("t", NOBODY, [FetchPartition(index) for index in range(size)])]
        session_id, _ = self.sessions.begin(FetchRequest(session_epoch=0, topics=topics), by_id=False).answer(
            [FetchableTopicResponse("t", NOBODY, [PartitionData(index, 0, 0, records=b"") for index in range(size)])]
        )
        self.epochs[session_id] = 1
        return session_id

    def use(self, session_id: int, *, by_id: bool = False, more: int = 0) -> None:
        topics = [FetchTopic("u", NOBODY, [FetchPartition(index) for index in range(more)])]
        request = FetchRequest(session_id=session_id, session_epoch=self.epochs[session_id], topics=topics)
        self.sessions.begin(request, by_id=by_id)
        self.epochs[session_id] += 1

    def has(self, session_id: int) -> bool:
        try:
            self.use(session_id)
        except ApiError as error:
            assert error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            return False
        return True


@pytest.mark.behaviour("Fetch sessions", "One that is unused for two minutes, or old and small, makes room")
def test_who_makes_room_for_whom() -> None:
    cache = Cache(slots=2)
    small, large = cache.start(2), cache.start(5)
    assert small and large and cache.start(100) == 0
    cache.clock.advance(120_001)
    cache.use(small)
    # The other one is stale.
    medium = cache.start(3)
    assert medium and not cache.has(large) and cache.has(small)
    assert cache.start(1) == 0
    # The small one is old, so one that is as large takes its place; the other one is new.
    other = cache.start(2)
    assert other and not cache.has(small) and cache.has(medium)
    assert Cache(slots=0).start(1) == 0


@pytest.mark.behaviour("Fetch sessions", "They take a bounded number of partitions; a client beyond it begins again")
def test_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 10)
    cache = Cache(slots=9)
    first = cache.start(6)
    assert first and cache.start(5) == 0
    second = cache.start(4)
    with pytest.raises(ApiError, match="too many partitions") as error:
        cache.use(second, more=1)
    assert error.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not cache.has(second) and cache.has(first)


def test_names_and_ids_do_not_mix_and_a_late_answer_is_none() -> None:
    cache = Cache(slots=1)
    session_id = cache.start(1)
    with pytest.raises(ApiError, match="has topics by name"):
        cache.use(session_id, by_id=True)
    request = FetchRequest(session_id=session_id, session_epoch=1)
    late = cache.sessions.begin(request, by_id=False)
    cache.epochs[session_id] = 2
    cache.use(session_id)
    with pytest.raises(ApiError) as error:
        late.answer([])
    assert error.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
