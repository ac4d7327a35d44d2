"""A proxy that stops a program between two steps of an exactly-once batch, by the program's requests.

The program itself is unchanged. The test's thread sets the aims; the proxy's thread applies them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader, decode_request_body
from kafka_sink.protocol.messages.group_offsets import TxnOffsetCommitRequest
from kafka_sink.protocol.messages.produce import ProduceRequest
from kafka_sink.protocol.messages.transactions import EndTxnRequest
from tests.support.fault_proxy import Delay, Drip, Fault, FaultProxy


class Step(Enum):
    """The step at which a batch stops for good: only the requests before it reach the broker."""

    IN_TASKS = "in its tasks"
    BEFORE_DECISION = "before the decision"
    IN_DECISION = "between TxnOffsetCommit and EndTxn"
    AFTER_DECISION = "after the decision"
    BETWEEN_ENDS = "between the EndTxns"
    AFTER_ENDS = "after the EndTxns"


#: The API, whether the request is the driver's (None: either), its number within a batch, and its fault.
_WHERE = {
    Step.IN_TASKS: (ApiKey.PRODUCE, None, 1, Fault.WITHHOLD),
    Step.BEFORE_DECISION: (ApiKey.TXN_OFFSET_COMMIT, True, 1, Fault.WITHHOLD),
    Step.IN_DECISION: (ApiKey.END_TXN, True, 1, Fault.WITHHOLD),
    Step.AFTER_DECISION: (ApiKey.END_TXN, True, 1, Fault.SILENCE),
    Step.BETWEEN_ENDS: (ApiKey.END_TXN, False, 2, Fault.WITHHOLD),
    Step.AFTER_ENDS: (ApiKey.END_TXN, False, 1, Fault.SILENCE),
}


@dataclass
class _Aim:
    step: Step
    is_due: Callable[[], bool]
    is_decided: bool = False
    seen: int = 0
    is_hit: bool = False


class StepProxy(FaultProxy):
    """Use :meth:`aim` to stop a sink; :meth:`is_hit` returns whether its batch has reached the step and is stopped."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._aims: dict[str, _Aim] = {}

    def aim(self, sink: str, step: Step, is_due: Callable[[], bool]) -> None:
        """Stop the first batch of *sink* that comes to *step* after *is_due*, once; replaces an earlier aim at it."""
        self._aims[sink] = _Aim(step, is_due)

    def forget(self) -> None:
        """Remove all aims."""
        self._aims = {}

    def is_hit(self, sink: str) -> bool:
        return self._aims[sink].is_hit

    def judge(self, header: RequestHeader, frame: bytes, body_at: int) -> Fault | Delay | Drip | None:
        if header.api_key not in (ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN):
            return None
        body = decode_request_body(header, frame, body_at)
        assert isinstance(body, ProduceRequest | TxnOffsetCommitRequest | EndTxnRequest)
        if isinstance(body, EndTxnRequest) and not body.committed:
            return None
        if isinstance(body, TxnOffsetCommitRequest) and _is_rehearsal(body):
            return None
        name = body.transactional_id or ""
        aims = self._aims
        return next(
            (
                self._judge(aim, ApiKey(header.api_key), is_driver=name.endswith(".driver"))
                for sink, aim in aims.items()
                if name.startswith(f"{sink}/")
            ),
            None,
        )

    @staticmethod
    def _judge(aim: _Aim, api_key: ApiKey, *, is_driver: bool) -> Fault | None:
        if aim.is_hit or not aim.is_due():
            return None
        asked, by_driver, number, fault = _WHERE[aim.step]
        was_decided = aim.is_decided
        aim.is_decided = was_decided or (api_key is ApiKey.END_TXN and is_driver)
        # Planning ends transactions that an earlier driver has decided; their EndTxns belong to another batch.
        if api_key is not asked or (by_driver is not None and by_driver is not is_driver):
            return None
        if by_driver is False and not was_decided:
            return None
        aim.seen += 1
        if aim.seen < number:
            return None
        aim.is_hit = True
        return fault


def _is_rehearsal(body: TxnOffsetCommitRequest) -> bool:
    """Whether a driver without progress checks that it may decide, and will abort; no batch has progress 0."""
    return all(part.committed_offset == 0 for topic in body.topics for part in topic.partitions)
