"""Authenticates a client with a broker: ApiVersions → SaslHandshake → SaslAuthenticate, and again before the session
expires.

Belongs to one connection and is used on its selector's thread. Its requests use reserved correlation ids, because
during reauthentication (KIP-368) answers to earlier requests may arrive between its own answers; those are passed on.
It never exposes a token, and the broker's message is repeated only as the broker's reason, without the secrets that the
broker was sent.

Source: KIP-43, KIP-152, KIP-368; apache/kafka ``SaslClientAuthenticator``.
"""

from __future__ import annotations

import random
from collections import deque
from enum import Enum
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import AuthenticationError, ErrorCode, ProtocolError
from kafka_sink.common.repeated_secrets import RepeatedSecrets
from kafka_sink.common.sasl_mechanisms import MECHANISMS
from kafka_sink.network.frames import (
    UNLIMITED,
    UNLIMITED_MEMORY_POOL,
    FrameReader,
    NetworkReceive,
    NetworkSend,
    SendSlot,
)
from kafka_sink.network.sasl.mechanism import ClientExchange, SaslClient
from kafka_sink.network.transport.transport import READ, WRITE, TransportLayer
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response, encode_request
from kafka_sink.protocol.messages import connection as m
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import Struct

#: The correlation ids reserved for requests of an authentication.
MIN_RESERVED_CORRELATION_ID: Final = 2**31 - 8
_MAX_RESERVED_CORRELATION_ID: Final = 2**31 - 1

#: After version 0 the tokens are sent without Kafka headers, and a broker cannot give a reason for its refusal.
_HANDSHAKE_VERSION: Final = 1
#: The maximum size of a response of an unauthenticated broker. Kafka's brokers limit requests in the same way
#: (sasl.server.max.receive.size).
_MAX_BYTES_BEFORE_AUTHENTICATION: Final = 512 * 1024
#: The maximum number of responses to earlier requests during reauthentication.
_MOST_RECEIVED: Final = 100
#: The share of its lifetime after which a session is renewed: early enough, and not all clients at once.
REAUTHENTICATE_AFTER: Final = (0.85, 0.95)
#: The minimum, even for short sessions: Kafka's brokers refuse to reauthenticate a connection within a second
#: (KIP-368).
_LEAST_SESSION_MS: Final = 1000


class _State(Enum):
    BEGIN = "nothing was sent"
    VERSIONS = "awaiting the broker's versions"
    HANDSHAKE = "awaiting the broker's mechanisms"
    EXCHANGE = "exchanging tokens"
    COMPLETE = "authenticated"


