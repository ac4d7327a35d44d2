"""Keys for sets of properties that may contain secrets, in caches that live as long as the process. Any thread."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafka_sink.common.references import referenced_files

_SALT: Final = os.urandom(16)

#: Properties that name a file whose content may change under the same name.
_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")


def digest_of(properties: Mapping[str, str]) -> bytes:
    """A key for *properties*, in any order. Secrets cannot be read from the key."""
    digest = hashlib.blake2b(key=_SALT)
    for name, value in sorted(properties.items()):
        digest.update(f"{len(name)} {name} {len(value)} {value}\n".encode())
    return digest.digest()


def digest_with_files(properties: Mapping[str, str]) -> bytes:
    """A key for *properties* and the current state of the files that they name, also in references: after a certificate
    or a password was renewed, connections made before must not be reused."""
    digest = hashlib.blake2b(digest_of(properties), key=_SALT)
    named = [Path(properties[name]) for name in _FILES if properties.get(name)]
    named += [path for value in properties.values() for path in referenced_files(value)]
    for path in named:
        try:
            status = path.stat()
        except OSError:
            continue
        digest.update(f"{path} {status.st_mtime_ns} {status.st_size} {status.st_ino}\n".encode())
    return digest.digest()
