"""The steps that depend on the machine: options and files, bootstrap servers, and the address of every broker.

They are run from the driver and from an executor, on the calling thread. Of an address the name, the port and the
security protocol are tried, each with what to do about it, without a request: every wait has a limit, and a connection
is closed as soon as its outcome is known. An address whose name does not resolve is not connected to, and TLS and SASL
are only tried where the port answers. The client that the steps leave behind asks the cluster in later steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from kafka_sink.client.blocking.blocking import BlockingClient, RequestSpec
from kafka_sink.client.login.channel_security import create_channel_builder
from kafka_sink.client.login.credentials import is_of_aws
from kafka_sink.client.options.config import PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL, ClientConfig, parse_addresses
from kafka_sink.common import config as c
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, DisconnectError, SslAuthenticationError
from kafka_sink.common.model import Node, host_and_port
from kafka_sink.common.sasl_mechanisms import AWS_MSK_IAM, MECHANISMS, OAUTHBEARER
from kafka_sink.common.threads import start_thread
from kafka_sink.network.channel.channel import ChannelBuilder
from kafka_sink.network.channel.selectable import ChannelState, Disconnect, cause_of
from kafka_sink.network.polling.selector import KSelector
from kafka_sink.network.transport.resolver import SocketAddress, resolve
from kafka_sink.network.transport.transport import OS_DEFAULT_BUFFER
from kafka_sink.preflight.findings import DependsOnError, Finding, Status, Step, known
from kafka_sink.preflight.target import CheckTarget
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import (
    FIRST_WITH_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kafka_sink.protocol.schema import Struct

#: Host and port.
Endpoint: TypeAlias = tuple[str, int]
NAME: Final = "name"
PORT: Final = "port"
TLS: Final = "TLS"
SASL: Final = "SASL"
_AGREED: Final = {SSL: "TLS", SASL_PLAINTEXT: "SASL", SASL_SSL: "TLS and SASL"}
_OF_TLS: Final = "TLS failed: "


def resolve_within(host: str, port: int, timeout_ms: int) -> list[SocketAddress]:
    """The addresses of *host*. The system's resolver cannot be interrupted, so it runs on a thread of its own, which is
    left behind if it does not answer in time.

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
    selector = KSelector(builder, clock)
    try:
        return _Attempts(selector, clock).outcomes(addresses, timeout_ms)
    finally:
        selector.close()


class _Attempts:
    """Connection attempts that share a selector and a deadline."""

    def __init__(self, selector: KSelector, clock: Clock) -> None:
        self._selector = selector
        self._clock = clock
        self._outcomes: dict[str, Disconnect | None] = {}
        self._established: set[str] = set()

    def outcomes(self, addresses: Mapping[str, SocketAddress], timeout_ms: int) -> dict[str, Disconnect | None]:
        for name, address in addresses.items():
            self._begin(name, address)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while pending := [name for name in addresses if name not in self._outcomes]:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._outcomes |= {name: self._timed_out(name, timeout_ms) for name in pending}
                break
            self._selector.poll(left_ms)
            self._take(pending)
        return {name: self._outcomes[name] for name in addresses}

    def _begin(self, name: str, address: SocketAddress) -> None:
        try:
            self._selector.connect(name, address, OS_DEFAULT_BUFFER, OS_DEFAULT_BUFFER)
        except OSError as error:
            self._outcomes[name] = Disconnect(ChannelState.NOT_CONNECTED, cause_of(error))

    def _take(self, pending: list[str]) -> None:
        self._established.update(self._selector.connected)
        self._outcomes.update(self._selector.disconnected)
        for name in pending:
            if name not in self._outcomes and self._selector.can_send(name):
                self._outcomes[name] = None
                self._selector.close_connection(name)

    def _timed_out(self, name: str, timeout_ms: int) -> Disconnect:
        is_established = name in self._established
        state = ChannelState.AUTHENTICATE if is_established else ChannelState.NOT_CONNECTED
        return Disconnect(state, f"no answer within {timeout_ms} ms")


@dataclass(frozen=True)
class Named:
    """An address to try: its name in the table, and what to do if the name does not resolve or the port does not
    answer."""

    subject: str
    endpoint: Endpoint
    if_unresolved: str
    if_unreachable: str


