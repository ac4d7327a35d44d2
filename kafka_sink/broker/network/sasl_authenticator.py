"""SASL authentication on the broker: ApiVersions, SaslHandshake and SaslAuthenticate requests, and reauthentication.

Belongs to one connection and its processor's thread. Before a client has authenticated, the size of its requests is
limited, and any other request closes the connection. Log messages name the user, but never contain credentials; the
client only learns that authentication failed.

Source: KIP-43, KIP-152, KIP-368; apache/kafka ``SaslServerAuthenticator``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import AuthenticationError, ErrorCode, InvalidReceiveError, ProtocolError
from kafka_sink.network.channel.authenticator import ANONYMOUS
from kafka_sink.network.frames import (
    UNLIMITED_MEMORY_POOL,
    FrameReader,
    MemoryPool,
    NetworkReceive,
    NetworkSend,
    SendSlot,
)
from kafka_sink.network.sasl.mechanism import NO_EXPIRY, SaslServer, ServerExchange
from kafka_sink.network.transport.transport import READ, WRITE, TransportLayer
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.codec import decode
from kafka_sink.protocol.header import RequestHeader, decode_request_header, encode_response
from kafka_sink.protocol.messages import connection as m
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import S, Struct

#: Returns the answer to an ApiVersions request of a version, and the version of the answer.
AnswerVersions: TypeAlias = Callable[[m.ApiVersionsRequest, int], tuple[m.ApiVersionsResponse, int]]

#: Minimum interval between two authentications of a client.
MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000
_MOST_REQUESTS: Final = 100  # In one call: a client without a login must not hold the network thread.


class _State(Enum):
    HANDSHAKE = "awaiting ApiVersions or SaslHandshake"
    TOKENS = "awaiting SaslAuthenticate"
    BARE_TOKENS = "awaiting tokens without request headers"
    COMPLETE = "authenticated"


class SaslServerAuthenticator:
    """See the module; *exchanges* has a factory of exchanges for each enabled mechanism."""

    wants_reauthentication = False

    def __init__(
        self,
        exchanges: Mapping[str, ServerExchange],
        transport: TransportLayer,
        reader: FrameReader,
        *,
        clock: Clock,
        config: BrokerConfig,
        memory_pool: MemoryPool,
        answer_versions: AnswerVersions,
        login_pool: MemoryPool = UNLIMITED_MEMORY_POOL,
    ) -> None:
        self._exchanges = exchanges
        self._transport = transport
        self._reader = reader
        self._clock = clock
        self._config = config
        self._memory_pool = memory_pool
        self._login_pool = login_pool
        self._answer_versions = answer_versions
        self._state = _State.HANDSHAKE
        self._mechanism = ""
        self._exchange: SaslServer | None = None
        self._slot = SendSlot(transport)
        self._failure: Sequence[Buffer] | None = None
        self._user_name: str | None = None
        self._user_mechanism = ""
        self._expires_at_ms: int | None = None
        self._began_again_ms: int | None = None
        self._request: NetworkReceive | None = None
        self._limit_requests()

    @property
    def principal(self) -> str:
        return f"User:{ANONYMOUS if self._user_name is None else self._user_name}"

    @property
    def complete(self) -> bool:
        return self._state is _State.COMPLETE and not self._slot.taken

    @property
    def wanted_events(self) -> int:
        # Strictly alternating: nothing is read from a client before our answer was sent.
        return WRITE if self._slot.wants_write else READ

    @property
    def session_expired(self) -> bool:
        return self._expires_at_ms is not None and self._clock.monotonic_ms() > self._expires_at_ms

    def begin_reauthentication(self, request: NetworkReceive | None) -> bool:
        now_ms = self._clock.monotonic_ms()
        began_ms = self._began_again_ms
        if self._expires_at_ms is None or (
            began_ms is not None and now_ms - began_ms < MIN_REAUTHENTICATION_INTERVAL_MS
        ):
            return False
        self._began_again_ms = now_ms
        self._request = request
        self._state = _State.HANDSHAKE
        self._limit_requests()
        return True

    def take_received(self) -> NetworkReceive | None:
        return None

    def send_failure(self) -> None:
        if self._failure is not None:
            self._slot.put(NetworkSend("", self._failure))
            self._failure = None
        # The client may have closed the connection before it received the answer.
        with contextlib.suppress(OSError):
            self._slot.write()

    def close(self) -> None:
        if self._request is not None:
            self._request.release()
            self._request = None

    def _limit_requests(self) -> None:
        # Unauthenticated clients must not use the memory of authenticated ones.
        self._reader.limit(self._config.sasl_server_max_receive_size, self._login_pool)

    def authenticate(self) -> None:
        for _ in range(_MOST_REQUESTS):
            if not self._flush() or self._state is _State.COMPLETE:
                return
            request, self._request = self._request, None
            received = request or self._reader.read_from(self._transport.read_into)
            if self._reader.awaits_memory:
                raise InvalidReceiveError("clients that log in at the same time hold all memory for it")
            if received is None:
                return
            try:
                self._handle(received)
            finally:
                received.release()
        raise AuthenticationError("more requests at once than a login has", ErrorCode.ILLEGAL_SASL_STATE)

    def _flush(self) -> bool:
        """Continue to write; False if the socket accepts no more bytes for now."""
        self._slot.write()
        return not self._slot.wants_write

    def _handle(self, received: NetworkReceive) -> None:
        if self._state is _State.BARE_TOKENS:
            self._slot.put(NetworkSend("", [self._evaluate(bytes(received.payload))]))
            return
        header, offset = decode_request_header(received.payload)
        if header.api_key is ApiKey.API_VERSIONS and self._state is _State.HANDSHAKE:
            asked = m.ApiVersionsRequest()
            if header.api_version in api(header.api_key).versions:
                asked = _body(m.ApiVersionsRequest, header, received.payload, offset)
            self._respond(header, *self._answer_versions(asked, header.api_version))
        elif header.api_key is ApiKey.SASL_HANDSHAKE and self._state is _State.HANDSHAKE:
            self._shake_hands(header, _body(m.SaslHandshakeRequest, header, received.payload, offset))
        elif header.api_key is ApiKey.SASL_AUTHENTICATE and self._state is _State.TOKENS:
            self._take_token(header, _body(m.SaslAuthenticateRequest, header, received.payload, offset))
        else:
            raise AuthenticationError(
                f"unexpected {header.api_key.name} request during SASL authentication", ErrorCode.ILLEGAL_SASL_STATE
            )

    def _respond(self, header: RequestHeader, body: Struct, version: int | None = None) -> None:
        version = header.api_version if version is None else version
        self._slot.put(NetworkSend("", encode_response(header.api_key, version, header.correlation_id, body)))

    def _shake_hands(self, header: RequestHeader, body: m.SaslHandshakeRequest) -> None:
        mechanisms = sorted(self._exchanges)
        begin = self._exchanges.get(body.mechanism)
        if begin is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._respond(header, m.SaslHandshakeResponse(error_code=code, mechanisms=mechanisms))
            self._flush()
            raise AuthenticationError(f"mechanism {body.mechanism!r} is not one of {', '.join(mechanisms)}", code)
        self._mechanism = body.mechanism
        self._exchange = begin()
        self._state = _State.TOKENS if header.api_version > 0 else _State.BARE_TOKENS
        self._respond(header, m.SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=mechanisms))

    def _take_token(self, header: RequestHeader, body: m.SaslAuthenticateRequest) -> None:
        try:
            token = self._evaluate(bytes(body.auth_bytes))
        except AuthenticationError as error:
            refusal = m.SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
            )
            self._failure = encode_response(header.api_key, header.api_version, header.correlation_id, refusal)
            raise
        lifetime_ms = 0
        if self._state is _State.COMPLETE and self._expires_at_ms is not None:
            lifetime_ms = self._expires_at_ms - self._clock.monotonic_ms()
        self._respond(header, m.SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms))

    def _evaluate(self, token: bytes) -> bytes:
        exchange = self._exchange
        assert exchange is not None
        if self._user_name is not None and self._mechanism != self._user_mechanism:
            raise AuthenticationError(f"re-authentication must use {self._user_mechanism} again")
        answer = exchange.evaluate(token)
        if exchange.complete:
            if self._user_name is not None and exchange.user_name != self._user_name:
                raise AuthenticationError("re-authentication must not change the principal")
            self._let_in(exchange)
        return answer

    def _let_in(self, exchange: SaslServer) -> None:
        self._user_name, self._user_mechanism = exchange.user_name, self._mechanism
        self._exchange = None
        lifetimes = []
        if self._config.connections_max_reauth_ms > 0:
            lifetimes.append(self._config.connections_max_reauth_ms)
        if exchange.expires_ms != NO_EXPIRY:
            lifetimes.append(max(exchange.expires_ms - self._clock.wall_ms(), 0))
        self._expires_at_ms = self._clock.monotonic_ms() + min(lifetimes) if lifetimes else None
        self._state = _State.COMPLETE
        self._reader.limit(self._config.socket_request_max_bytes, self._memory_pool)


def _body(kind: type[S], header: RequestHeader, payload: memoryview, offset: int) -> S:
    if header.api_version not in api(header.api_key).versions:
        raise ProtocolError(f"{header.api_key.name} has no version {header.api_version}")
    return decode(kind, payload[offset:], header.api_version)
