"""The steps that depend on the machine: options and files, bootstrap servers, and the address of every broker.

They run on the driver and on an executor, on the calling thread. They try the name, the port and the security protocol
of each address, without a request; a finding about a failure has the remedy. Every wait has a limit, and a connection
is closed as soon as its outcome is known. If a name does not resolve, no connection is attempted, and TLS and SASL are
only tried if the port answers. Later steps use the client that these steps create.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from kafka_sink.client.blocking.blocking import BlockingClient, RequestSpec
from kafka_sink.client.login.channel_security import create_channel_builder
from kafka_sink.client.login.credentials import is_of_aws
from kafka_sink.client.options.config import PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL, ClientConfig, parse_addresses
from kafka_sink.common.clock import Clock
from kafka_sink.common.config import shown_address
from kafka_sink.common.errors import ApiError, DisconnectError, SslAuthenticationError
from kafka_sink.common.model import Node, host_and_port
from kafka_sink.common.sasl_mechanisms import AWS_MSK_IAM, MECHANISMS, OAUTHBEARER
from kafka_sink.common.threads import start_thread
from kafka_sink.network.channel.channel import ChannelBuilder
from kafka_sink.network.channel.selectable import ChannelState, Disconnect, cause_of
from kafka_sink.network.polling.selector import KSelector
from kafka_sink.network.transport.resolver import SocketAddress, resolve
from kafka_sink.network.transport.transport import OS_DEFAULT_BUFFER
from kafka_sink.preflight.findings import CheckTarget, DependsOnError, Finding, Status, Step, required
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import (
    FIRST_WITH_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

#: Host and port.
Endpoint: TypeAlias = tuple[str, int]
NAME: Final = "name"
PORT: Final = "port"
TLS: Final = "TLS"
SASL: Final = "SASL"
_AGREED: Final = {SSL: "TLS", SASL_PLAINTEXT: "SASL", SASL_SSL: "TLS and SASL"}
_OF_TLS: Final = "TLS failed: "


def resolve_within(host: str, port: int, timeout_ms: int) -> list[SocketAddress]:
    """The addresses of *host*. The system's resolver cannot be interrupted, so it runs on a separate thread, which is
    abandoned if it does not answer in time.

    :raises OSError: if the name is unknown, or there was no answer in time.
    """
    outcome: list[list[SocketAddress] | OSError] = []

    def look_up() -> None:
        try:
            outcome.append(resolve(host, port))
        except OSError as error:
            outcome.append(error)

    start_thread("kafkalite-check-resolver", look_up).join(timeout_ms / 1000)
    if not outcome:
        raise TimeoutError(f"cannot resolve host name {host!r}: no answer within {timeout_ms} ms")
    if isinstance(outcome[0], OSError):
        raise outcome[0]
    return outcome[0]


def connect_all(
    addresses: Mapping[str, SocketAddress], builder: ChannelBuilder, timeout_ms: int, clock: Clock
) -> dict[str, Disconnect | None]:
    """Connect to all *addresses* at the same time, as far as the protocol of *builder* goes. The outcome of each: None
    if the connection is ready for requests."""
    outcomes: dict[str, Disconnect | None] = {}
    established: set[str] = set()
    with closing(KSelector(builder, clock)) as selector:
        for name, address in addresses.items():
            try:
                selector.connect(name, address, OS_DEFAULT_BUFFER, OS_DEFAULT_BUFFER)
            except OSError as error:
                outcomes[name] = Disconnect(ChannelState.NOT_CONNECTED, cause_of(error))
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while pending := [name for name in addresses if name not in outcomes]:
            left_ms = deadline_ms - clock.monotonic_ms()
            if left_ms <= 0:
                for name in pending:
                    state = ChannelState.AUTHENTICATE if name in established else ChannelState.NOT_CONNECTED
                    outcomes[name] = Disconnect(state, f"no answer within {timeout_ms} ms")
                break
            selector.poll(left_ms)
            established.update(selector.connected)
            outcomes.update(selector.disconnected)
            for name in pending:
                if name not in outcomes and selector.can_send(name):
                    outcomes[name] = None
                    selector.close_connection(name)
    return outcomes


@dataclass(frozen=True)
class Named:
    """An address to try: its name in the table, and what to do if the name does not resolve or the port does not
    answer."""

    subject: str
    endpoint: Endpoint
    if_unresolved: str
    if_unreachable: str


@dataclass
class Reachability:
    """Tries addresses with the security protocol of *config*, whose channels *builder* creates. Each step of all
    addresses together takes at most *timeout_ms*."""

    config: ClientConfig
    builder: ChannelBuilder
    timeout_ms: int
    clock: Clock
    _tried: dict[Endpoint, Sequence[Finding]] = field(default_factory=dict, init=False)

    def findings(self, addresses: Sequence[Named]) -> dict[str, Sequence[Finding]]:
        """The findings of each of *addresses*, by subject; the last one is OK only if the address can be used. An
        endpoint that was tried before is not tried again."""
        self._tried |= self._try([named.endpoint for named in addresses if named.endpoint not in self._tried])
        return {
            named.subject: [_about(named, finding) for finding in self._tried[named.endpoint]] for named in addresses
        }

    def _try(self, endpoints: Sequence[Endpoint]) -> dict[Endpoint, list[Finding]]:
        resolved: dict[Endpoint, list[SocketAddress]] = {}
        findings: dict[Endpoint, list[Finding]] = {}
        for endpoint in dict.fromkeys(endpoints):
            try:
                resolved[endpoint] = resolve_within(*endpoint, self.timeout_ms)
                hosts = ", ".join(dict.fromkeys(address.host for address in resolved[endpoint]))
                findings[endpoint] = [Finding(NAME, "", Status.OK, hosts)]
            except OSError as error:
                findings[endpoint] = [Finding(NAME, "", Status.FAILED, str(error))]
        protocol = self.config.security_protocol
        answering = self._try_ports(resolved, findings)
        if protocol != PLAINTEXT:
            addresses = {_id(endpoint, address): address for endpoint, address in answering.items()}
            outcomes = self._connect(addresses, self.builder)
            for endpoint, address in answering.items():
                findings[endpoint].append(self._security(outcomes[_id(endpoint, address)]))
        steps = [NAME, PORT] if protocol == PLAINTEXT else [NAME, PORT, _AGREED[protocol]]
        for of_endpoint in findings.values():
            failed = [finding.step for finding in of_endpoint if finding.status is Status.FAILED]
            of_endpoint += [
                Finding(step, "", Status.NOT_TRIED, f"needs: {failed[0]}")
                for step in (steps[len(of_endpoint) :] if failed else ())
            ]
        return findings

    def _try_ports(
        self, resolved: Mapping[Endpoint, list[SocketAddress]], findings: dict[Endpoint, list[Finding]]
    ) -> dict[Endpoint, SocketAddress]:
        """The first address of each endpoint that answers."""
        outcomes = self._connect(
            {_id(endpoint, address): address for endpoint, addresses in resolved.items() for address in addresses},
            ChannelBuilder(),
        )
        answering: dict[Endpoint, SocketAddress] = {}
        for endpoint, addresses in resolved.items():
            lost = {address: outcomes[_id(endpoint, address)] for address in addresses}
            text = "; ".join(f"{address}: {cause.cause}" for address, cause in lost.items() if cause is not None)
            usable = [address for address in addresses if lost[address] is None]
            if usable:
                answering[endpoint] = usable[0]
                findings[endpoint].append(Finding(PORT, "", Status.OK, f"answers, but {text}" if text else "answers"))
            else:
                findings[endpoint].append(Finding(PORT, "", Status.FAILED, text))
        return answering

    def _connect(self, addresses: Mapping[str, SocketAddress], builder: ChannelBuilder) -> dict[str, Disconnect | None]:
        return connect_all(addresses, builder, self.timeout_ms, self.clock) if addresses else {}

    def _security(self, lost: Disconnect | None) -> Finding:
        """The finding about TLS and SASL of a connection that is ready (None), or was *lost*."""
        config, protocol = self.config, self.config.security_protocol
        if lost is None:
            mechanism = f" with {config.sasl_mechanism}" if protocol in (SASL_PLAINTEXT, SASL_SSL) else ""
            return Finding(_AGREED[protocol], "", Status.OK, f"{protocol}{mechanism} accepted")
        error = lost.authentication_error
        other_protocol = (
            f"check that {config.option('security.protocol')}={protocol} is the protocol of this port's listener"
        )
        if isinstance(error, SslAuthenticationError):
            problem, _, advice = str(error).removeprefix(_OF_TLS).partition(": ")
            return Finding(TLS, "", Status.FAILED, problem, advice or other_protocol)
        if error is not None:
            mechanism = config.sasl_mechanism
            if mechanism == OAUTHBEARER and is_of_aws(config):
                mechanism = AWS_MSK_IAM
            advice = MECHANISMS[mechanism].advice.format(prefix=config.option_prefix)
            return Finding(SASL, "", Status.FAILED, str(error), advice)
        stage = TLS if protocol in (SSL, SASL_SSL) else SASL
        return Finding(stage, "", Status.FAILED, f"no agreement: {lost.cause}", other_protocol)


def _about(named: Named, finding: Finding) -> Finding:
    """The *finding* of an endpoint as that of *named*, with the remedy."""
    if finding.status is Status.FAILED and finding.step in (NAME, PORT):
        advice = named.if_unresolved if finding.step == NAME else named.if_unreachable
        return replace(finding, subject=named.subject, what_to_do=advice)
    return replace(finding, subject=named.subject)


def _id(endpoint: Endpoint, address: SocketAddress) -> str:
    return f"{endpoint[0]}:{endpoint[1]} {address}"


OPTIONS: Final = "options"
BOOTSTRAP: Final = "bootstrap servers"
CLUSTER: Final = "cluster"
BROKERS: Final = "brokers"

CLIENT_ID: Final = "kafkalite-check"


@dataclass
class ConnectionSteps:
    """The steps, and their results: the configuration, a client, the metadata, and the brokers that can be reached. The
    metadata request includes *topics*. Close it at the end."""

    target: CheckTarget
    topics: Sequence[str]
    clock: Clock
    _config: ProducerConfig | None = field(default=None, init=False)
    _reachability: Reachability | None = field(default=None, init=False)
    _usable: list[Endpoint] = field(default_factory=list, init=False)
    _client: BlockingClient | None = field(default=None, init=False)
    _metadata: MetadataResponse | None = field(default=None, init=False)
    _nodes: list[Node] = field(default_factory=list, init=False)

    def steps(self) -> list[Step]:
        servers = shown_address(self.target.properties.get("bootstrap.servers", ""))
        return [
            Step(OPTIONS, "all", self._read_options),
            Step(BOOTSTRAP, servers, self._try_bootstrap_servers, (OPTIONS,)),
            Step(CLUSTER, "metadata", self._ask_for_metadata, (OPTIONS,)),
            Step(BROKERS, "advertised listeners", self._try_brokers, (CLUSTER,)),
        ]

    @property
    def config(self) -> ProducerConfig:
        """:raises DependsOnError: if the options are invalid."""
        return required(self._config, OPTIONS)

    def is_given(self, name: str) -> bool:
        """Whether the user has set the property *name*."""
        return name in self.target.properties

    @property
    def timeout_ms(self) -> int:
        """The longest wait for one response, ms."""
        return max(min(self.config.request_timeout_ms, self.config.max_block_ms), 1)

    @property
    def client(self) -> BlockingClient:
        """:raises DependsOnError: if no bootstrap server can be used."""
        return required(self._client, BOOTSTRAP)

    @property
    def metadata(self) -> MetadataResponse:
        """:raises DependsOnError: if no broker has answered."""
        return required(self._metadata, CLUSTER)

    @property
    def nodes(self) -> list[Node]:
        """The brokers whose addresses can be used from here.

        :raises DependsOnError: if there is none.
        """
        return required(self._nodes or None, BROKERS)

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
        target = self.target
        of_plugins = producer_config.names_for_plugins(target.properties)
        config = producer_config.read(target.properties, prefix=target.option_prefix, passed_over=of_plugins)
        builder = create_channel_builder(config, self.clock, CLIENT_ID)
        self._config = config
        self._reachability = Reachability(config, builder, self.timeout_ms, self.clock)
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
        by_subject = required(self._reachability, OPTIONS).findings(named)
        self._usable = [address.endpoint for address in named if by_subject[address.subject][-1].status is Status.OK]
        findings = [finding for of_address in by_subject.values() for finding in of_address]
        return [finding.as_warning() for finding in findings] if self._usable else findings

    def _ask_for_metadata(self) -> Sequence[Finding]:
        if not self._usable:
            raise DependsOnError(BOOTSTRAP)
        config = replace(self.config, bootstrap_servers=tuple(host_and_port(*endpoint) for endpoint in self._usable))
        self._client = BlockingClient(config, client_id=CLIENT_ID, timeout_ms=self.timeout_ms, clock=self.clock)
        failures: list[Finding] = []
        protocol = f"{config.option('security.protocol')}={config.security_protocol}"
        request = RequestSpec(
            ApiKey.METADATA,
            lambda version: MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in self.topics],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=version >= FIRST_WITH_OPERATIONS,
            ),
        )
        for number, endpoint in enumerate(self._usable, 1):
            try:
                answer = self._client.ask(Node(-number, *endpoint), request)
            except ApiError as error:
                advice = "check that this is the port of a Kafka broker, and look into the broker's log"
                if isinstance(error, DisconnectError):
                    advice = (
                        f"the broker does not accept requests here: check that {protocol} is the protocol of this port"
                    )
                subject = f"metadata from {host_and_port(*endpoint)}"
                failures.append(Finding(CLUSTER, subject, Status.FAILED, str(error), advice))
                continue
            assert isinstance(answer, MetadataResponse)
            self._metadata = answer
            count = len(answer.brokers)
            text = f"cluster {answer.cluster_id or 'without id'} has {count} broker{'s' if count != 1 else ''}"
            return [*map(Finding.as_warning, failures), Finding(CLUSTER, "metadata", Status.OK, text)]
        return failures

    def _try_brokers(self) -> Sequence[Finding]:
        nodes = [Node(broker.node_id, broker.host, broker.port) for broker in self.metadata.brokers]
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
        by_subject = required(self._reachability, OPTIONS).findings(list(named.values()))
        findings: list[Finding] = []
        for node, address in named.items():
            of_broker = by_subject[address.subject]
            if of_broker[-1].status is Status.OK:
                self._nodes.append(node)
                text = ", ".join(f"{finding.step}: {finding.found}" for finding in of_broker)
                findings.append(Finding("broker", address.subject, Status.OK, text))
            else:
                findings += of_broker
        return findings
