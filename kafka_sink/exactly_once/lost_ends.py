"""Ends of transactions that the brokers decided and did not write everywhere (KAFKA-20734), and how a sink writes them
again.

A broker that dies at the wrong moment may never write the markers of a transaction, although its coordinator says that
it is complete. Its rows stay open in the partition. The next marker of the same producer id decides about them as well:
a commit makes rows of an aborted batch visible, an abort hides rows of a committed one. So nobody writes with a
producer id that has something open which its coordinator holds for ended. What is open is ended in the same way as its
transaction first: the partitions are added to a transaction of the same id, without writing to them, and that one is
ended. This needs no permission that the sink does not have.

How the transaction ended is proven by the coordinator's description of the id while it is at rest, which is valid until
the next InitProducerId or the next transaction. A commit that is written again would be forgotten in between, so it is
recorded in the id itself, by a time-out that no other transaction has (``COMPLETING_MS``); whoever finds it goes
on with the commit.

Used on the driver, by one thread at a time, before the fence. Two drivers may do this at the same time: every request
names the exact epoch that was found, so it is either the same for both or refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_sink.client.blocking.exchange import Pause
from kafka_sink.client.blocking.leader_requests import OpenTransaction
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaTimeoutError
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import OVERTAKEN, ExactlyOnceError, Log, Progress, Remembered, Transaction
from kafka_sink.exactly_once.names import driver_id, is_writer_id
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.transaction_description import COMPLETING_MS, TransactionDescription

_log = logging.getLogger(__name__)

#: How long a coordinator may take to write ends, or a group to apply them, before it is logged what is waited for. An
#: end that is not there by then although the transaction is complete was lost.
PATIENCE_MS: Final = 2000

_PAUSE_MS: Final = 10
_LONGEST_PAUSE_MS: Final = 1000

#: Open transactions of one producer id by partition.
OpenRows = Mapping[TopicPartition, OpenTransaction]


class LostEndError(ExactlyOnceError):
    """The brokers have lost the end of a transaction, and nothing proves how it ended. The text names the partition,
    the offset, the producer and the command that ends it."""


@dataclass(frozen=True)
class DriverEnd:
    """How the driver's last transaction ended: its id as *described* (None: never used, or forgotten), whether the
    progress *is_stable*, and the rows of its producer id that are open in partitions although it is at rest."""

    described: TransactionDescription | None
    is_stable: bool
    open_rows: OpenRows = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        """Whether the transaction has ended, everywhere."""
        known = self.described
        if known is None:
            return self.is_stable
        is_over = known.is_over and not (known.is_completing and known.state == "CompleteAbort")
        return is_over and self.is_stable and not self.open_rows


class LostEnds:
    """The lost ends of one sink: of its driver, and of the ids that wrote its rows.

    :param topics: the topics of the sink's rows; None if rows name their topics, which may then be any.
    """

    def __init__(
        self,
        client: CoordinatorClient,
        store: ProgressStore,
        group: str,
        sink: str,
        topics: Collection[str] | None,
        clock: Clock,
    ) -> None:
        self._client = client
        self._store = store
        self._group = group
        self._sink = sink
        self._topics = topics
        self._clock = clock
        self._driver = driver_id(sink)

    # --- the driver --------------------------------------------------------------------------------------------------

    async def driver(
        self, remembered: Remembered, *, with_rows: bool
    ) -> tuple[TransactionDescription | None, OpenRows]:
        """The description of the driver's id, and what its producer id has open in partitions; with nothing open unless
        *with_rows*, for drivers whose transactions contain no rows."""
        described = (await self._client.describe([self._driver])).get(self._driver)
        if described is None or not with_rows or not (described.is_over or described.is_completing):
            return described, {}
        partitions: Collection[TopicPartition] | None = remembered.partitions
        if partitions is None or not self.is_commit_of_last(described, remembered):
            infos = await self._client.leaders.partitions_of(self._topics)
            partitions = [each.topic_partition for each in infos]
        ends = await self._client.leaders.end_offsets(partitions, stable=False)
        try:
            opened = await self._client.leaders.open_before(ends)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            raise ExactlyOnceError(
                f"{error}: a transaction is open there, and only with READ on the topic can be told whether it is this "
                "sink's; grant it to this principal"
            ) from error
        return described, _of_producer(opened, described.transaction.producer_id)

    @staticmethod
    def is_commit_of_last(described: TransactionDescription, remembered: Remembered) -> bool:
        """Whether the driver's id is *described* as this process left it: its last batch is committed."""
        last = remembered.driver
        return last is not None and any(described.is_commit_of(last, version) for version in TransactionVersion)

    async def settle_driver(
        self, end: DriverEnd, transaction_version: TransactionVersion, remembered: Remembered, *, with_rows: bool
    ) -> TransactionDescription | None:
        """Return when the driver's last transaction has ended everywhere, with the description that says so.

        An open transaction is aborted and its producer fenced, a decided one is waited for, and lost ends are written
        again.

        :raises LostEndError: if an end is lost and nothing proves which.
        :raises KafkaTimeoutError: if that takes too long; the text says what is waited for.
        """
        wait = _Wait(self._client, self._clock)
        while not end.is_settled:
            known = end.described
            if known is None:
                await wait.pause(f"a transaction that holds the progress of {self._group!r}")
                if wait.is_long:
                    raise self._unproven("is open, and its id is not known to the brokers", {})
            elif known.state in ("PrepareCommit", "PrepareAbort"):
                places = ", ".join(sorted(map(str, known.partitions))) or "its group's offsets"
                await wait.pause(f"the end ({known.state}) of the transaction {known.transaction} in {places}")
            elif known.is_ongoing and not known.is_completing:
                await wait.pause(f"the abort of the transaction {known.transaction}")
                await self._client.fence_open(known.transaction)
            elif not end.is_stable and not end.open_rows and not wait.is_long:
                # Older coordinators apply the end of offsets a moment after it is complete.
                await wait.pause(f"a transaction of {known.transaction} that holds the progress ({known.state})")
            else:
                await wait.pause(f"the end of {known.transaction}, which is written again")
                with_group = not end.is_stable or known.is_completing
                await self._write_end(known, end.open_rows, transaction_version, with_group=with_group)
            end = await self.driver_end(remembered, with_rows=with_rows)
        return end.described

    async def driver_end(self, remembered: Remembered, *, with_rows: bool) -> DriverEnd:
        """How the driver's last transaction has ended by now; *with_rows* as in :meth:`driver`."""
        described, rows = await self.driver(remembered, with_rows=with_rows)
        # After the description: what holds the progress of an id at rest was lost.
        _, is_stable = await self.peek()
        return DriverEnd(described, is_stable, rows)

    async def peek(self) -> tuple[Progress | None, bool]:
        """The progress, and whether it is stable: no transaction holds a newer one."""
        try:
            progress = await self._store.read(waits=False)
        except ApiError as error:
            if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
        else:
            return progress, True
        return (await self._store.read(require_stable=False)), False

    # --- writers -----------------------------------------------------------------------------------------------------

    async def settle_writers(self, transaction_version: TransactionVersion) -> frozenset[Log]:
        """Write the lost ends of the ids that write rows, so that readers go on; return the logs that were searched.
        Partitions whose leader does not answer are left out. What cannot be ended is logged with the command that ends
        it."""
        leaders = self._client.leaders
        partitions = await leaders.partitions_of(self._topics)
        ends = await leaders.end_offsets([each.topic_partition for each in partitions], stable=False, hasty=True)
        opened = await leaders.open_before(ends, hasty=True)
        await self._end_writers(opened, transaction_version)
        return logs_of(each for each in partitions if each.topic_partition in ends)

    async def _end_writers(
        self, opened: Mapping[TopicPartition, Collection[OpenTransaction]], transaction_version: TransactionVersion
    ) -> None:
        """End what of *opened* is open under an id that writes rows although the id is at rest."""
        if not opened:
            return
        producer_ids = {each.producer_id for transactions in opened.values() for each in transactions}
        names = await self._client.list_ids(producer_ids=producer_ids)
        described = await self._client.describe(name for name in names if is_writer_id(self._sink, name))
        for each in described.values():
            rows = _of_producer(opened, each.transaction.producer_id)
            if not rows or not (each.is_over or each.is_completing):
                continue
            try:
                await self._write_end(each, rows, transaction_version, with_group=False)
            except LostEndError as error:
                _log.warning("%s", error)

    # --- ends --------------------------------------------------------------------------------------------------------

    async def _write_end(
        self,
        known: TransactionDescription,
        rows: OpenRows,
        transaction_version: TransactionVersion,
        *,
        with_group: bool,
    ) -> None:
        """End what the id has open in *rows*, and its offsets *with_group*, as its last transaction ended. Nothing
        happens if the id has another producer by now.

        :raises LostEndError: if nothing proves how it ended.
        """
        commit = self._is_commit(known, rows, transaction_version)
        _log.warning(
            "the brokers have lost the %s of the transaction %s (KAFKA-20734) in %s; it is written again",
            "commit" if commit else "abort",
            known.transaction,
            ", ".join([*map(str, sorted(rows)), *([f"the offsets of group {self._group!r}"] if with_group else ())]),
        )
        group = self._group if with_group else None
        try:
            transaction = known.transaction
            if commit and not known.is_completing:
                transaction = await self._completing(known)
            await self._client.add_to_transaction(transaction, rows, group)
            await self._client.end([transaction], transaction_version, commit=commit)
        except ApiError as error:
            if error.code not in OVERTAKEN:
                raise
            _log.info("%s has another producer by now: %s", known.transaction.transactional_id, error)

    async def _completing(self, known: TransactionDescription) -> Transaction:
        """The id of *known* with a new epoch, recorded as one whose commit is written again."""
        for timeout_ms in COMPLETING_MS:
            try:
                return await self._client.init_producer_id(
                    known.transaction.transactional_id, timeout_ms, expected=known.transaction
                )
            except ApiError as error:
                if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT or timeout_ms == COMPLETING_MS[-1]:
                    raise
        raise AssertionError("the last time-out was accepted, or an error was raised")

    def _is_commit(
        self, known: TransactionDescription, rows: OpenRows, transaction_version: TransactionVersion
    ) -> bool:
        """How the last transaction of an id at rest ended.

        :raises LostEndError: if that is not proven.
        """
        if known.is_completing:
            if known.state == "CompleteAbort":
                raise self._unproven(
                    f"of {known.transaction} was committed; nobody completed its lost commit within "
                    f"{known.timeout_ms} ms, and the brokers then aborted it",
                    rows,
                )
            return True
        if known.state == "CompleteAbort":
            return False
        epoch = known.transaction.epoch - (transaction_version is TransactionVersion.V2)
        if known.state == "CompleteCommit" and all(each.epoch == epoch for each in rows.values()):
            return True
        raise self._unproven(f"of {known.transaction} is open, and that id is {known.state}", rows)

    def _unproven(self, what: str, rows: OpenRows) -> LostEndError:
        places = [
            f"{place} from offset {each.start_offset} on (producer id {each.producer_id}, epoch {each.epoch})"
            for place, each in sorted(rows.items())
        ] or [f"the offsets of the group {self._group!r}"]
        place = next(iter(sorted(rows)), TopicPartition("__consumer_offsets", -1))
        command = f"kafkalite txn hanging {place.topic}" + (f" {place.partition}" if rows else "")
        return LostEndError(
            f"a transaction {what}: the brokers have lost its end (KAFKA-20734) in {', '.join(places)}, and nothing "
            f"proves whether it was committed or aborted, so nothing more is written. '{command}' shows it; end it "
            "there with --commit-at, or with --abort-at if that is refused, then compare its batch with the source "
            "('kafkalite verify') and write missing rows with another program"
        )


