"""From the settings of a test run to its cluster: in this process, or the one that all processes of the run share."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.config import keys, parse
from kafka_sink.common.errors import ConfigError, UnknownTopicOrPartitionError
from kafka_sink.common.sasl_mechanisms import SCRAM_SHA_512
from kafka_sink.testing.security import ClusterSecurity

_NODES: Final = "nodes"
_SECURITY: Final = "security"
_MECHANISM: Final = "mechanism"


@dataclass(frozen=True)
class ClusterSettings:
    """*nodes* brokers with the options of *config*, whose only listener has *security*."""

    nodes: int
    config: BrokerConfig
    security: ClusterSecurity

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ClusterSettings:
        """*settings* has ``nodes``, ``security`` (such as SASL_SSL), ``mechanism``, and options of the broker: by
        Kafka's names or by those of the fields of ``BrokerConfig``.

        :raises ConfigError: the text names the setting.
        """
        options = dict(settings)
        nodes = str(options.pop(_NODES, "1"))
        if not nodes.isdecimal():
            raise ConfigError(f"nodes must be a whole number, got {nodes!r}")
        protocol, mechanism = options.pop(_SECURITY, None), options.pop(_MECHANISM, None)
        fields = {item.name: key for key, (_, item) in keys(BrokerConfig).items()}
        options = {fields.get(name, name): value for name, value in options.items()}
        security = ClusterSecurity()
        if protocol is not None:
            security = ClusterSecurity.of(protocol, SCRAM_SHA_512 if mechanism is None else mechanism)
            twice = sorted(security.broker_options.keys() & options.keys())
            if twice:
                raise ConfigError(f"security sets {', '.join(twice)} too: leave out one of them")
            options |= security.broker_options
        elif mechanism is not None:
            raise ConfigError("mechanism has no effect without security; set security=SASL_SSL or SASL_PLAINTEXT")
        return cls(int(nodes), parse(BrokerConfig, options), security)

    def cluster(self) -> EmbeddedCluster:
        """A cluster with these settings, which is not started."""
        return EmbeddedCluster(self.nodes, config=self.config)


class SharedCluster:
    """A cluster in another process of the test run, by what can be done from here."""

    def __init__(self, bootstrap_servers: str, security: ClusterSecurity) -> None:
        self.bootstrap_servers: Final = bootstrap_servers
        self._security = security

    def _admin(self) -> AdminClient:
        return AdminClient(self.bootstrap_servers, self._security.client(self.bootstrap_servers))

    def create_topic(self, name: str, partitions: int = -1, *, configs: Mapping[str, str] | None = None) -> None:
        """As :meth:`EmbeddedCluster.create_topic`."""
        with self._admin() as admin:
            admin.create_topic(name, partitions, configs=dict(configs or {}))

    def delete_topic(self, name: str) -> None:
        """As :meth:`EmbeddedCluster.delete_topic`."""
        with self._admin() as admin:
            admin.delete_topics([name])


def delete_if_there(cluster: EmbeddedCluster | SharedCluster, name: str) -> None:
    """Delete a topic, unless a test has deleted it already."""
    with contextlib.suppress(UnknownTopicOrPartitionError):
        cluster.delete_topic(name)
