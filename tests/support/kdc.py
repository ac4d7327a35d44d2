"""A Kerberos KDC for tests, where the system's packages and the package gssapi can be had."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "kdc.sh"
BROKER, USER = "kafka/127.0.0.1", "alice"
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])

_missing = [name for name in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit") if not shutil.which(name, path=_PATH)]
if importlib.util.find_spec("gssapi") is None:
    _missing.append("the package gssapi (kafkalite[kerberos])")
HAS_KERBEROS = not _missing
#: Debian: krb5-kdc, krb5-admin-server, krb5-user, libkrb5-dev.
requires_kerberos = pytest.mark.skipif(bool(_missing), reason=f"Kerberos: missing {', '.join(_missing)}")


@dataclass(frozen=True)
class Kdc:
    """A running KDC with a principal of a broker and one of a user."""

    directory: Path

    @property
    def config(self) -> Path:
        return self.directory / "krb5.conf"

    def keytab(self, principal: str) -> Path:
        return self.directory / f"{principal.replace('/', '-')}.keytab"

    def logins(self) -> int:
        """How often the user got a first ticket."""
        log = (self.directory / "kdc.log").read_text()
        return sum("AS_REQ" in line and "ISSUE" in line and f" {USER}@" in line for line in log.splitlines())

    def kinit(self, cache: Path, *options: str) -> None:
        """Fill a ticket cache."""
        command = ["kinit", "-c", str(cache), "-k", "-t", str(self.keytab(USER)), *options, USER]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@contextlib.contextmanager
def running_kdc(directory: Path, lifetime: str = "10h") -> Iterator[Kdc]:
    """A KDC whose tickets live *lifetime*; this process uses it."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            done = subprocess.run(
                ["bash", str(SCRIPT), "start", "--dir", str(directory), "--lifetime", lifetime, BROKER, USER],
                capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            patch.setenv("KRB5_CONFIG", str(directory / "krb5.conf"))
            patch.setenv("KRB5CCNAME", str(directory / "nobody"))
            yield Kdc(directory)
        finally:
            subprocess.run(["bash", str(SCRIPT), "stop", "--dir", str(directory)], check=False, timeout=60)
