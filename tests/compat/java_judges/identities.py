"""The proofs of a client's identity: the principal of its certificate, and the lifetime of its token."""

from __future__ import annotations

import base64
import json
import random
from datetime import datetime
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from kafka_sink.network.sasl.bearer_token import token_of
from kafka_sink.network.transport.tls_transport import subject_of
from tests.compat.java_judges.judging import Difference, Judged, Verdict

_KEY: Final = ec.generate_private_key(ec.SECP256R1())
_ISSUER: Final = x509.Name([x509.NameAttribute(x509.ObjectIdentifier("2.5.4.3"), "issuer")])
_OTHER_NAME: Final = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("spiffe://example/orders")])
_VALID: Final = (datetime(2026, 1, 1), datetime(2026, 1, 2))
_TYPES: Final = (
    *("2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11", "2.5.4.17", "2.5.4.4", "2.5.4.12"),
    *("0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1", "1.2.840.113549.1.9.1", "1.3.6.1.4.1.311.60.2.1.3"),
    *("2.5.4.97", "2.999.1"),
)
_PIECES: Final = (*"abcXYZ019.-_/:'()?!@ ", *',=+<>#;"\\', "\r", "\t", "é", "ß", "日本", "😀", "é", "\x01")
_OF_ASCII: Final = ("0.9.2342.19200300.100.1.25", "1.2.840.113549.1.9.1")
_COUNTRIES: Final = ("2.5.4.6", "1.3.6.1.4.1.311.60.2.1.3")
_UTF8: Final = 0x0C
#: The position after the headers of a name, a set and a pair, of two bytes each.
_PAIR_AT: Final = 6
#: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString.
_TAGS: Final = (_UTF8, _UTF8, 0x13, 0x14, 0x16, 0x1B, 0x1E)


def _certificate(rng: random.Random) -> str:
    name = x509.Name([x509.RelativeDistinguishedName(_pairs(rng)) for _ in range(rng.randint(0, 4))])
    builder = x509.CertificateBuilder(_ISSUER, name, _KEY.public_key(), 1 + rng.getrandbits(60), *_VALID)
    # A certificate with an empty subject must have alternative names, as in SPIFFE.
    signed = builder.add_extension(_OTHER_NAME, critical=True).sign(_KEY, SHA256())
    return base64.b64encode(_retagged(rng, signed.public_bytes(Encoding.DER), name)).decode()


def _pairs(rng: random.Random) -> list[x509.NameAttribute[str]]:
    kinds = rng.sample(_TYPES, rng.choice((1, 1, 1, 2)))
    return [_pair(rng, x509.ObjectIdentifier(kind)) for kind in kinds]


def _pair(rng: random.Random, kind: x509.ObjectIdentifier) -> x509.NameAttribute[str]:
    # The library writes countries only with two letters, and the attributes of _OF_ASCII only in ASCII.
    is_country, is_ascii = kind.dotted_string in _COUNTRIES, kind.dotted_string in _OF_ASCII
    text = "".join(rng.choice(_PIECES) for _ in range(rng.randint(1, 8)))
    return x509.NameAttribute(
        kind, "US" if is_country else text.encode("ascii", "ignore").decode() or "a" if is_ascii else text
    )


def _retagged(rng: random.Random, der: bytes, name: x509.Name) -> bytes:
    """Return *der* with texts of other types; its signature is then wrong, but no reader verifies it."""
    for each in name:
        # The search includes the type: a text's bytes alone may also be a length and the beginning of another text.
        pair = x509.Name([x509.RelativeDistinguishedName([each])]).public_bytes()[_PAIR_AT:]
        tag_at = len(pair) - len(str(each.value).encode()) - 2
        if pair[tag_at] == _UTF8:
            der = der.replace(pair, pair[:tag_at] + bytes([rng.choice(_TAGS)]) + pair[tag_at + 1 :])
    return der


def _principal(given: str) -> str:
    return f"User:{subject_of(base64.b64decode(given))}"


_CLAIMS: Final = ("exp", "iat", "sub", "scope", "iss")
_VALUES: Final[tuple[Any, ...]] = (
    *(2**31, 2**31, 2**31 + 0.5, "2147483648"),
    *("me", "", " ", 0, -5, None, True, [], ["a"], {}),
)


def _token(rng: random.Random) -> str:
    claims: dict[str, Any] = {"sub": "me", "exp": 2**31 + rng.randint(0, 9)}
    for name in rng.sample(_CLAIMS, rng.choice((0, 0, 1, 1, 2))):
        claims[name] = rng.choice(_VALUES)
    for name in rng.sample(_CLAIMS, rng.choice((0, 0, 0, 1))):
        claims.pop(name, None)
    parts = [_encoded({"alg": "RS256"}), _encoded(claims), "c2ln"]
    match rng.randrange(12):
        case 0:
            parts = rng.sample(parts, rng.randint(1, 3))
        case 1:
            parts.append("more")
        case 2:
            parts[rng.randrange(3)] = rng.choice(("", "e30", "opaque", "W10", "bnVsbA"))
    return ".".join(parts)


def _encoded(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _lifetime(given: str) -> int:
    return token_of(given, -1).expires_ms


def _is_taken_here(given: str, java: Verdict, ours: Verdict) -> bool:
    return java.refused is not None and ours.refused is None


PRINCIPALS: Final = Judged("CertificatePrincipal", _certificate, _principal)
TOKENS: Final = Judged(
    "BearerToken",
    _token,
    _lifetime,
    (Difference("Tokens that Java does not send", f"{_encoded({})}.{_encoded({'exp': 2**31})}.c2ln", _is_taken_here),),
)
