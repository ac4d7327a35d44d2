"""Requests to coordinators as values: their fields, the meaning of each response, and the next step of each caller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.client.blocking.blocking import Pause, Round
from kafka_sink.client.blocking.coordinator_requests import CoordinatorRequests, caller_reaction
from kafka_sink.client.requests.outcomes import Attempts, Done, FindCoordinator, Reaction, Refused
from kafka_sink.client.requests.transactional_requests import (
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TxnOffsetCommit,
)
from kafka_sink.common.errors import DisconnectError, ErrorCode, ProtocolError, UnsupportedVersionError
from kafka_sink.common.model import (
    ConsumerGroupMetadata,
    Node,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionVersion,
)
from kafka_sink.producer.transactions.request_queue import reaction_to
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.group_offsets import (
    PartitionOutcome,
    TopicOutcome,
    TxnOffsetCommitResponse,
)
from kafka_sink.protocol.messages.metadata import GROUP, TRANSACTION, Coordinator, FindCoordinatorResponse
from kafka_sink.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    InitProducerIdResponse,
)
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each

E = ErrorCode
V1, V2 = TransactionVersion
PRODUCER = ProducerIdAndEpoch(9, 3)
PLACES = [TopicPartition("orders", number) for number in range(3)]
COMMIT = TxnOffsetCommit(
    "writer", PRODUCER, V2, ConsumerGroupMetadata("readers", 4, "me"), {place: OffsetAndMetadata(7) for place in PLACES}
)
#: The requests that a producer and a driver send.
APIS = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)


def committed(*codes: ErrorCode) -> TxnOffsetCommitResponse:
    """A response with *codes* for the first partitions."""
    parts = [PartitionOutcome(number, code) for number, code in enumerate(codes)]
    return TxnOffsetCommitResponse(topics=[TopicOutcome("orders", parts)])


def offsets_in(body: Any) -> list[int]:
    return [part.partition_index for topic in body.topics for part in topic.partitions]


def test_offsets_that_were_accepted_are_not_sent_again() -> None:
    attempts = Attempts(COMMIT, reaction_to)
    outcome = attempts.take(committed(E.NONE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NONE))
    assert isinstance(outcome, Refused)
    assert (outcome.reaction, outcome.code) == (Reaction.RETRY, E.COORDINATOR_LOAD_IN_PROGRESS)
    assert "orders-1: COORDINATOR_LOAD_IN_PROGRESS" in outcome.detail
    assert offsets_in(attempts.request.build(5)) == [1]


def test_offsets_that_the_answer_leaves_out_are_sent_again() -> None:
    attempts = Attempts(COMMIT, reaction_to)
    outcome = attempts.take(committed(E.NONE, E.NONE))
    assert isinstance(outcome, Refused)
    assert outcome.reaction is Reaction.RETRY
    assert offsets_in(attempts.request.build(5)) == [2]
    left: Any = PartitionOutcome(2, E.NONE)
    last = TxnOffsetCommitResponse(topics=[TopicOutcome("orders", [left])])
    assert attempts.take(last) == Done(None)


def test_most_severe_error_of_several_partitions_counts() -> None:
    outcome = Attempts(COMMIT, reaction_to).take(committed(E.NOT_COORDINATOR, E.ILLEGAL_GENERATION, E.NOT_COORDINATOR))
    assert isinstance(outcome, Refused)
    assert (outcome.reaction, outcome.code) == (Reaction.ABORT, E.ILLEGAL_GENERATION)
    outcome = Attempts(COMMIT, caller_reaction).take(committed(E.NOT_COORDINATOR, E.ILLEGAL_GENERATION, E.NONE))
    assert isinstance(outcome, Refused)
    assert (outcome.reaction, outcome.code) == (Reaction.FATAL, E.ILLEGAL_GENERATION)


def test_a_partition_that_was_not_attempted_hides_no_error() -> None:
    results = [
        AddPartitionsToTxnPartitionResult(0, E.OPERATION_NOT_ATTEMPTED),
        AddPartitionsToTxnPartitionResult(1, E.CONCURRENT_TRANSACTIONS),
    ]
    answer = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("orders", results)]
    )
    outcome = Attempts(AddPartitionsToTxn("writer", PRODUCER, frozenset(PLACES[:2])), reaction_to).take(answer)
    assert isinstance(outcome, Refused)
    assert outcome.code is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    "request_of",
    [
        lambda version: EndTxn("w", PRODUCER, version, True),
        lambda version: replace(COMMIT, transaction_version=version),
    ],
    ids=["EndTxn", "TxnOffsetCommit"],
)
def test_each_transaction_version_has_its_own_versions(request_of: Any) -> None:
    assert request_of(V1).max_version == 4
    assert request_of(V2).max_version is None
    with pytest.raises(UnsupportedVersionError, match=r"transaction\.version 2, .* 4"):
        request_of(V2).build(4)
    assert request_of(V1).build(4) == request_of(V2).build(5)


def test_the_end_of_version_2_returns_the_next_identity() -> None:
    for version, answer, following in (
        (V1, EndTxnResponse(), ProducerIdAndEpoch()),
        (V2, EndTxnResponse(producer_id=9, producer_epoch=4), ProducerIdAndEpoch(9, 4)),
    ):
        assert EndTxn("writer", PRODUCER, version, True).read(answer) == Done(following)
    assert not ProducerIdAndEpoch().is_valid


def test_expected_producer_is_named_from_version_3_on() -> None:
    request: Any = InitProducerId("writer", 1000, PRODUCER)
    assert (request.build(2).producer_id, request.build(3).producer_id) == (-1, 9)
    assert request.build(3).producer_epoch == 3
    assert InitProducerId("writer", 1000).build(3) == InitProducerId("writer", 1000).build(2)
    assert request.read(InitProducerIdResponse(producer_id=9, producer_epoch=4)) == Done(ProducerIdAndEpoch(9, 4))
    assert (request.coordinator, InitProducerId(None, 1000).coordinator) == ((TRANSACTION, "writer"), None)


def test_an_answer_to_another_request_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="END_TXN"):
        EndTxn("writer", PRODUCER, V1, True).read(InitProducerIdResponse())


def test_coordinators_that_were_found_count_beside_an_error() -> None:
    request = FindCoordinator(GROUP, ("a", "b"))
    found = Coordinator("a", 1, "host", 9092, E.NONE)
    answer = FindCoordinatorResponse(coordinators=[found, Coordinator("b", -1, "", -1, E.COORDINATOR_NOT_AVAILABLE)])
    assert request.coordinators(answer) == {(GROUP, "a"): Node(1, "host", 9092)}
    outcome = Attempts(request, caller_reaction).take(answer)
    assert isinstance(outcome, Refused)
    assert outcome.reaction.is_retry
    assert "'b'" in outcome.detail


@with_each(
    "answer",
    [
        FindCoordinatorResponse(),
        FindCoordinatorResponse(coordinators=[Coordinator("other", 1, "host", 9092, E.NONE)]),
        FindCoordinatorResponse(coordinators=[Coordinator("a", 1, "", -1, E.NONE)]),
    ],
)
def test_an_answer_that_names_no_coordinator_is_asked_for_again(answer: FindCoordinatorResponse) -> None:
    outcome = Attempts(FindCoordinator(GROUP, ("a",)), caller_reaction).take(answer)
    assert isinstance(outcome, Refused)
    assert outcome.reaction.is_retry
    assert "no coordinator of the group 'a'" in outcome.detail


def test_a_caller_that_waits_repeats_exactly_these_errors() -> None:
    repeated = {code for code in ErrorCode if caller_reaction(ApiKey.END_TXN, code) is Reaction.RETRY}
    moved = {code for code in ErrorCode if caller_reaction(ApiKey.END_TXN, code) is Reaction.LOOK_UP}
    assert repeated == {
        E.UNKNOWN_SERVER_ERROR,
        E.REQUEST_TIMED_OUT,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.CONCURRENT_TRANSACTIONS,
        E.UNSTABLE_OFFSET_COMMIT,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
    assert moved == {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.NETWORK_EXCEPTION}


@with_each("api", APIS)
def test_caller_and_producer_differ_only_as_documented(api: ApiKey) -> None:
    of_caller = {code for code in ErrorCode if caller_reaction(api, code).is_retry}
    of_producer = {code for code in ErrorCode if reaction_to(api, code).is_retry}
    assert of_caller - of_producer == {E.UNKNOWN_SERVER_ERROR}
    assert all(code.is_retriable for code in of_producer - of_caller)
    assert E.UNKNOWN_TOPIC_OR_PARTITION in of_producer - of_caller


@pytest.mark.parametrize(
    ("answer", "looks_up"),
    [
        (EndTxnResponse(error_code=E.NOT_COORDINATOR), True),
        (DisconnectError("lost"), True),
        (EndTxnResponse(error_code=E.CONCURRENT_TRANSACTIONS), False),
    ],
    ids=["moved", "lost", "busy"],
)
def test_a_caller_looks_up_a_coordinator_that_may_have_moved(answer: Any, looks_up: bool) -> None:
    # An exchange neither sends nor waits, so it uses nothing of the client here.
    unused: Any = None
    exchange = CoordinatorRequests(unused, 10_000, FakeClock()).ask(EndTxn("writer", PRODUCER, V1, True))
    found = FindCoordinatorResponse(coordinators=[Coordinator("writer", 1, "host", 9092, E.NONE)])
    apis = [_api(exchange.send(None)), _api(exchange.send([found]))]
    assert isinstance(exchange.send([answer]), Pause)
    apis.append(_api(exchange.send([])))
    again = ApiKey.FIND_COORDINATOR if looks_up else ApiKey.END_TXN
    assert apis == [ApiKey.FIND_COORDINATOR, ApiKey.END_TXN, again]


def _api(step: Round | Pause) -> ApiKey:
    assert isinstance(step, Round)
    ((_, spec),) = step.requests
    return spec.api_key