class SaslClientAuthenticator:
    """See the module; *begin* creates the exchange of *mechanism* for each authentication."""

    #: A client needs no principal of the broker: the broker is authenticated by its certificate or by SCRAM.
    principal = ""
    session_expired = False

    def __init__(
        self,
        mechanism: str,
        begin: ClientExchange,
        transport: TransportLayer,
        reader: FrameReader,
        *,
        clock: Clock,
        client_id: str,
    ) -> None:
        self._mechanism = mechanism
        self._begin = begin
        self._transport = transport
        self._reader = reader
        self._clock = clock
        self._client_id = client_id
        self._state = _State.BEGIN
        self._exchange: SaslClient | None = None
        self._slot = SendSlot(transport)
        self._correlation_id = MIN_RESERVED_CORRELATION_ID - 1
        self._versions: dict[int, int] = {}
        self._reauthenticate_at_ms: int | None = None
        self._received: deque[NetworkReceive] = deque()
        self._max_receive_bytes = reader.max_bytes
        most = _MAX_BYTES_BEFORE_AUTHENTICATION
        if reader.max_bytes == UNLIMITED or reader.max_bytes > most:
            reader.limit(most, UNLIMITED_MEMORY_POOL)
        # (API, version) of the one request in flight.
        self._asked: tuple[ApiKey, int] = (ApiKey.API_VERSIONS, 0)

    @property
    def complete(self) -> bool:
        return self._state is _State.COMPLETE

    @property
    def wanted_events(self) -> int:
        # Answers to earlier requests are still read: a broker that cannot send its answers reads no further requests.
        return READ | WRITE if self._slot.wants_write else READ

    @property
    def wants_reauthentication(self) -> bool:
        return self._reauthenticate_at_ms is not None and self._clock.monotonic_ms() >= self._reauthenticate_at_ms

    def begin_reauthentication(self, request: NetworkReceive | None) -> bool:
        self._reauthenticate_at_ms = None
        self._state = _State.BEGIN
        return True

    def take_received(self) -> NetworkReceive | None:
        return self._received.popleft() if self._received else None

    def send_failure(self) -> None:
        """A client sends no failure to the broker."""

    def close(self) -> None:
        while self._received:
            self._received.popleft().release()

    def authenticate(self) -> None:
        if self._state is _State.BEGIN:
            if self._versions:
                self._ask_for_mechanism()
            else:
                # Every broker supports this version. After the authentication the client sends ApiVersions again, in a
                # newer version and with its name.
                self._ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest(), _State.VERSIONS)
        while not self.complete:
            self._slot.write()
            received = self._reader.read_from(self._transport.read_into)
            if received is None:
                return
            is_of_before = self._versions and len(self._received) < _MOST_RECEIVED
            if is_of_before and _correlation_id(received) < MIN_RESERVED_CORRELATION_ID:
                self._received.append(received)
                continue
            try:
                self._handle(self._answer(received))
            finally:
                received.release()

    def _ask(self, key: ApiKey, version: int, request: Struct, state: _State) -> None:
        following = self._correlation_id + 1
        self._correlation_id = following if following <= _MAX_RESERVED_CORRELATION_ID else MIN_RESERVED_CORRELATION_ID
        self._asked = (key, version)
        self._state = state
        segments = encode_request(key, version, self._correlation_id, self._client_id, request)
        self._slot.put(NetworkSend("", segments))

    def _answer(self, received: NetworkReceive) -> Struct:
        key, version = self._asked
        correlation_id, body = decode_response(key, version, received.payload)
        if correlation_id != self._correlation_id:
            raise ProtocolError(f"the response to {key.name} has the correlation id {correlation_id}")
        if not self._slot.used_up:
            raise ProtocolError(f"a response to {key.name} arrived before its request was sent")
        self._slot.clear()
        return body

    def _handle(self, body: Struct) -> None:
        if isinstance(body, m.ApiVersionsResponse):
            self._handle_versions(body)
        elif isinstance(body, m.SaslHandshakeResponse):
            self._handle_mechanisms(body)
        elif isinstance(body, m.SaslAuthenticateResponse):
            self._handle_token(body)

    def _handle_versions(self, body: m.ApiVersionsResponse) -> None:
        code = ErrorCode.of(body.error_code)
        self._versions = {entry.api_key: entry.max_version for entry in body.api_keys}
        if code is not ErrorCode.NONE:
            raise ProtocolError(f"the broker refused the ApiVersions request before SASL: {code.name}")
        if (
            self._versions.get(ApiKey.SASL_HANDSHAKE, -1) < _HANDSHAKE_VERSION
            or ApiKey.SASL_AUTHENTICATE not in self._versions
        ):
            raise AuthenticationError(
                "the broker does not support SaslAuthenticate, which Apache Kafka has had since 1.0"
            )
        self._ask_for_mechanism()

    def _ask_for_mechanism(self) -> None:
        request = m.SaslHandshakeRequest(mechanism=self._mechanism)
        self._ask(ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION, request, _State.HANDSHAKE)

    def _handle_mechanisms(self, body: m.SaslHandshakeResponse) -> None:
        code = ErrorCode.of(body.error_code)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(name for name in MECHANISMS if name in body.mechanisms)
            advice = f"set sasl.mechanism to one of {offered}" if offered else "use another port"
            raise AuthenticationError(f"the broker's listener does not support {self._mechanism}; {advice}", code)
        if code is ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(
                "the broker's listener does not use SASL; set security.protocol to PLAINTEXT or SSL, or use another "
                "port",
                code,
            )
        if code is not ErrorCode.NONE:
            raise AuthenticationError(f"the broker refused the SASL handshake: {code.name}", code)
        self._exchange = self._begin()
        self._send_token(self._exchange.initial_response())

    def _send_token(self, token: bytes) -> None:
        version = min(api(ApiKey.SASL_AUTHENTICATE).versions.max, self._versions[ApiKey.SASL_AUTHENTICATE])
        self._ask(ApiKey.SASL_AUTHENTICATE, version, m.SaslAuthenticateRequest(auth_bytes=token), _State.EXCHANGE)

    def _handle_token(self, body: m.SaslAuthenticateResponse) -> None:
        exchange = self._exchange
        assert exchange is not None
        if body.error_code:
            code = ErrorCode.of(body.error_code)
            reason = RepeatedSecrets(exchange.secrets).hidden_in(body.error_message or code.name)
            raise AuthenticationError(f"the broker refused the authentication ({self._mechanism}): {reason}", code)
        token = exchange.respond(bytes(body.auth_bytes))
        if token is not None:
            self._send_token(token)
        elif exchange.complete:
            self._complete(body.session_lifetime_ms)
        else:
            raise AuthenticationError(
                f"the broker ended the {self._mechanism} exchange before it had proved its identity"
            )

    def _complete(self, session_lifetime_ms: int) -> None:
        self._state = _State.COMPLETE
        self._exchange = None
        self._reader.limit(self._max_receive_bytes, UNLIMITED_MEMORY_POOL)
        if session_lifetime_ms > 0:
            lives_ms = int(session_lifetime_ms * random.uniform(*REAUTHENTICATE_AFTER))
            self._reauthenticate_at_ms = self._clock.monotonic_ms() + max(lives_ms, _LEAST_SESSION_MS)


def _correlation_id(received: NetworkReceive) -> int:
    return int.from_bytes(received.payload[:4], "big")
