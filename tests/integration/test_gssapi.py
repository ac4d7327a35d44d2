"""GSSAPI against the Kerberos library's own accepting side, with a real KDC."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.client.login.channel_security import kerberos_login
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.config import parse
from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.network.sasl.gssapi import GssApiClient, KerberosLogin
from tests.support.kdc import BROKER, USER, Kdc, requires_kerberos, running_kdc

HOST = "127.0.0.1"
OPTION = "kafka.sasl.kerberos.service.name"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc") / "kdc") as running:
        yield running


class Broker:
    """The accepting side."""

    def __init__(self, kdc: Kdc) -> None:
        import gssapi

        self._library: Any = gssapi
        credentials = gssapi.Credentials(usage="accept", store={"keytab": str(kdc.keytab(BROKER))})
        self.context: Any = gssapi.SecurityContext(creds=credentials, usage="accept")

    def begin(self, client: GssApiClient) -> None:
        answer = self.context.step(client.initial_response())
        assert self.context.complete
        # Both sides are authenticated now; the client has nothing to say until it is offered the layers.
        assert client.respond(answer) == b""
        assert not client.complete

    def wrapped(self, data: bytes) -> bytes:
        return bytes(self.context.wrap(data, False).message)

    def unwrapped(self, data: bytes) -> bytes:
        return bytes(self.context.unwrap(data).message)


def client(kdc: Kdc, host: str = HOST, **login: str) -> GssApiClient:
    given = {"service": "kafka", "principal": USER, "keytab": str(kdc.keytab(USER)), **login}
    return GssApiClient(KerberosLogin(**given), host, OPTION)


@requires_kerberos
@pytest.mark.behaviour("SASL", "GSSAPI: both sides prove who they are, and no security layer is chosen")
def test_both_sides_are_authenticated_without_a_layer(kdc: Kdc) -> None:
    ours, broker = client(kdc), Broker(kdc)
    broker.begin(ours)
    # All layers are offered, with messages of 64 KiB.
    answer = ours.respond(broker.wrapped(b"\7\0\xff\xff"))
    assert answer is not None and broker.unwrapped(answer) == b"\1\0\0\0"
    assert ours.complete and str(broker.context.initiator_name) == "alice@EXAMPLE.TEST"
    assert ours.respond(b"") is None
    with pytest.raises(AuthenticationError, match="continued the GSSAPI exchange after its end"):
        ours.respond(b"x")


@requires_kerberos
@pytest.mark.parametrize(
    ("offer", "problem"),
    [
        (b"\6\0\xff\xff", "demands a security layer of Kerberos"),
        (b"\1", "in 1 bytes, expected 4"),
        (None, "no Kerberos authentication as alice"),
    ],
)
def test_brokers_that_offer_something_else_are_refused(offer: bytes | None, problem: str, kdc: Kdc) -> None:
    ours, broker = client(kdc), Broker(kdc)
    broker.begin(ours)
    with pytest.raises(AuthenticationError, match=problem):
        ours.respond(b"\5\4forged" if offer is None else broker.wrapped(offer))
    assert not ours.complete


@requires_kerberos
@pytest.mark.behaviour("SASL", "A broker without the service's key is not believed")
def test_broker_that_cannot_prove_itself_is_refused(kdc: Kdc) -> None:
    ours = client(kdc)
    ours.initial_response()
    with pytest.raises(AuthenticationError, match="no Kerberos authentication"):
        ours.respond(b"")
    ours = client(kdc)
    ours.initial_response()
    with pytest.raises(AuthenticationError, match="no Kerberos authentication"):
        ours.respond(b"\x60\x06forged")


@requires_kerberos
@pytest.mark.behaviour("SASL", "Mistakes with keytab, ticket, host and service are named, with what to do")
def test_mistakes_with_tickets_are_named(kdc: Kdc, tmp_path: Path) -> None:
    for wrong, problem in (
        (
            client(kdc, "elsewhere"),
            "Server kafka/elsewhere@EXAMPLE.TEST not found .*; check kafka.sasl.kerberos.service",
        ),
        (client(kdc, service="kafke"), "Server kafke/127.0.0.1@EXAMPLE.TEST not found"),
        (client(kdc, principal="bob"), "the keytab has no key of this principal; check keyTab and principal"),
        (client(kdc, keytab="/nowhere"), r"\(keytab /nowhere\) .* the keytab cannot be read here; check keyTab"),
        (client(kdc, keytab="", ticket_cache="/nowhere"), "No credentials cache found.*; run kinit, or set useKeyTab"),
        (client(kdc, keytab="", principal=""), "as the default principal .*; run kinit"),
    ):
        with pytest.raises(AuthenticationError, match=problem):
            wrong.initial_response()
    cache = tmp_path / "cache"
    kdc.kinit(cache)
    Broker(kdc).begin(client(kdc, keytab="", principal="", ticket_cache=str(cache)))


def login(**given: str) -> KerberosLogin:
    # GSSAPI is Kafka's default.
    properties = {"bootstrap.servers": "h:1", "sasl.kerberos.service.name": "kafka"}
    properties |= {name.replace("_", "."): value for name, value in given.items()}
    return kerberos_login(parse(ClientConfig, properties))


@pytest.mark.behaviour("SASL", "Krb5LoginModule's options are understood as Java writes them")
def test_login_module_of_java_is_understood() -> None:
    line = f'{MODULE} useKeyTab=true storeKey=true keyTab="FILE:/etc/a.keytab" principal="a/host@REALM";'
    assert login(sasl_jaas_config=line) == KerberosLogin("kafka", "a/host@REALM", "/etc/a.keytab")
    line = f'{MODULE} useTicketCache=true renewTGT=true ticketCache="/tmp/krb5cc_7" serviceName="kafka";'
    found = login(sasl_jaas_config=line, sasl_kerberos_service_name="")
    assert found == KerberosLogin("kafka", ticket_cache="/tmp/krb5cc_7")
    assert found.store() == {"ccache": "/tmp/krb5cc_7"}
    assert login().store() == {}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"sasl_kerberos_service_name": ""}, "GSSAPI, Kafka's default, needs sasl.kerberos.service.name"),
        ({"sasl_jaas_config": f"{MODULE} useKeyTab=true;"}, "useKeyTab=true needs keyTab and principal"),
        ({"sasl_jaas_config": f'{MODULE} keyTab="/a";'}, "keyTab is only read with useKeyTab=true"),
        ({"sasl_jaas_config": f"{MODULE} useKeyTab=yes;"}, "useKeyTab must be true or false"),
        ({"sasl_jaas_config": f"{MODULE} keytab=x;"}, "has no option keytab here; expected keyTab, principal"),
        ({"sasl_jaas_config": f'{MODULE} serviceName="other";'}, "is kafka, and serviceName in sasl.jaas.config is"),
        (
            {"sasl_jaas_config": 'ScramLoginModule required username="a";'},
            "is for SCRAM-SHA-256 and SCRAM-SHA-512, but sasl.mechanism is GSSAPI, which is Kafka's default; set it",
        ),
    ],
)
def test_login_module_that_lacks_or_contradicts_is_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        login(**given)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(AuthenticationError, match=r"pip install 'kafkalite\[kerberos\]'"):
        GssApiClient(KerberosLogin("kafka"), HOST, OPTION).initial_response()
