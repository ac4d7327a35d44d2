"""Sessions of authentication that clients renew long before their end.

A client renews a session when 5 to 15 % of it are left. The sessions of a test are short, and a busy machine may stall
for longer than that: the broker then closes the connection, and the client logs a warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from kafka_sink.client.login import sasl_authenticator
from kafka_sink.common.buffers import Buffer
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response
from kafka_sink.protocol.messages.connection import SaslAuthenticateResponse
from kafka_sink.protocol.schema import Struct

#: Fractions of 3 s: a broker lets a client authenticate again only once a second.
_RENEWED_AFTER = (0.4, 0.45)
_LIMIT_S = 120.0


def renew_early(patch: pytest.MonkeyPatch) -> list[int]:
    """Make clients renew a session before half of it is over; return a list that gets the lifetime (ms) of each one."""
    patch.setattr(sasl_authenticator, "REAUTHENTICATE_AFTER", _RENEWED_AFTER)
    lifetimes: list[int] = []

    def noted(key: ApiKey, version: int, frame: Buffer) -> tuple[int, Struct]:
        correlation_id, body = decode_response(key, version, frame)
        # Only the response that completes the authentication has a lifetime.
        if isinstance(body, SaslAuthenticateResponse) and body.session_lifetime_ms:
            lifetimes.append(body.session_lifetime_ms)
        return correlation_id, body

    patch.setattr(sasl_authenticator, "decode_response", noted)
    return lifetimes


def warnings_but_of_one_late_renewal(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged warnings except one about a session that the broker has ended, since a machine may stall."""
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    late = next((text for text in warned if "by the other side" in text), None)
    return [text for text in warned if text is not late]


def outlasting(session_s: float, sessions: list[int], least: int) -> Iterator[None]:
    """Yield until the first session would have expired, and there were at least *least* sessions."""
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < 1.5 * session_s or len(sessions) < least:
        assert elapsed < _LIMIT_S, f"{len(sessions)} sessions within {_LIMIT_S} s"
        yield
