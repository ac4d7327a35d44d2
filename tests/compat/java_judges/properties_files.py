"""Files of properties: separators, escapes, comments and continued lines, and damaged ones."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kafka_sink.common.properties import load_properties
from tests.compat.java_judges.damage import damaged
from tests.compat.java_judges.judging import Difference, Judged, Verdict

_FOLDER: Final = TemporaryDirectory()
_NAMES: Final = ("bootstrap.servers", "sasl.jaas.config", "a\\ b", "a\\:b", "a\\=b", "ssl.keystore.key", "x", "#x", "!")
_VALUES: Final = (
    "host:9092", "a=b:c", "PLAIN required username='a' password=\"b\\\\c\";", "", "a\\nb", "\\u0041\\u00e4", "\\t",
    "\\q", "/etc/kafka/ca.pem", "C:\\\\x", "a\\", "\\\n   b", "a\\\r\n\tb", "a \\\n# b", "käse", "日本", " a ", "!#",
)  # fmt: skip
_SEPARATORS: Final = ("=", "=", "=", " = ", ":", " : ", " ", "\t", "\f", "  ")
_ENDS: Final = ("\n", "\n", "\n", "\r\n", "\r", "\n\n", "\n \t\n")
_COMMENTS: Final = ("# a=b", "! a=b", "  # a \\", "\t!", "#")
_TELLING: Final = "\\=:#! \t\f\n\rub0n\u00e4\x00\x0b\x85\u2028"


def _file(rng: random.Random) -> str:
    lines = []
    for _ in range(rng.randint(1, 5)):
        if rng.random() < 0.2:
            lines.append(rng.choice(_COMMENTS))
        else:
            indent = rng.choice(("", "", "  ", "\t", "\f"))
            lines.append(f"{indent}{rng.choice(_NAMES)}{rng.choice(_SEPARATORS)}{rng.choice(_VALUES)}")
        lines.append(rng.choice(_ENDS))
    text = ("\ufeff" if rng.random() < 0.02 else "") + "".join(lines)
    return damaged(rng, text, _TELLING) if rng.random() < 0.4 else text


def _ours(text: str) -> Any:
    file = Path(_FOLDER.name) / "client.properties"
    file.write_bytes(text.encode())
    return {"read": load_properties(str(file))}


def _is_of_encoding(text: str, java: Verdict, ours: Verdict) -> bool:
    """A comment after a byte order mark is a property to Java, which reads its escapes."""
    if text.isascii() or ours.refused is not None:
        return False
    if java.refused is not None:
        return text.startswith("\ufeff") and "Malformed" in java.refused
    return bool(ours.taken["read"] == java.taken["in UTF-8"])


def _lacks_name_or_value(text: str, java: Verdict, ours: Verdict) -> bool:
    """A lone backslash at the end of a file is a line without a name to Java, and no line to kafkalite."""
    if java.refused is not None or not java.taken["lacks one"]:
        return False
    named = {name: value for name, value in java.taken["in UTF-8"].items() if name}
    return "expected name=value" in str(ours.refused) or (ours.refused is None and ours.taken["read"] == named)


PROPERTIES_FILES: Final = Judged(
    "PropertiesFile",
    _file,
    _ours,
    (
        Difference("Properties files", "\ufeffsasl.password=käse", _is_of_encoding),
        Difference("A line of properties without a name or a value", "enable.idempotence\n", _lacks_name_or_value),
    ),
)
