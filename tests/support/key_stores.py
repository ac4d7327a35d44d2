"""Key stores that Java's keytool makes, keys and certificates too."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

#: Keys, certificates and stores of openssl and keytool (tests/golden/make_key_material.py).
MATERIAL = json.loads((Path(__file__).parents[1] / "golden" / "key_material.json").read_text(encoding="ascii"))
KEYTOOL = shutil.which("keytool")
KINDS = ("JKS", "PKCS12")

requires_keytool = pytest.mark.skipif(KEYTOOL is None, reason="needs Java's keytool")


def keytool(*arguments: object) -> None:
    assert KEYTOOL is not None
    command = [KEYTOOL, "-J-XX:TieredStopAtLevel=1", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class KeytoolStores:
    """The stores of one authority: ``trust.KIND``, and of each identity ``NAME.KIND``."""

    directory: Path
    password: str
    #: Of the keys in JKS stores; in PKCS12 there is none beside the store's.
    key_password: str

    def path(self, name: str, kind: str) -> Path:
        return self.directory / f"{name}.{kind}"

    @property
    def authority(self) -> Path:
        """The authority's certificate as PEM."""
        return self.directory / "authority.pem"

    def make(self, identities: dict[str, str]) -> None:
        """Make an authority, and for each identity (its extensions by its name) a key with its certificate."""
        authority = self._store("authority", "PKCS12")
        extensions = ("-ext", "bc:critical=ca:true", "-ext", "ku:critical=keyCertSign")
        keytool(
            "-genkeypair", "-alias", "authority", "-keyalg", "EC", "-dname", "CN=authority", *extensions, *authority
        )
        keytool("-exportcert", "-rfc", "-alias", "authority", "-file", self.authority, *authority)
        for kind in KINDS:
            keytool(
                "-importcert", "-noprompt", "-alias", "authority", "-file", self.authority, *self._store("trust", kind)
            )
        for name, extension in identities.items():
            shutil.copy(self.path("authority", "PKCS12"), self.path(name, "PKCS12"))
            store = self._store(name, "PKCS12")
            given = ("-alias", name, "-keyalg", "RSA", "-dname", f"CN={name}", "-ext", extension)
            keytool("-genkeypair", *given, "-signer", "authority", *store)
            keytool("-delete", "-alias", "authority", *store)
            keytool(
                "-importkeystore", "-srckeystore", self.path(name, "PKCS12"), "-srcstorepass", self.password,
                "-destkeystore", self.path(name, "JKS"), "-deststoretype", "JKS", "-deststorepass", self.password,
                "-alias", name, "-destkeypass", self.key_password
            )  # fmt: skip

    def _store(self, name: str, kind: str) -> tuple[object, ...]:
        return "-keystore", self.path(name, kind), "-storetype", kind, "-storepass", self.password
