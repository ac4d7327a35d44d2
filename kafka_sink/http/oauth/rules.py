"""How tokens are fetched and renewed, as plain values: every client reads their defaults with its options, and few
clients load the modules that use them.

Source: KIP-255, KIP-768; apache/kafka ``ExpiringCredentialRefreshingLogin``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafka_sink.network.sasl.bearer_token import Token

#: Algorithms that sign assertions.
RS256: Final = "RS256"
ES256: Final = "ES256"


@dataclass(frozen=True)
class EndpointLimits:
    """How long an endpoint is waited for, ms."""

    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000


@dataclass(frozen=True)
class RefreshRules:
    """When a token is renewed (``sasl.login.refresh.*``)."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300

    def refresh_at_ms(self, token: Token, now_ms: int, draw: float) -> int:
        """When *token*, which was fetched at *now_ms*, is to be renewed; *draw* is random, from 0 to 1."""
        share = self.window_factor + self.window_jitter * draw
        starts_ms = now_ms if token.starts_ms is None else token.starts_ms
        if now_ms + 1000 * (self.min_period_s + self.buffer_s) > token.expires_ms:
            return now_ms + int((token.expires_ms - now_ms) * share)
        proposed_ms = starts_ms + int((token.expires_ms - starts_ms) * share)
        latest_ms = token.expires_ms - self.buffer_s * 1000
        if proposed_ms > latest_ms:
            return latest_ms
        return max(proposed_ms, now_ms + self.min_period_s * 1000)
