"""TransactionEpochs: the current transaction version, and whether the next transaction needs a new epoch.

It belongs to the transaction manager, which holds its lock where transactions begin and end;
:attr:`TransactionEpochs.version` may be read without the lock. It never changes the version within a transaction,
and sends no request.

In version 2 every EndTxn answer contains the next epoch. In version 1 a failed transaction requires a new epoch from
InitProducerId, if the coordinator supports that (KIP-360).

Source: apache/kafka ``TransactionManager``; KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from kafka_sink.client.connection.api_versions import ApiVersions
from kafka_sink.client.requests.transactional_requests import INIT_PRODUCER_ID_BUMP_VERSION
from kafka_sink.common.model import TRANSACTION_VERSION_FEATURE, Node, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey


class TransactionEpochs:
    """See the module."""

    def __init__(self, api_versions: ApiVersions) -> None:
        self._api_versions = api_versions
        #: Set only between two transactions, so that a transaction never mixes the two versions.
        self.version = TransactionVersion.V1
        self._coordinator_bumps_epochs = False
        self._is_new_one_needed = False

    def join(self, version: TransactionVersion) -> None:
        """Join a transaction of another producer, with its version."""
        self.version = version

    @property
    def can_be_renewed(self) -> bool:
        """Whether a new epoch can be obtained after a failed transaction."""
        return self._coordinator_bumps_epochs or self.version is TransactionVersion.V2

    def coordinator_ready(self, node: Node) -> None:
        """Read the capabilities of *node*, the transaction coordinator, which is connected."""
        versions = self._api_versions.get(node.connection_id)
        if versions is not None:
            supported = versions.versions.get(ApiKey.INIT_PRODUCER_ID)
            self._coordinator_bumps_epochs = supported is not None and supported.max >= INIT_PRODUCER_ID_BUMP_VERSION

    def need_new_one(self) -> None:
        """Require a new epoch from InitProducerId for the next transaction, if the coordinator supports it and EndTxn
        returns none.
        """
        self._is_new_one_needed |= self._coordinator_bumps_epochs and self.version is TransactionVersion.V1

    def renewed(self) -> None:
        """Record that an answer contained a new epoch."""
        self._is_new_one_needed = False

    def initialized(self) -> None:
        """Record that InitProducerId returned an epoch; no transaction is open."""
        self.renewed()
        self._settle_version()

    def transaction_ended(self) -> bool:
        """Record the end of the transaction; True if the next one requires a new epoch."""
        if self._settle_version():
            # Only a new epoch excludes late writes of the last transaction from the next one, whose writes may not be
            # verified.
            self._is_new_one_needed = True
        return self._is_new_one_needed

    def _settle_version(self) -> bool:
        """Adopt the cluster's transaction version; True if it rose to 2."""
        before, self.version = (
            self.version,
            TransactionVersion.of_level(self._api_versions.feature_level(TRANSACTION_VERSION_FEATURE)),
        )
        return before < self.version
