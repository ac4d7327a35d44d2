"""PEM in the layouts that copying produces, encrypted keys, and key stores of openssl and keytool."""

from __future__ import annotations

import base64
import hashlib
import random
import re
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

from kafka_sink.common.config import parse
from kafka_sink.common.tls_config import ClientSslConfig
from kafka_sink.trust.tls_context import TlsContexts
from tests.compat.java_judges.damage import damaged
from tests.compat.java_judges.judging import Difference, Given, Judged, Verdict
from tests.support.key_stores import MATERIAL

_PASSWORD: Final = MATERIAL["password"]
_CERTIFICATES: Final = MATERIAL["certificates"]
_CHAIN: Final = ("client", "sub", "root")
_COMMENTS: Final = (
    "Bag Attributes\n    friendlyName: x\n",
    "# käse\n",
    "\n\n",
    "subject=/CN=x\nissuer=/CN=y\n",
    "x: y\r\n",
)
_FOLDER: Final = TemporaryDirectory()
_TELLING: Final = "-=:/+ \n\r\t\\A"
#: Names of unencrypted keys: in PKCS #8, and in openssl's traditional form, which Java does not support.
_PLAIN: Final = ("PKCS #8", "SEC 1")
_UNMARKED: Final = "untrusting.p12"
_OF_SIDE: Final = {
    "key": ("one.pkcs12", "one.jks", "two.pkcs12", "two.jks", "client.p12", "trusted.jks"),
    "trust": ("trusted.pkcs12", "trusted.jks", _UNMARKED, "one.pkcs12"),
}
_IN_ONE_LINE: Final = re.compile("CERTIFICATE-----[^\n\r]*-----BEGIN CERT")


def _shaped(rng: random.Random, blocks: list[str]) -> str:
    """Return the *blocks* with their lines in a layout that copying or a tool produces."""
    text = "".join(rng.choice(_COMMENTS) * (rng.random() < 0.1) + block for block in blocks)
    match rng.randrange(8):
        case 0:
            return " ".join(text.split("\n"))
        case 1:
            return text.replace("\n", "\r")
        case 2:
            return text.replace("\n", "\r\n")
        case 3:
            return "".join(f"    {line}\n" for line in text.splitlines())
        case 4:
            return text.replace("\n", " \n")
        case 5:
            return text.strip()
        case _:
            return text


def _case(rng: random.Random) -> Given:
    # Key stores and encrypted keys are rare, because the key derivation from their password takes milliseconds.
    kind = rng.choices(("text", "file", "store"), (12, 7, 1))[0]
    if kind == "store":
        return _stores(rng)
    options, own = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}, _CHAIN[: rng.randint(1, 3)]
    name, key = _key(rng)
    if name not in _PLAIN:
        options["ssl.key.password"] = _PASSWORD if rng.random() < 0.9 else "wrong"
    chain = [_CERTIFICATES[each] for each in own]
    trusted = [_CERTIFICATES[each] for each in rng.sample(_CHAIN, rng.randint(1, 3))]
    texts = {"ssl.truststore.certificates": _shaped(rng, trusted)}
    if kind == "text":
        texts |= {"ssl.keystore.key": _shaped(rng, [key]), "ssl.keystore.certificate.chain": _shaped(rng, chain)}
    else:
        texts["ssl.keystore.location"] = _shaped(rng, [key, *chain] if rng.random() < 0.5 else [*chain, key])
        texts["ssl.truststore.location"] = texts.pop("ssl.truststore.certificates")
    is_damaged = rng.random() < 0.2
    if is_damaged:
        broken = rng.choice(list(texts))
        texts[broken] = damaged(rng, texts[broken], _TELLING)
    files = {each: base64.b64encode(text.encode()).decode() for each, text in texts.items() if kind == "file"}
    notes = {"key": name, "is damaged": is_damaged, "in one line": any(map(_IN_ONE_LINE.search, texts.values()))}
    return {"options": options | (texts if kind == "text" else {}), "files": files, "notes": notes}


def _stores(rng: random.Random) -> Given:
    options: dict[str, str] = {}
    files: dict[str, str] = {}
    notes = {"key": _PLAIN[0]}
    for side in rng.choice((("key",), ("trust",), ("key", "trust"))):
        name = rng.choice(_OF_SIDE[side])
        options[f"ssl.{side}store.type"] = rng.choice(("PKCS12", "JKS"))
        options[f"ssl.{side}store.password"] = _PASSWORD if rng.random() < 0.9 else "wrong"
        files[f"ssl.{side}store.location"] = MATERIAL["stores"][name]
        notes[side] = name
    if "trust" not in notes:
        # Without this option a client reads all authorities of the system.
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _CERTIFICATES["root"]}
    return {"options": options, "files": files, "notes": notes}


def _key(rng: random.Random) -> tuple[str, str]:
    """Return the name of a private key's encryption or form, and the key."""
    encrypted = rng.choice(list(MATERIAL["encrypted"].items()))
    plain = rng.choice(((_PLAIN[0], MATERIAL["key"]), (_PLAIN[1], MATERIAL["traditional"])))
    return plain if rng.random() < 0.9 else encrypted


