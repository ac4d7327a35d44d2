"""TransactionScope: what the open transaction writes to, and whether its coordinator may have heard of it.

Belongs to the transaction manager, which holds its lock at every change; :attr:`TransactionScope.partitions` may be
read without. It asks nobody, and knows no state but its own: all of it ends with the transaction.

Source: apache/kafka ``TransactionManager`` (newPartitionsInTransaction, transactionStarted); KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_sink.common.model import TopicPartition


class TransactionScope:
    """See the module."""

    def __init__(self) -> None:
        #: Those that may be written to: one that has come in stays until the sender thread ends the transaction.
        self.partitions: set[TopicPartition] = set()
        self._new: set[TopicPartition] = set()
        self._start_requested = False
        self._started = False

    @property
    def may_be_known(self) -> bool:
        """Some broker may have heard of the transaction, so that it has to be ended there."""
        return self._started or self._start_requested

    @property
    def may_not_have_begun(self) -> bool:
        """The coordinator was told of the transaction, and nobody knows whether it heard of it."""
        return self._start_requested and not self._started

    def start_requested(self) -> None:
        """The coordinator is about to be told of the transaction, and from now on may know it."""
        self._start_requested = True

    def started(self) -> None:
        """It knows it, or the next write will tell it (transaction version 2)."""
        self._started = True

    def want(self, topic_partition: TopicPartition) -> None:
        """The coordinator has to be asked for the partition."""
        self._new.add(topic_partition)

    def take_wanted(self) -> set[TopicPartition]:
        """The partitions to ask for now; they are handed out once."""
        wanted, self._new = self._new, set()
        return wanted

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """*partitions* may be written to."""
        self.partitions.update(partitions)
        self._started = True

    def drop_wanted(self) -> None:
        """The transaction will be aborted: nothing comes in any more."""
        self._new = set()

    def clear(self) -> None:
        """The transaction is over."""
        self._started = self._start_requested = False
        self._new = set()
        self.partitions.clear()
