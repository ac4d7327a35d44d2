"""A request as its sender describes it, and its outcome.

Created on the thread that drives the NetworkClient; callbacks also run on that thread. Plain values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_sink.common.errors import AuthenticationError, UnsupportedVersionError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import Struct

#: Builds the request's body once the version is negotiated with the broker.
BodyBuilder = Callable[[int], Struct]


@dataclass(frozen=True, slots=True, eq=False)
class ClientRequest:
    """A request to *destination* (a connection id); *timeout_ms* counts from the moment when the request is passed to
    the connection.

    *max_version* limits the negotiated version. Without *expect_response* the request is complete once it is written.
    """

    destination: str
    api_key: ApiKey
    build: BodyBuilder
    correlation_id: int
    client_id: str
    created_ms: int
    expect_response: bool
    timeout_ms: int
    max_version: int | None
    callback: ResponseCallback | None

    def __str__(self) -> str:
        return f"{self.api_key.name} request {self.correlation_id}"

    def ended(
        self,
        now_ms: int,
        *,
        body: Struct | None = None,
        disconnected: bool = False,
        version_mismatch: UnsupportedVersionError | None = None,
        authentication_error: AuthenticationError | None = None,
        cause: str = "",
    ) -> ClientResponse:
        """The response that completes this request."""
        return ClientResponse(
            request=self,
            body=body,
            disconnected=disconnected,
            version_mismatch=version_mismatch,
            authentication_error=authentication_error,
            received_ms=now_ms,
            latency_ms=now_ms - self.created_ms,
            cause=cause,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClientResponse:
    """The outcome of a request, exactly one of: an answer (*body*, None if none was expected), *disconnected* (*cause*
    says why), or *version_mismatch* (broker and client have no version of the API in common; nothing was sent)."""

    request: ClientRequest
    body: Struct | None
    disconnected: bool
    version_mismatch: UnsupportedVersionError | None
    authentication_error: AuthenticationError | None
    received_ms: int
    latency_ms: int
    cause: str


ResponseCallback = Callable[[ClientResponse], None]
