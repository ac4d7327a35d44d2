"""TransactionEpochs: which transaction version holds, and whether the next transaction has to ask for its epoch.

Belongs to the transaction manager, which holds its lock where transactions begin and end;
:attr:`TransactionEpochs.is_version_2` may be read without. It never changes the version within a transaction, and asks
for nothing itself.

In version 2 the answer to every EndTxn brings the next epoch. In version 1 a transaction that failed needs a new one
from InitProducerId, as far as the coordinator gives it (KIP-360).

Source: apache/kafka ``TransactionManager``; KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.client.api_versions import ApiVersions
from kafka_sink.common.model import Node
from kafka_sink.producer.transactions.requests import INIT_PRODUCER_ID_BUMP_VERSION
from kafka_sink.protocol.api_key import ApiKey

#: The finalized feature that says how transactions run; from level 2 on every one has its own epoch (KIP-890).
_FEATURE: Final = "transaction.version"


class TransactionEpochs:
    """See the module."""

    def __init__(self, api_versions: ApiVersions) -> None:
        self._api_versions = api_versions
        #: Settled between two transactions, so that one never mixes the two versions.
        self.is_version_2 = False
        self._coordinator_bumps_epochs = False
        self._is_new_one_needed = False

    def join(self, *, is_version_2: bool) -> None:
        """Write in a transaction of somebody else, in its version."""
        self.is_version_2 = is_version_2

    @property
    def can_be_renewed(self) -> bool:
        """After a failed transaction there is a way to a new epoch."""
        return self._coordinator_bumps_epochs or self.is_version_2

    def coordinator_ready(self, node: Node) -> None:
        """*node* coordinates the transactions and is connected: what it can do is known."""
        versions = self._api_versions.get(node.connection_id)
        if versions is not None:
            supported = versions.versions.get(ApiKey.INIT_PRODUCER_ID)
            self._coordinator_bumps_epochs = supported is not None and supported.max >= INIT_PRODUCER_ID_BUMP_VERSION

    def need_new_one(self) -> None:
        """The next transaction must not go on with this epoch, unless there is no way to another but the end."""
        self._is_new_one_needed |= self._coordinator_bumps_epochs and not self.is_version_2

    def renewed(self) -> None:
        """An answer brought a new one."""
        self._is_new_one_needed = False

    def initialized(self) -> None:
        """The first one is there, or the one that was asked for; no transaction is open."""
        self.renewed()
        self._settle_version()

    def transaction_ended(self) -> bool:
        """No transaction is open; True when the next has to ask for its epoch."""
        if self._settle_version():
            # Only a new epoch keeps late writes of the last transaction out of the next, which may run without a check.
            self._is_new_one_needed = True
        return self._is_new_one_needed

    def _settle_version(self) -> bool:
        """Take over the cluster's transaction version; True when it went up to 2."""
        was_version_2, self.is_version_2 = self.is_version_2, self._api_versions.feature_level(_FEATURE) >= 2
        return self.is_version_2 and not was_version_2
