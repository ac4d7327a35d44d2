"""Sessions of authentication that clients renew long before their end.

A client renews a session when 5 to 15 % of it are left. The sessions of a test are short, and a busy machine may stand
still for longer than that: the broker then cuts the connection off, and the client warns of it.
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

#: Of 3 s: a broker does not let a client authenticate again more often than once a second.
_RENEWED_AFTER = (0.4, 0.45)
_LIMIT_S = 120.0


def renew_early(patch: pytest.MonkeyPatch) -> list[int]:
    """Let clients renew a session before half of it is over; the list gets the lifetime in ms of each that begins."""
    patch.setattr(sasl_authenticator, "REAUTHENTICATE_AFTER", _RENEWED_AFTER)
    lifetimes: list[int] = []

    def noted(key: ApiKey, version: int, frame: Buffer) -> tuple[int, Struct]:
        correlation_id, body = decode_response(key, version, frame)
        # Only the answer that completes the authentication has a lifetime.
        if isinstance(body, SaslAuthenticateResponse) and body.session_lifetime_ms:
            lifetimes.append(body.session_lifetime_ms)
        return correlation_id, body

    patch.setattr(sasl_authenticator, "decode_response", noted)
    return lifetimes


def warnings_but_of_one_late_renewal(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of, but for one session that the broker has ended: a machine may stand still for so long."""
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    late = next((text for text in warned if "by the other side" in text), None)
    return [text for text in warned if text is not late]


def outlasting(session_s: float, sessions: list[int], least: int) -> Iterator[None]:
    """Go on until the first session would have run out, and there were at least so many."""
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < 1.5 * session_s or len(sessions) < least:
        assert elapsed < _LIMIT_S, f"{len(sessions)} sessions within {_LIMIT_S} s"
        yield
