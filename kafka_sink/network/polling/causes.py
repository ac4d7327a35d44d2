"""The cause of a disconnection, as text that helps users to act.

The selector calls it when a channel fails. It never raises, whatever the error.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.common.errors import KafkaError

CLOSED: Final = "closed by the other side"
RESET: Final = "connection reset by the other side"


def cause_of(error: BaseException) -> str:
    """Short lower-case text for *error*, without the address, which the caller adds."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "connection timed out"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return RESET
    if isinstance(error, EOFError):
        return CLOSED
    if isinstance(error, KafkaError):
        return str(error)
    if isinstance(error, OSError):
        text = error.strerror or str(error)
        return text[:1].lower() + text[1:]
    return f"{type(error).__name__}: {error}"
