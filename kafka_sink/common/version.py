"""The version of this package, which is sent to brokers, and the oldest Kafka version that it is tested with."""

from __future__ import annotations

from typing import Final

VERSION: Final = "1.0.0"

#: A patch release of this version is the first in ``scripts/kafka.sh versions``.
OLDEST_KAFKA: Final = "3.3"
