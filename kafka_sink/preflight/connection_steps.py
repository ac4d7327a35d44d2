"""The steps that depend on the machine: options and files, bootstrap servers, and the address of every broker.

They are run from the driver and from an executor, on the calling thread. The client that they leave behind asks the
cluster in later steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kafka_sink.client.blocking.blocking import BlockingClient, RequestSpec
from kafka_sink.client.login.channel_security import create_channel_builder
from kafka_sink.client.options.config import parse_addresses
from kafka_sink.common import config as c
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, DisconnectError
from kafka_sink.common.model import Node, host_and_port
from kafka_sink.network.channel.channel_builder import ChannelBuilder
from kafka_sink.preflight.findings import Finding, Status
from kafka_sink.preflight.reachability import Endpoint, Named, Reachability
from kafka_sink.preflight.steps import DependsOnError, Step, known
from kafka_sink.preflight.target import CheckTarget
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafka_sink.protocol.schema import Struct

OPTIONS: Final = "options"
BOOTSTRAP: Final = "bootstrap servers"
CLUSTER: Final = "cluster"
BROKERS: Final = "brokers"

#: Answers from this version on say what the principal may do (KIP-430).
_FIRST_WITH_AUTHORIZED_OPERATIONS: Final = 8

CLIENT_ID: Final = "kafkalite-check"


class ConnectionSteps:
    """The steps, and what they have found: the configuration, a client, the metadata, and the brokers that can be
    reached. Close it at the end."""

    def __init__(self, target: CheckTarget, topics: Sequence[str], clock: Clock) -> None:
        """*topics* are asked about together with the brokers."""
        self._target = target
        self._topics = topics
        self._clock = clock
        self._config: ProducerConfig | None = None
        self._builder: ChannelBuilder | None = None
        self._reachability: Reachability | None = None
        self._usable: list[Endpoint] = []
        self._client: BlockingClient | None = None
        self._metadata: MetadataResponse | None = None
        self._nodes: list[Node] = []

    def steps(self) -> list[Step]:
        servers = self._target.properties.get("bootstrap.servers", "")
        return [
            Step(OPTIONS, "all", self._read_options),
            Step(BOOTSTRAP, str(servers), self._try_bootstrap_servers, (OPTIONS,)),
            Step(CLUSTER, "metadata", self._ask_for_metadata, (OPTIONS,)),
            Step(BROKERS, "advertised listeners", self._try_brokers, (CLUSTER,)),
        ]

    @property
    def config(self) -> ProducerConfig:
        """:raises DependsOnError: if the options are invalid."""
        return known(self._config, OPTIONS)

    def is_given(self, name: str) -> bool:
        """Whether the user has set the property *name*."""
        return name in self._target.properties

    @property
    def timeout_ms(self) -> int:
        """The longest wait for one answer."""
        return max(min(self.config.request_timeout_ms, self.config.max_block_ms), 1)

    @property
    def client(self) -> BlockingClient:
        """:raises DependsOnError: if no bootstrap server can be used."""
        return known(self._client, BOOTSTRAP)

    @property
    def metadata(self) -> MetadataResponse:
        """:raises DependsOnError: if no broker has answered."""
        return known(self._metadata, CLUSTER)

    @property
    def nodes(self) -> list[Node]:
        """The brokers whose addresses can be used from here.

        :raises DependsOnError: if there is none.
        """
        return known(self._nodes or None, BROKERS)

    @property
    def controller(self) -> Node:
        """The controller, or another broker, which forwards requests to it.

        :raises DependsOnError: if no broker can be reached.
        """
        nodes = self.nodes
        return next((node for node in nodes if node.id == self.metadata.controller_id), nodes[0])

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._client.close()

    def _read_options(self) -> Sequence[Finding]:
        target = self._target
        config = c.parse(
            ProducerConfig,
            target.properties,
            prefix=target.option_prefix,
            passed_over=producer_config.names_for_plugins(target.properties),
        )
        config = replace(config, option_prefix=target.option_prefix)
        config = producer_config.reconcile(config, frozenset(target.properties), prefix=target.option_prefix)
        self._builder = create_channel_builder(config, self._clock, CLIENT_ID)
        self._config = config
        self._reachability = Reachability(config, self._builder, self.timeout_ms, self._clock)
        return [Finding(OPTIONS, "all", Status.OK, f"{config.option('security.protocol')}={config.security_protocol}")]

    def _try_bootstrap_servers(self) -> Sequence[Finding]:
        endpoints = list(dict.fromkeys(parse_addresses(self.config.bootstrap_servers)))
        option = self.config.option("bootstrap.servers")
        named = [
            Named(
                f"{option} {host}:{port}",
                (host, port),
                f"check the spelling in {option}, and that this machine's DNS knows the name",
                f"check host and port in {option}, that a broker runs there, and that no firewall is in between",
            )
            for host, port in endpoints
        ]
        by_subject = known(self._reachability, OPTIONS).findings(named)
        self._usable = [each.endpoint for each in named if by_subject[each.subject][-1].status is Status.OK]
        findings = [finding for each in by_subject.values() for finding in each]
        return [_as_warning(finding) for finding in findings] if self._usable else findings

    def _ask_for_metadata(self) -> Sequence[Finding]:
        if not self._usable:
            raise DependsOnError(BOOTSTRAP)
        config = replace(self.config, bootstrap_servers=tuple(host_and_port(*each) for each in self._usable))
        self._client = BlockingClient(config, client_id=CLIENT_ID, timeout_ms=self.timeout_ms, clock=self._clock)
        failures: list[Finding] = []
        for number, endpoint in enumerate(self._usable, 1):
            try:
                answer = self._client.ask(Node(-number, *endpoint), RequestSpec(ApiKey.METADATA, self._request))
            except ApiError as error:
                failures.append(self._refused(endpoint, error))
                continue
            assert isinstance(answer, MetadataResponse)
            self._metadata = answer
            count = len(answer.brokers)
            text = f"cluster {answer.cluster_id or 'without id'} has {count} broker{'s' if count != 1 else ''}"
            return [*map(_as_warning, failures), Finding(CLUSTER, "metadata", Status.OK, text)]
        return failures

    def _request(self, version: int) -> Struct:
        return MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in self._topics],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=version >= _FIRST_WITH_AUTHORIZED_OPERATIONS,
        )

    def _refused(self, endpoint: Endpoint, error: ApiError) -> Finding:
        protocol = f"{self.config.option('security.protocol')}={self.config.security_protocol}"
        if isinstance(error, DisconnectError):
            advice = f"the broker does not accept requests here: check that {protocol} is the protocol of this port"
        else:
            advice = "check that this is the port of a Kafka broker, and look into the broker's log"
        return Finding(CLUSTER, f"metadata from {host_and_port(*endpoint)}", Status.FAILED, str(error), advice)

    def _try_brokers(self) -> Sequence[Finding]:
        nodes = [Node(each.node_id, each.host, each.port) for each in self.metadata.brokers]
        named = {
            node: Named(
                f"broker {node.id} at {host_and_port(node.host, node.port)}",
                (node.host, node.port),
                "the broker gives clients this name (advertised.listeners): make it known to this machine's DNS, or "
                "correct advertised.listeners",
                "the broker gives clients this address (advertised.listeners): make it reachable from this machine, "
                "or correct advertised.listeners",
            )
            for node in sorted(nodes, key=lambda node: node.id)
        }
        by_subject = known(self._reachability, OPTIONS).findings(list(named.values()))
        findings: list[Finding] = []
        for node, each in named.items():
            of_broker = by_subject[each.subject]
            if of_broker[-1].status is Status.OK:
                self._nodes.append(node)
                findings.append(_summary(of_broker))
            else:
                findings += of_broker
        return findings


def _as_warning(finding: Finding) -> Finding:
    """A failure of one address where another one can be used instead."""
    is_bad = finding.status in (Status.FAILED, Status.NOT_TRIED)
    return replace(finding, status=Status.WARNING) if is_bad else finding


def _summary(findings: Sequence[Finding]) -> Finding:
    """One finding for a broker that can be used."""
    text = ", ".join(f"{each.step}: {each.found}" for each in findings)
    return Finding("broker", findings[0].subject, Status.OK, text)