class _Wait:
    """Waits for brokers with growing pauses; says what for, once, after some seconds."""

    def __init__(self, client: CoordinatorClient, clock: Clock) -> None:
        self._clock = clock
        self._begun_ms = clock.monotonic_ms()
        self._timeout_ms = client.timeout_ms
        self._pauses = 0
        self._is_said = False

    @property
    def is_long(self) -> bool:
        return self._clock.monotonic_ms() - self._begun_ms > PATIENCE_MS

    async def pause(self, what: str) -> None:
        """Pause while *what* is waited for.

        :raises KafkaTimeoutError: if that took too long.
        """
        if self._clock.monotonic_ms() - self._begun_ms > self._timeout_ms:
            raise KafkaTimeoutError(f"waited {self._timeout_ms} ms for {what}")
        if self.is_long and not self._is_said:
            self._is_said = True
            _log.warning("still waiting for %s", what)
        await Pause(min(_PAUSE_MS << self._pauses, _LONGEST_PAUSE_MS))
        self._pauses += 1


def logs_of(partitions: Iterable[PartitionInfo]) -> frozenset[Log]:
    """The logs of *partitions* that have a leader; nothing can be searched in others."""
    return frozenset(
        Log(each.topic_partition, each.leader, each.leader_epoch) for each in partitions if each.leader is not None
    )


def _of_producer(opened: Mapping[TopicPartition, Collection[OpenTransaction]], producer_id: int) -> OpenRows:
    return {place: each for place, ongoing in opened.items() for each in ongoing if each.producer_id == producer_id}
