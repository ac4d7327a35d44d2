"""Lines of ``sasl.jaas.config``: as providers document them, with all syntax of Java's tokenizer, and damaged."""

from __future__ import annotations

import random
from typing import Any, Final

from kafka_sink.network.sasl.jaas import parse_jaas
from tests.compat.java_judges.damage import damaged
from tests.compat.java_judges.judging import Difference, Judged, Verdict

_MODULES: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    "software.amazon.msk.auth.iam.IAMLoginModule",
    "com.sun.security.auth.module.Krb5LoginModule",
)
_FLAGS: Final = ("required", "required", "REQUIRED", "Requisite", "sufficient", "optional")
_NAMES: Final = ("username", "password", "clientId", "clientSecret", "scope", "keyTab", "ssl.protocol", "a-b_c", "a@b")
_TEXTS: Final = (
    "alice",
    "SEC+RET/=",
    "",
    "a b",
    "pass;word",
    "it's",
    'say "so"',
    "back\\slash",
    "ümläut",
    "日本",
    "a=b",
)
_ESCAPES: Final = (
    "\\n",
    "\\t",
    "\\\\",
    '\\"',
    "\\'",
    "\\101",
    "\\47",
    "\\477",
    "\\0",
    "\\a",
    "\\v",
    "\\x",
    "\\8",
    "\\\n",
)
_BLANKS: Final = (" ", " ", " ", "  ", "\t", "\n", "\r\n", "\x0b", "\x00")
_COMMENTS: Final = ("/* a = 'b'; */", "// a\n", "/ a\r", "/*\n*/", "/**/", "/* * / */", "/\n c\n")
#: Characters with and without a special meaning to the tokenizer.
_TELLING: Final = "\"'\\/=;*\n\r \t\0\x7f\x80\x81\x9f\xa0\xff\u0100\u0131.,{}$#!7a"


def _line(rng: random.Random) -> str:
    words = [rng.choice(_MODULES), _blank(rng), rng.choice(_FLAGS)]
    for _ in range(rng.randrange(4)):
        words += [_blank(rng), _quoted(rng, rng.choice(_NAMES), 0.1)]
        words += [_sometimes_blank(rng), "=", _sometimes_blank(rng), _quoted(rng, _value(rng), 0.9)]
        if rng.random() < 0.1:
            words.append(rng.choice(_COMMENTS))
    words += [_sometimes_blank(rng), ";", _sometimes_blank(rng)]
    line = "".join(words)
    return damaged(rng, line, _TELLING) if rng.random() < 0.4 else line


def _value(rng: random.Random) -> str:
    return "".join(
        rng.choice(_TEXTS) if rng.random() < 0.8 else rng.choice(_ESCAPES) for _ in range(rng.choice((1, 1, 3)))
    )


def _quoted(rng: random.Random, text: str, chance: float) -> str:
    if rng.random() >= chance:
        return text
    quote = rng.choice("\"'")
    return f"{quote}{text}{quote}"


def _blank(rng: random.Random) -> str:
    return rng.choice(_BLANKS) if rng.random() < 0.9 else rng.choice(_COMMENTS)


def _sometimes_blank(rng: random.Random) -> str:
    return _blank(rng) if rng.random() < 0.2 else ""


def _ours(line: str) -> Any:
    entry = parse_jaas("sasl.jaas.config", line)
    return {"module": entry.module, "options": dict(entry.options)}


def _is_nameless(line: str, java: Verdict, ours: Verdict) -> bool:
    return java.refused is None and java.taken["has nameless"]


def _is_foreign(line: str, java: Verdict, ours: Verdict) -> bool:
    known = {module.rpartition(".")[2] for module in _MODULES}
    return java.refused is None and java.taken["module"] not in known


JAAS_LINES: Final = Judged(
    "JaasLine",
    _line,
    _ours,
    (
        Difference("A JAAS option without a name", f"{_MODULES[0]} required password=c2Vj==x;", _is_nameless),
        Difference("A third-party login module", "com.example.OwnLoginModule required;", _is_foreign),
    ),
)
