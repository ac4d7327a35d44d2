"""Exponential backoff with jitter (KIP-580)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ExponentialBackoff:
    """``initial * multiplier**attempts``, capped at *max_ms*, with a random factor of ±*jitter* (a fraction: 0.2 = 20
    %).

    The cap is applied before the jitter, as in Kafka, so clients at the cap do not retry simultaneously.
    """

    initial_ms: int
    max_ms: int
    multiplier: float = 2.0
    jitter: float = 0.2
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def backoff_ms(self, attempts: int) -> int:
        """Milliseconds to wait after *attempts* failures (0 = before the first retry)."""
        if self.initial_ms <= 0:
            return 0
        # Beyond 2**32 the cap has long been reached; this limit prevents an overflow of the power.
        term = min(self.initial_ms * self.multiplier ** min(attempts, 32), max(self.max_ms, self.initial_ms))
        return int(term * self.rng.uniform(1 - self.jitter, 1 + self.jitter))