def _ours(given: Given) -> Any:
    options, own, trusted = dict(given["options"]), [], []
    load_own, load_trusted = ssl.SSLContext.load_cert_chain, ssl.SSLContext.load_verify_locations

    def note_own(context: ssl.SSLContext, path: str, *arguments: Any, **named: Any) -> None:
        load_own(context, path, *arguments, **named)
        own.append(Path(path).read_text(encoding="ascii"))

    def note_trusted(context: ssl.SSLContext, *, cadata: str) -> None:
        load_trusted(context, cadata=cadata)
        trusted.append(cadata)

    with (
        patch.object(ssl.SSLContext, "load_cert_chain", note_own),
        patch.object(ssl.SSLContext, "load_verify_locations", note_trusted),
    ):
        for option, content in given["files"].items():
            path = Path(_FOLDER.name) / option
            path.write_bytes(base64.b64decode(content))
            options[option] = str(path)
        TlsContexts(parse(ClientSslConfig, options), server=False)
    return {
        "chains": [_digests(text) for text in own],
        "trusted": sorted(each for text in trusted for each in _digests(text)),
    }


def _digests(pem: str) -> list[str]:
    blocks = re.findall("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", pem, re.S)
    return [_digest(block) for block in blocks]


def _digest(block: str) -> str:
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(block)).hexdigest()
    except ValueError:
        return f"damaged: {block}"


def _is_of_one_line(given: Given, java: Verdict, ours: Verdict) -> bool:
    """Java keeps the last certificate of a line, and the remaining certificates may be no chain."""
    if not given["notes"].get("in one line", False) or ours.refused is not None:
        return False
    if java.refused is not None:
        return "Certificate chain is not valid" in java.refused
    return set(java.taken["trusted"]) <= set(ours.taken["trusted"]) and all(
        set(one) <= set(other) for one, other in zip(java.taken["chains"], ours.taken["chains"], strict=True)
    )


def _is_unread_by_java(given: Given, java: Verdict, ours: Verdict) -> bool:
    return given["notes"]["key"] != _PLAIN[0] and java.refused is not None and ours.refused is None


def _is_unread_here(given: Given, java: Verdict, ours: Verdict) -> bool:
    return f"encrypted with {given['notes']['key']}, which is not supported" in str(ours.refused)


def _has_several_keys(given: Given, java: Verdict, ours: Verdict) -> bool:
    return "it contains 2 private keys" in str(ours.refused)


def _has_no_key(given: Given, java: Verdict, ours: Verdict) -> bool:
    return java.taken is not None and not java.taken["chains"] and "it contains 0 private keys" in str(ours.refused)


def _is_pkcs12(given: Given, java: Verdict, ours: Verdict) -> bool:
    return (
        given["notes"].get("trust") in (_UNMARKED, "one.pkcs12")
        and java.taken is not None
        and ours.taken is not None
        and set(java.taken["trusted"]) < set(ours.taken["trusted"])
        and java.taken["chains"] == ours.taken["chains"]
    )


def _is_damaged(given: Given, java: Verdict, ours: Verdict) -> bool:
    return bool(given["notes"].get("is damaged"))


def _of_texts(key: str, **texts: str) -> Given:
    return {
        "options": {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM", "ssl.key.password": _PASSWORD}
        | {f"ssl.{name.replace('_', '.')}": text for name, text in texts.items()},
        "files": {},
        "notes": {"key": key, "in one line": True, "is damaged": True},
    }


def _of_store(side: str, name: str) -> Given:
    return {
        "options": {f"ssl.{side}store.type": "PKCS12", f"ssl.{side}store.password": _PASSWORD},
        "files": {f"ssl.{side}store.location": MATERIAL["stores"][name]},
        "notes": {"key": _PLAIN[0], side: name},
    }


def _of_key(name: str) -> Given:
    key = MATERIAL["encrypted"][name]
    return _of_texts(name, keystore_key=key, keystore_certificate_chain=_CERTIFICATES["client"])


_TWO: Final = _CERTIFICATES["root"] + _CERTIFICATES["sub"]
KEY_STORES: Final = Judged(
    "KeyStores",
    _case,
    _ours,
    (
        Difference(
            "Several certificates in one line",
            _of_texts(_PLAIN[0], truststore_certificates=" ".join(_TWO.split("\n"))),
            _is_of_one_line,
        ),
        Difference("Keys that Java cannot read", _of_key("PBE-SHA1-2DES"), _is_unread_by_java),
        Difference("Keys that only Java can read", _of_key("PBE-SHA1-RC2-128"), _is_unread_here),
        Difference("A keystore with several private keys", _of_store("key", "two.pkcs12"), _has_several_keys),
        Difference("A keystore without a private key", _of_store("key", "trusted.pkcs12"), _has_no_key),
        Difference("A PKCS12 truststore", _of_store("trust", _UNMARKED), _is_pkcs12),
        Difference(
            "Damaged PEM", _of_texts(_PLAIN[0], truststore_certificates=_TWO.replace("END", "EMD", 1)), _is_damaged
        ),
    ),
    share=0.15,
)
