"""Lists of bootstrap servers: names, addresses of both kinds, schemes, blanks and empty entries, and damaged ones.

Java resolves the names in ``java/hosts``, without DNS.
"""

from __future__ import annotations

import ipaddress
import random
import re
from typing import Any, Final

from kafka_sink.client.options.config import ClientConfig, parse_addresses
from kafka_sink.common.config import parse
from tests.compat.java_judges.damage import damaged
from tests.compat.java_judges.judging import SOURCES, Difference, Judged, Verdict

_NAMES: Final = [
    name for line in (SOURCES / "hosts").read_text(encoding="ascii").splitlines() for name in line.split()[1:]
]
_HOSTS: Final = (*_NAMES, "127.0.0.1", "[::1]", "::1", "10.0.0.7", "[fe80::1]")
_KNOWN: Final = {*_NAMES, "127.0.0.1", "10.0.0.7", "0:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:0:1"}
_PORTS: Final = ("9092", "9092", "1", "65535", "0", "65536", "09092", "", "-1", "9092 ")
_PORT_0: Final = re.compile(r":0+\s*(,|$)")
_NAMELESS: Final = re.compile(r"(^|[,/])\s*[\[\]]*:[0-9]")
_SCHEMES: Final = ("", "", "", "", "PLAINTEXT://", "SASL_SSL://", "kafka://", "http://")
_BETWEEN: Final = (",", ",", ", ", " , ", ",,", ";", " ", "\n")
_TELLING: Final = ":,[]/ .-_%@1a\t\n\u00e4"


def _list(rng: random.Random) -> str:
    text = ""
    for number in range(rng.randint(1, 3)):
        text += rng.choice(_BETWEEN) if number else ""
        port = "9092" if rng.random() < 0.7 else rng.choice(_PORTS)
        text += f"{rng.choice(_SCHEMES)}{rng.choice(_HOSTS)}:{port}"
    return damaged(rng, text, _TELLING) if rng.random() < 0.4 else text


def _ours(text: str) -> Any:
    addresses = parse_addresses(parse(ClientConfig, {"bootstrap.servers": text}).bootstrap_servers)
    return [[_as_java_writes(host), port] for host, port in addresses]


def _as_java_writes(host: str) -> str:
    try:
        parts = ipaddress.IPv6Address(host).exploded.split(":")
    except ValueError:
        return host
    return ":".join(f"{int(part, 16):x}" for part in parts)


def _has_empty_entry(text: str, java: Verdict, ours: Verdict) -> bool:
    return "values must not be empty" in str(java.refused) and ours.refused is None


def _is_port_0(text: str, java: Verdict, ours: Verdict) -> bool:
    return java.refused is None and _PORT_0.search(text) is not None and "expected host:port" in str(ours.refused)


def _is_nameless(text: str, java: Verdict, ours: Verdict) -> bool:
    return java.refused is None and _NAMELESS.search(text) is not None and "expected host:port" in str(ours.refused)


def _has_unknown_name(text: str, java: Verdict, ours: Verdict) -> bool:
    """Java drops a name without an address at its start, and kafkalite when it connects."""
    if ours.refused is not None or (java.refused is not None and "No resolvable" not in java.refused):
        return False
    left = [each for each in ours.taken if each[0] in _KNOWN]
    return left != ours.taken and all(each in (java.taken or []) for each in left)


BOOTSTRAP_SERVERS: Final = Judged(
    "BootstrapServers",
    _list,
    _ours,
    (
        Difference("An empty entry of bootstrap.servers", "broker-1:9092,,b:9092", _has_empty_entry),
        Difference("Port 0", "broker-1:0", _is_port_0),
        Difference("A bootstrap server without a name", ":9092", _is_nameless),
        Difference("A bootstrap server without an address", "nowhere:9092,b:9092", _has_unknown_name),
    ),
)
