"""The version of this package, as brokers are told it."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
