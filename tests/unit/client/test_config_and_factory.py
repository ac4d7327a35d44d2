from __future__ import annotations

import configparser
import socket
from pathlib import Path

import pytest

from kafka_sink.client.factory import bootstrap_addresses, create_client
from kafka_sink.client.options.config import ClientConfig, parse_addresses
from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.version import VERSION
from kafka_sink.network.polling.selector import KSelector, SelectorLimits
from tests.fakes.selectable import FakeSelectable
from tests.support.cases import with_each


def config(servers: str = "127.0.0.1:9092", **properties: object) -> ClientConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return c.parse(ClientConfig, {"bootstrap.servers": servers, **named})


def test_defaults_are_kafkas() -> None:
    shown = config()
    assert (shown.request_timeout_ms, shown.max_in_flight_requests_per_connection) == (30_000, 5)
    assert (shown.reconnect_backoff_ms, shown.reconnect_backoff_max_ms) == (50, 1_000)
    assert (shown.retry_backoff_ms, shown.retry_backoff_max_ms) == (100, 1_000)
    assert (shown.send_buffer_bytes, shown.receive_buffer_bytes) == (131_072, 32_768)
    assert (shown.metadata_max_age_ms, shown.metadata_max_idle_ms) == (300_000, 300_000)
    assert (shown.connections_max_idle_ms, shown.client_id) == (540_000, "")


def test_a_wait_before_reconnecting_grows_only_to_what_was_set() -> None:
    assert config(reconnect_backoff_ms=5_000).reconnect_backoff_max_ms == 5_000
    assert config(reconnect_backoff_ms=20).reconnect_backoff_max_ms == 20
    assert config(reconnect_backoff_ms=20, reconnect_backoff_max_ms=70).reconnect_backoff_max_ms == 70
    assert config(reconnect_backoff_max_ms=70).reconnect_backoff_ms == 50


@pytest.mark.behaviour(
    "What people paste", "Values are read as Java reads them: trimmed, names of protocols in any case"
)
def test_values_are_read_as_java_reads_them() -> None:
    shown = config(security_protocol=" sasl_ssl\x0b", metadata_recovery_strategy="None", retry_backoff_ms="\t+7\x00")
    assert (shown.security_protocol, shown.metadata_recovery_strategy, shown.retry_backoff_ms) == (
        "SASL_SSL",
        "none",
        7,
    )
    assert config("a:1, a:1,b:2").bootstrap_servers == ("a:1", "b:2")
    for value in ("1_000", "7\u2003", "7.0", "0x7"):
        with pytest.raises(ConfigError, match=r"option retry\.backoff\.ms: .* is not a whole number"):
            config(retry_backoff_ms=value)
    with pytest.raises(ConfigError, match="is not a number"):
        config(sasl_login_refresh_window_factor="0.8d")


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap.servers is required"):
        c.parse(ClientConfig, {})
    with pytest.raises(ConfigError, match="expected host:port"):
        config(" , ")


def test_addresses_are_host_and_port() -> None:
    servers = ("a.b-c_d:1", "[::1]:2", "PLAINTEXT://host:3", "10.0.0.1:65535")
    assert parse_addresses(servers) == [("a.b-c_d", 1), ("::1", 2), ("host", 3), ("10.0.0.1", 65535)]


@with_each(
    "entry", ["host", "host:", "host:x", ":9092", "host:0", "host:65536", "ho st:1", "http//x:1", "h:" + "9" * 5000]
)
def test_anything_else_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"is not host:port, for example 127.0.0.1:9092"):
        parse_addresses((entry,))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def resolve(host: str, port: int, **options: object) -> object:
        if host.endswith(".bad"):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return real("127.0.0.1", port, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "getnameinfo", lambda sockaddr, flags: ("full.name", "1"))


@pytest.mark.usefixtures("names")
def test_addresses_that_do_not_resolve_are_left_out() -> None:
    addresses, unresolved = bootstrap_addresses(config("x.bad:1,good:2,good:2"))
    assert addresses == [("good", 2)]
    assert [str(failure) for failure in unresolved] == ["x.bad:1: cannot resolve host name 'x.bad': unknown"]
    client, _ = create_client(config("x.bad:1,good:2"), client_id="me", selectable=FakeSelectable())
    assert client.connection_failures() == tuple(unresolved)
    with pytest.raises(
        ConfigError, match=r"no usable address; x.bad:1: cannot resolve host name 'x.bad': unknown; y.bad:2: "
    ):
        bootstrap_addresses(config("x.bad:1,y.bad:2"))


@pytest.mark.usefixtures("names")
def test_canonical_names_replace_bootstrap_addresses_on_request() -> None:
    lookup = "resolve_canonical_bootstrap_servers_only"
    assert bootstrap_addresses(config("alias:2", client_dns_lookup=lookup)) == ([("full.name", 2)], [])


def test_a_client_starts_with_nothing_but_its_addresses() -> None:
    network = FakeSelectable()
    client, metadata = create_client(config(), client_id="me", clock=network.clock, selectable=network)
    assert metadata.fetch().is_bootstrap
    assert [(node.host, node.port) for node in metadata.fetch().nodes] == [("127.0.0.1", 9092)]
    assert network.connects == []
    client.close()


def test_without_a_network_given_it_makes_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    init = KSelector.__init__

    def note(self: KSelector, *args: object, **options: object) -> None:
        made.append((args[2], options))
        init(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(KSelector, "__init__", note)
    client, _ = create_client(config(connections_max_idle_ms="7", receive_message_max_bytes="5000"), client_id="me")
    client.close()
    limits = SelectorLimits(max_receive_bytes=5000, connections_max_idle_ms=7)
    assert made == [(limits, {"metrics": None, "log_context": "client.id=me"})]


def test_the_version_told_to_brokers_is_that_of_the_package() -> None:
    metadata = configparser.ConfigParser()
    metadata.read(Path(__file__).parents[3] / "setup.cfg")
    assert metadata["metadata"]["version"] in (VERSION, "attr: kafka_sink.common.version.VERSION")
