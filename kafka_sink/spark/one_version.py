"""Keeps two versions of kafkalite from working on one write: what the driver pickles says which version it is of.

Driver and workers each import the kafkalite that their Python finds. A worker of another version would fail at a name
that its version lacks, or, worse, understand something else under the same name.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.version import VERSION


class OfOneVersion:
    """A value that only the version that has pickled it unpickles; it contains nothing that plain pickle cannot.

    Its own class and those of its fields are looked up after the versions were compared.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (VERSION, pickle.dumps((type(self), self.__getstate__())))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def refuse_other_version(drivers: str) -> None:
    """:raises ConfigError: if this process has another version of kafkalite than *drivers*."""
    if drivers != VERSION:
        raise ConfigError(
            f"the driver has kafkalite {drivers}, and a Python worker has {VERSION} (imported from "
            f"{__file__.removesuffix('/spark/one_version.py')} by {sys.executable}): install one version for both, or "
            "ship the driver's environment with spark.archives or --py-files"
        )


def _unpickled(drivers: str, pickled: bytes) -> Any:
    refuse_other_version(drivers)
    kind, state = pickle.loads(pickled)
    made = kind.__new__(kind)
    made.__setstate__(state)
    return made
