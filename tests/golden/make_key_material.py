"""Write key_material.json: keys, certificates and key stores made by openssl and Java's keytool, also in formats that
both no longer write by default. Run as ``python -m tests.golden.make_key_material``; needs openssl 3 and keytool.

All keys are for tests only and are not secret.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from pathlib import Path

PASSWORD = "keypass"
FILE = Path(__file__).with_name("key_material.json")
#: The names of openssl's options -v1 and -v2.
PBES1 = (
    "PBE-MD5-DES", "PBE-MD5-RC2-64", "PBE-SHA1-DES", "PBE-SHA1-RC2-64", "PBE-SHA1-RC4-128", "PBE-SHA1-RC4-40",
    "PBE-SHA1-3DES", "PBE-SHA1-2DES", "PBE-SHA1-RC2-128", "PBE-SHA1-RC2-40",
)  # fmt: skip
PBES2 = ("aes-128-cbc", "aes-256-cbc", "des-ede3-cbc", "rc2-cbc", "des-cbc")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        FILE.write_text(json.dumps(_material(Path(folder)), indent=1) + "\n", encoding="ascii")


def _material(folder: Path) -> dict[str, object]:
    def run(*words: str) -> None:
        subprocess.run(words, cwd=folder, check=True, capture_output=True)

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="ascii")

    def stored(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    own = ("-passout", f"pass:{PASSWORD}")
    legacy = ("-provider", "legacy", "-provider", "default")
    (folder / "ca.cnf").write_text("basicConstraints=critical,CA:TRUE\n", encoding="ascii")
    for name, issuer in (("root", ""), ("sub", "root"), ("client", "sub"), ("other", "root")):
        run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{name}.key")
        run("openssl", "req", "-new", "-key", f"{name}.key", "-subj", f"/O=Tests, Ltd/CN={name}", "-out", f"{name}.csr")
        signer = ("-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key") if issuer else ("-key", "root.key")
        extensions = ("-extfile", "ca.cnf") if name in ("root", "sub") else ()
        run(
            "openssl",
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-days",
            "36500",
            *signer,
            *extensions,
            "-out",
            f"{name}.pem",
        )
    encrypted = {}
    for option, names in (("-v1", PBES1), ("-v2", PBES2)):
        for name in names:
            run(
                "openssl", "pkcs8", "-topk8", "-in", "client.key", option, name, *own, *legacy,
                "-out", "encrypted.key"
            )  # fmt: skip
            encrypted[name] = text("encrypted.key")
    run("openssl", "ec", "-in", "client.key", "-out", "traditional.ec")
    (folder / "chain.pem").write_text(text("sub.pem") + text("root.pem"), encoding="ascii")
    for name in ("client", "other"):
        run(
            "openssl", "pkcs12", "-export", "-inkey", f"{name}.key", "-in", f"{name}.pem", "-certfile", "chain.pem",
            "-name", name, *own, "-out", f"{name}.p12"
        )  # fmt: skip
    run("openssl", "pkcs12", "-export", "-nokeys", "-in", "root.pem", *own, "-out", "untrusting.p12")
    to = ("-deststorepass", PASSWORD, "-srcstorepass", PASSWORD, "-noprompt")
    password = ("-storepass", PASSWORD, "-noprompt")
    for kind in ("pkcs12", "jks"):
        for source in ("client", "other"):
            for target in ("two", "one") if source == "client" else ("two",):
                run(
                    "keytool", "-importkeystore", "-srckeystore", f"{source}.p12", "-destkeystore", f"{target}.{kind}",
                    "-deststoretype", kind, *to
                )  # fmt: skip
        for alias in ("root", "sub"):
            run(
                "keytool", "-importcert", "-alias", alias, "-file", f"{alias}.pem", "-keystore", f"trusted.{kind}",
                "-storetype", kind, *password
            )  # fmt: skip
    stores = [f"{name}.{kind}" for name in ("one", "two", "trusted") for kind in ("pkcs12", "jks")]
    return {
        "password": PASSWORD,
        "certificates": {name: text(f"{name}.pem") for name in ("root", "sub", "client", "other")},
        "key": text("client.key"),
        "encrypted": encrypted,
        "traditional": text("traditional.ec"),
        "stores": {name: stored(name) for name in [*stores, "client.p12", "untrusting.p12"]},
    }


if __name__ == "__main__":
    main()
