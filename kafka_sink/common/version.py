"""The version of this package, as brokers are told it, and the oldest brokers that it is tested with."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"

#: scripts/kafka.sh versions begins with a patch release of it.
OLDEST_KAFKA: Final = "3.3"
