"""Parses ``sasl.jaas.config``, in the format of Kafka's and Spark's users.

Called while a configuration is read. Errors never contain any part of the text, because it contains passwords.

Source: apache/kafka ``JaasConfig``, ``JaasContext``; java.io.StreamTokenizer for the syntax of words, quoted texts and
comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.sasl_mechanisms import MECHANISMS

#: The login modules without their packages, in the order of their mechanisms.
_MODULES: Final = tuple(dict.fromkeys(mechanism.module for mechanism in MECHANISMS.values()))
#: The tokens of Java's StreamTokenizer, as Kafka configures it. A quoted text ends at the end of its line; outside of
#: quotes a slash begins a comment, a word begins with a letter, and a number is not a text.
_TOKEN: Final = re.compile(
    r"""
    (?P<passed> [\0-\x20]+ | /\*(?:.*?\*/|.*) | /.?[^\n\r]* )
    | (?P<quote>["'])(?P<quoted> (?:\\.|(?!(?P=quote))[^\\\n\r])* )(?:(?P=quote)|(?=[\n\r])|\\?\Z)
    | (?P<word> [A-Za-z_$\xa0-\U0010ffff][\w$.\-\xa0-\U0010ffff]* )
    | (?P<sign> -?(?:[0-9]+\.?[0-9]*|\.[0-9]*) | . )
    """,
    re.S | re.X | re.A,
)
_ESCAPED: Final = re.compile(r"\\(?:(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)|(?P<character>.))", re.S)
_CONTROLS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CLASS: Final = re.compile(r"[\w.$]+\.[\w$]*Module")
_FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_EXAMPLE: Final = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="…" password="…";'


@dataclass(frozen=True)
class JaasEntry:
    """A login module and its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def mechanisms(self) -> frozenset[str]:
        return frozenset(name for name, mechanism in MECHANISMS.items() if mechanism.module == self.module)


def parse_jaas(option: str, text: str) -> JaasEntry:
    """Parse the only entry of *text*, the value of *option*, as Kafka's ``JaasContext`` does.

    :raises ConfigError: if it is malformed, or its module is not one of the supported modules of Kafka.
    """
    tokens = _tokens(text)
    name, flag = next(tokens, None), next(tokens, None)
    if name is None or name.text is None or flag is None or (flag.text or "").upper() not in _FLAGS:
        raise ConfigError.of(option, f": malformed, expected {_EXAMPLE}")
    module = name.text.rpartition(".")[2]
    if module not in _MODULES:
        # The text in this place may be anything, even a password.
        shown = name.text if _CLASS.fullmatch(name.text) else "without the name of a class"
        raise ConfigError.of(option, f": login module {shown} is not supported, expected one of {', '.join(_MODULES)}")
    options = _options(option, tokens)
    if next(tokens, None) is not None:
        raise ConfigError.of(option, f": there is more behind the first ; than one login module, expected {_EXAMPLE}")
    return JaasEntry(module, options)


@dataclass(frozen=True)
class _Token:
    """A word or a quoted text, as *text*, or anything else, as *sign*."""

    text: str | None = field(repr=False)
    sign: str = ""


def _tokens(text: str) -> Iterator[_Token]:
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "passed":
                pass
            case "sign":
                yield _Token(None, token["sign"])
            case "word":
                yield _Token(token["word"])
            case _:
                yield _Token(_ESCAPED.sub(_unescaped, token["quoted"]))


def _unescaped(match: re.Match[str]) -> str:
    if match["octal"]:
        return chr(int(match["octal"], 8))
    return _CONTROLS.get(match["character"], match["character"])


def _options(option: str, tokens: Iterator[_Token]) -> dict[str, str]:
    """The options, which end with a semicolon. :raises ConfigError: if they are malformed."""
    options: dict[str, str] = {}
    for name in tokens:
        if name.sign == ";":
            return options
        equals, value = next(tokens, None), next(tokens, None)
        if name.text is None or equals is None or equals.sign != "=" or value is None or value.text is None:
            break
        options[name.text] = value.text
    raise ConfigError.of(
        option,
        f': malformed after {len(options)} options, expected name="value" in one line, with \\" for '
        "quotes and \\\\ for a backslash in it; a value needs quotes unless it has letters, digits and . - _ $ only, "
        "and the line ends with one ;",
    )