class Reachability:
    """Tries addresses with the security protocol of *config*, whose channels *builder* makes. Each step of all
    addresses together takes at most *timeout_ms*."""

    def __init__(self, config: ClientConfig, builder: ChannelBuilder, timeout_ms: int, clock: Clock) -> None:
        self._config = config
        self._builder = builder
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._tried: dict[Endpoint, Sequence[Finding]] = {}

    def findings(self, addresses: Sequence[Named]) -> dict[str, Sequence[Finding]]:
        """The findings of each of *addresses*, by subject; the last one is OK only if the address can be used. An
        endpoint that was tried before is not tried again."""
        unknown = {each.endpoint: each for each in addresses if each.endpoint not in self._tried}
        self._tried |= self._try(unknown)
        return {each.subject: [_for(each, finding) for finding in self._tried[each.endpoint]] for each in addresses}

    def _try(self, addresses: Mapping[Endpoint, Named]) -> dict[Endpoint, Sequence[Finding]]:
        resolved: dict[Endpoint, list[SocketAddress]] = {}
        findings: dict[Endpoint, list[Finding]] = {}
        for endpoint, named in addresses.items():
            try:
                resolved[endpoint] = resolve_within(*endpoint, self._timeout_ms)
                hosts = ", ".join(dict.fromkeys(address.host for address in resolved[endpoint]))
                findings[endpoint] = [Finding(NAME, named.subject, Status.OK, hosts)]
            except OSError as error:
                findings[endpoint] = [Finding(NAME, named.subject, Status.FAILED, str(error), named.if_unresolved)]
        answering = self._try_ports(resolved, findings)
        if self._config.security_protocol != PLAINTEXT:
            self._try_security(answering, findings)
        for endpoint, named in addresses.items():
            findings[endpoint] += self._untried(findings[endpoint], named)
        return {endpoint: tuple(each) for endpoint, each in findings.items()}

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
            usable = [address for address in addresses if outcomes[_id(endpoint, address)] is None]
            silent = {str(address): outcomes[_id(endpoint, address)] for address in addresses if address not in usable}
            text = "; ".join(f"{name}: {lost.cause}" for name, lost in silent.items() if lost is not None)
            if usable:
                answering[endpoint] = usable[0]
                findings[endpoint].append(Finding(PORT, "", Status.OK, f"answers, but {text}" if text else "answers"))
            else:
                findings[endpoint].append(Finding(PORT, "", Status.FAILED, text))
        return answering

    def _try_security(
        self, answering: Mapping[Endpoint, SocketAddress], findings: dict[Endpoint, list[Finding]]
    ) -> None:
        outcomes = self._connect(
            {_id(endpoint, address): address for endpoint, address in answering.items()}, self._builder
        )
        for endpoint, address in answering.items():
            lost = outcomes[_id(endpoint, address)]
            findings[endpoint].append(self._agreed() if lost is None else self._disagreed(lost))

    def _connect(self, addresses: Mapping[str, SocketAddress], builder: ChannelBuilder) -> dict[str, Disconnect | None]:
        return connect_all(addresses, builder, self._timeout_ms, self._clock) if addresses else {}

    def _agreed(self) -> Finding:
        protocol = self._config.security_protocol
        mechanism = f" with {self._config.sasl_mechanism}" if protocol in (SASL_PLAINTEXT, SASL_SSL) else ""
        return Finding(_AGREED[protocol], "", Status.OK, f"{protocol}{mechanism} accepted")

    def _disagreed(self, lost: Disconnect) -> Finding:
        protocol, error = self._config.security_protocol, lost.authentication_error
        if isinstance(error, SslAuthenticationError):
            problem, _, advice = str(error).removeprefix(_OF_TLS).partition(": ")
            return Finding(TLS, "", Status.FAILED, problem, advice or self._other_protocol())
        if error is not None:
            return Finding(SASL, "", Status.FAILED, str(error), self._of_credentials())
        stage = TLS if protocol in (SSL, SASL_SSL) else SASL
        return Finding(stage, "", Status.FAILED, f"no agreement: {lost.cause}", self._other_protocol())

    def _of_credentials(self) -> str:
        """The remedy if the credentials were refused."""
        config, mechanism = self._config, self._config.sasl_mechanism
        if mechanism == OAUTHBEARER and is_of_aws(config):
            mechanism = AWS_MSK_IAM
        return MECHANISMS[mechanism].advice.format(prefix=config.option_prefix)

    def _other_protocol(self) -> str:
        return (
            f"check that {self._config.option('security.protocol')}={self._config.security_protocol} is the protocol "
            "of this port's listener"
        )

    def _untried(self, findings: Sequence[Finding], named: Named) -> list[Finding]:
        """The steps that were not tried, because an earlier one failed."""
        steps = [NAME, PORT]
        if self._config.security_protocol != PLAINTEXT:
            steps.append(_AGREED[self._config.security_protocol])
        failed = [finding.step for finding in findings if finding.status is Status.FAILED]
        if not failed:
            return []
        return [Finding(step, "", Status.NOT_TRIED, f"needs: {failed[0]}") for step in steps[len(findings) :]]


def _for(named: Named, finding: Finding) -> Finding:
    advice = finding.what_to_do
    if finding.status is Status.FAILED and finding.step in (NAME, PORT):
        advice = named.if_unresolved if finding.step == NAME else named.if_unreachable
    return Finding(finding.step, named.subject, finding.status, finding.found, advice)


def _id(endpoint: Endpoint, address: SocketAddress) -> str:
    return f"{endpoint[0]}:{endpoint[1]} {address}"


OPTIONS: Final = "options"
BOOTSTRAP: Final = "bootstrap servers"
CLUSTER: Final = "cluster"
BROKERS: Final = "brokers"

#: Answers from this version on say what the principal may do (KIP-430).

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
            include_topic_authorized_operations=version >= FIRST_WITH_OPERATIONS,
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
