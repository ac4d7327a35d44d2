"""Wrong TLS and SASL settings while many records are being sent: each record fails with the cause, and in time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.broker import running_cluster
from kafka_sink.broker.authorizer import Users
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.broker.network.listener_security import users_of
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.sasl_mechanisms import ScramCredential
from kafka_sink.common.threads import start_thread
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.support.certificates import Authority
from tests.support.readback import read_topic
from tests.support.secure_cluster import PASSWORD, client_properties, secure_cluster
from tests.support.sessions import renew_early

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("127.0.0.1", "localhost")
TRUSTED = {"ssl_truststore_certificates": AUTHORITY.pem}
ALICE = {"sasl_username": "alice", "sasl_password": PASSWORD}
#: Words of errors of our own state machines.
OUR_OWN_STATE = ("RuntimeError", "not ready", "could not be sent", "uncaught error", "AssertionError", "invalid state")
#: Beyond the time-out of a call: the machine may be busy.
SLACK_S = 20.0


class Load:
    """Threads that send records and rows until they are stopped, and the outcomes of all records."""

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self._stopped = False
        self.errors: list[Exception] = []
        self.acknowledged = 0
        self.longest_call_s = 0.0
        senders: tuple[Callable[[], Any], ...] = (self._send, self._send, self._send_columns)
        self._threads = [start_thread(f"load-{number}", send) for number, send in enumerate(senders)]

    def _send(self) -> None:
        while not self._stopped:
            batch = [self._timed(lambda: self._producer.send(ProducerRecord("t", b"x" * 500))) for _ in range(20)]
            self._settle([(future, 1) for future in batch if future is not None])

    def _send_columns(self) -> None:
        rows = pa.table({"value": [b"y" * 500] * 500})
        while not self._stopped:
            future = self._timed(lambda: self._producer.send_columns("t", rows))
            self._settle([] if future is None else [(future, 500)])

    def _timed(self, call: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            return None if self._stopped else call()
        except Exception as error:
            self.errors.append(error)
            return None
        finally:
            self.longest_call_s = max(self.longest_call_s, time.monotonic() - began)

    def _settle(self, sent: list[tuple[Any, int]]) -> None:
        for future, rows in sent:
            try:
                future.result(60)
                self.acknowledged += rows
            except Exception as error:
                self.errors.append(error)

    def await_errors(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.errors) < count:
            assert time.monotonic() < deadline, f"{len(self.errors)} errors, {self.acknowledged} acknowledged"
            time.sleep(0.01)

    def await_acknowledged(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while self.acknowledged < count:
            assert not self.errors, self.errors[0]
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopped = True
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    caplog.set_level(logging.WARNING)
    yield caplog
    assert not [text for text in caplog.messages if any(own in text for own in OUR_OWN_STATE)]


def check_causes(load: Load, cause: str) -> None:
    """Check that every error names *cause* and none is one of our own state machines."""
    for error in load.errors:
        text = f"{type(error).__name__} {error}"
        assert isinstance(error, KafkaError), text
        assert not any(own in text for own in OUR_OWN_STATE), text
        assert cause in text, text


#: (what the broker shows, listener, what the client believes, words of the cause).
FROM_THE_START: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "wrong-authority": (Authority("other").issue("127.0.0.1").pem(), "SSL", TRUSTED, "not trusted"),
    "wrong-name": (AUTHORITY.issue("elsewhere.test").pem(), "SSL", TRUSTED, "not valid for this host name"),
    "wrong-password": (
        BROKER.pem(),
        "SASL_SSL",
        {**TRUSTED, **ALICE, "sasl_password": "wrong", "sasl_mechanism": "SCRAM-SHA-512"},
        "the broker refused the authentication (SCRAM-SHA-512)",
    ),
    "plaintext-to-tls": (BROKER.pem(), "SSL", {"security_protocol": "PLAINTEXT"}, "security.protocol"),
    "tls-to-plaintext": (BROKER.pem(), "PLAINTEXT", {**TRUSTED, "security_protocol": "SSL"}, "security.protocol"),
}


@pytest.mark.behaviour("Faults: security", "A wrong security setting fails every send with its cause")
@pytest.mark.parametrize("case", FROM_THE_START)
@pytest.mark.usefixtures("logged")
def test_a_wrong_setting_fails_every_send_with_its_cause(case: str) -> None:
    keystore, listener, believed, cause = FROM_THE_START[case]
    with secure_cluster(keystore) as cluster:
        properties = client_properties(cluster, listener, **{"max_block_ms": 3000, **believed})
        producer = KafkaProducer(properties)
        load = Load(producer)
        load.await_errors(3)
        load.stop()
        with suppress(KafkaTimeoutError):
            producer.close(timeout=0)
        assert load.acknowledged == 0
        assert load.longest_call_s < 3 + SLACK_S
        check_causes(load, cause)


def stored(cluster: EmbeddedCluster) -> int:
    return len(list(read_topic(cluster.bootstrap_servers, "t")))


@pytest.mark.behaviour("Faults: security", "A certificate that goes wrong under load is named as the cause")
@pytest.mark.parametrize(
    ("identity", "cause"),
    [
        (Authority("next").issue("127.0.0.1"), "not trusted"),
        (AUTHORITY.issue("elsewhere.test"), "not valid for this host name"),
    ],
    ids=["wrong-authority", "wrong-name"],
)
@pytest.mark.usefixtures("logged")
def test_a_certificate_that_goes_wrong_under_load_says_so(identity: Any, cause: str, tmp_path: Path) -> None:
    keystore = tmp_path / "broker.pem"
    keystore.write_text(BROKER.pem())
    files = {"ssl_keystore_key": "", "ssl_keystore_certificate_chain": "", "ssl_keystore_location": str(keystore)}
    with secure_cluster("", **files) as cluster:
        producer = KafkaProducer(short_lived(cluster, "SSL", **TRUSTED))
        load = Load(producer)
        load.await_acknowledged(2000)
        fresh = tmp_path / "next.pem"
        fresh.write_text(identity.pem())
        fresh.replace(keystore)
        with cluster.faults.on("produce", times=2, close="request"):
            load.await_errors(20)
        load.stop()
        with suppress(KafkaTimeoutError):
            producer.close(timeout=0)
        assert load.longest_call_s < 5 + SLACK_S
        check_causes(load, cause)
        assert stored(cluster) >= load.acknowledged


@pytest.mark.behaviour("Faults: security", "A password that is withdrawn under load is named as the cause")
@pytest.mark.parametrize(("listener", "mechanism"), [("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")])
@pytest.mark.usefixtures("logged")
def test_a_password_withdrawn_under_load_says_so(
    listener: str, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew_early(monkeypatch)
    users: list[Users] = []

    def noted(*given: Any) -> Users:
        users.append(users_of(*given))
        return users[-1]

    monkeypatch.setattr(running_cluster, "users_of", noted)
    with secure_cluster(BROKER.pem(), connections_max_reauth_ms=3000) as cluster:
        properties = short_lived(cluster, listener, **TRUSTED, **ALICE, sasl_mechanism=mechanism)
        producer = KafkaProducer(properties)
        load = Load(producer)
        load.await_acknowledged(2000)
        for each in users:
            each.passwords["alice"] = "another"  # type: ignore[index]
            each.configured["SCRAM-SHA-512", "alice"] = ScramCredential.of("SCRAM-SHA-512", "another")  # type: ignore[index]
        load.await_errors(20)
        load.stop()
        with suppress(KafkaTimeoutError):
            producer.close(timeout=0)
        assert load.longest_call_s < 5 + SLACK_S
        check_causes(load, f"the broker refused the authentication ({mechanism})")
        assert stored(cluster) >= load.acknowledged


def short_lived(cluster: EmbeddedCluster, listener: str, **properties: Any) -> dict[str, Any]:
    """Return the properties of a producer with short time-outs."""
    times = {"max_block_ms": 5000, "delivery_timeout_ms": 5000, "request_timeout_ms": 4000, "linger_ms": 5}
    return client_properties(cluster, listener, **{**times, "metadata_max_age_ms": 500, **properties})
