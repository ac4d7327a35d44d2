"""Configuration: one typed table per component.

A component declares a frozen dataclass whose fields are created by :func:`key`, with property name, type, default,
validator and documentation in one place. :func:`parse` converts properties (strings from a file, a Spark option map, or
Python values) to the dataclass; :func:`markdown_table` renders the table of the README. No other module parses
properties.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass
from pathlib import Path
from typing import Any, TypeVar

from kafka_sink.common.errors import ConfigError

_log = logging.getLogger(__name__)

T = TypeVar("T")

REDACTED = "[hidden]"
_META = "kafkalite.config"
_BLANKS = " \t\f"
#: A name, its separator and the value; a blank is a separator only if a value follows.
_PROPERTY = re.compile(
    r"(?P<name>(?:\\.|[^\\=: \t\f])++)(?:[ \t\f]*+[=:][ \t\f]*+|[ \t\f]++(?=.))(?P<value>.*)", re.DOTALL
)
_ESCAPE = re.compile(r"(?P<utf16>(?:\\u[0-9a-fA-F]{4})+)|\\(?P<character>.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
REQUIRED: Any = MISSING


@dataclass(frozen=True)
class ConfigType:
    """The type of a property: *parse* converts the user's value, and raises ValueError if the type is wrong."""

    name: str
    parse: Callable[[Any], Any]


def _parse_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    raise ValueError


def _parse_int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _parse_list(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else list(value)
    return tuple(text for text in (str(item).strip() for item in items) if text)


def _parse_string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value.strip()


def _parse_plugin(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise ValueError
    return value.strip() if isinstance(value, str) else value


def _parse_plugins(value: Any) -> tuple[Any, ...]:
    items = value.split(",") if isinstance(value, str) else list(value)
    return tuple(_parse_plugin(item) for item in items if item != "")


BOOLEAN = ConfigType("true or false", _parse_bool)
INT = ConfigType("a whole number", _parse_int)
DOUBLE = ConfigType("a number", float)
STRING = ConfigType("text", _parse_string)
LIST = ConfigType("a comma-separated list", _parse_list)
PLUGIN = ConfigType("the dotted path of a class, a class or an object", _parse_plugin)
PLUGINS = ConfigType("dotted paths of classes separated by commas, or a list of classes or objects", _parse_plugins)


@dataclass(frozen=True)
class Validator:
    """A rule for a parsed value: *expected* completes the sentence "expected …"."""

    expected: str
    accepts: Callable[[Any], bool]


def at_least(low: float) -> Validator:
    return Validator(f"at least {low:.16g}", lambda value: bool(value >= low))


def between(low: float, high: float) -> Validator:
    return Validator(f"from {_number(low)} to {_number(high)}", lambda value: bool(low <= value <= high))


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.16g}"


def one_of(*allowed: str) -> Validator:
    return Validator("one of " + ", ".join(allowed), lambda value: value in allowed)


@dataclass(frozen=True)
class ConfigKey:
    """One row of a component's configuration table."""

    name: str
    type: ConfigType
    doc: str
    validator: Validator | None
    sensitive: bool

    def read(self, value: Any, shown_as: str) -> Any:
        """Parse and validate *value*; *shown_as* is the name that the user wrote, for error texts."""
        seen = REDACTED if self.sensitive else repr(value)
        try:
            parsed = self.type.parse(value)
        except (TypeError, ValueError):
            raise ConfigError(f"option {shown_as}: {seen} is not {self.type.name}; {self.doc}") from None
        if self.validator is not None and not self.validator.accepts(parsed):
            rule = self.validator.expected
            raise ConfigError(f"option {shown_as}: {seen} is not allowed, expected {rule}; {self.doc}")
        return parsed


def key(
    name: str,
    type: ConfigType,
    default: Any,
    doc: str,
    *,
    validator: Validator | None = None,
    sensitive: bool = False,
) -> Any:
    """A dataclass field that is also a configuration key. ``default=REQUIRED`` makes it mandatory."""
    entry = ConfigKey(name, type, doc, validator, sensitive)
    return dataclasses.field(default=default, metadata={_META: entry}, repr=not sensitive, kw_only=True)


def keys(config: type[Any]) -> dict[str, tuple[ConfigKey, Field[Any]]]:
    """Property name → (key, dataclass field) of *config*, in declaration order."""
    found: dict[str, tuple[ConfigKey, Field[Any]]] = {}
    for item in dataclasses.fields(config):
        entry = item.metadata.get(_META)
        if entry is not None:
            found[entry.name] = (entry, item)
    return found


def as_properties(config: Any) -> dict[str, Any]:
    """Property name → value of *config*, the inverse of :func:`parse`."""
    return {name: getattr(config, item.name) for name, (_, item) in keys(type(config)).items()}


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """`` (did you mean …?)`` for the known name most similar to *name*, or "" if the similarity (0 to 1) is below
    *likeness*.
    """
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return f" (did you mean {matches[0]}?)" if matches else ""


def no_effect(config: type[Any]) -> Mapping[str, str]:
    """Names that users of *config* know from other clients and that have no effect here, each with the reason."""
    names: Mapping[str, str] = getattr(config, "NO_EFFECT", {})
    return names


def not_supported(config: type[Any]) -> Mapping[str, str]:
    """Names that users of *config* know from other clients and that are refused here, each with what to do instead;
    ``{prefix}`` stands for the prefix of option names."""
    names: Mapping[str, str] = getattr(config, "NOT_SUPPORTED", {})
    return names


def parse(config: type[T], properties: Mapping[str, Any], *, prefix: str = "", passed_over: Collection[str] = ()) -> T:
    """Build *config* from *properties* (names without *prefix*; errors show the name with it).

    Names in the class's ``NO_EFFECT`` are ignored with one warning that names them all; names in *passed_over* are
    ignored, because another component reads them.

    :raises ConfigError: if *properties* is not a mapping of names, a name is unknown (the text has the most similar
        known one) or in the class's ``NOT_SUPPORTED``, a value has the wrong type or is out of range, or a required key
        is missing.
    """
    table = keys(config)
    values: dict[str, Any] = {}
    ignored: list[str] = []
    if not isinstance(properties, Mapping):
        raise ConfigError(f"the options must be a mapping of names to values, got {type(properties).__name__}")
    for name, value in properties.items():
        if not isinstance(name, str):
            raise ConfigError(f"the name of an option must be str, got {type(name).__name__} ({name!r:.50})")
        if name in passed_over:
            continue
        if name in no_effect(config):
            ignored.append(f"{prefix}{name} ({no_effect(config)[name]})")
            continue
        if name not in table:
            raise _unusable(config, name, prefix)
        entry, item = table[name]
        values[item.name] = entry.read(value, f"{prefix}{name}")
    for name, (entry, item) in table.items():
        if item.default is MISSING and item.name not in values:
            raise ConfigError(f"option {prefix}{name} is required: {entry.doc}")
    if ignored:
        _log.warning("options without effect here: %s", ", ".join(ignored))
    return config(**values)


def _unusable(config: type[Any], name: str, prefix: str) -> ConfigError:
    """The error for a name that is not an option of *config*."""
    reason = not_supported(config).get(name)
    if reason is not None:
        reason = reason.replace("{prefix}", prefix)
        return ConfigError(f"option {prefix}{name} is not supported: {reason}; remove it")
    hint = nearest(name, keys(config)).replace("did you mean ", f"did you mean {prefix}")
    return ConfigError(f"unknown option {prefix}{name}{hint}")


def load_properties(path: str) -> dict[str, str]:
    """Read a UTF-8 file like Java's ``.properties``; for a repeated name the last value is used.

    ``=``, ``:`` or white space ends a name; ``#`` and ``!`` start comments. A backslash at the end of a line joins the
    next line to it; elsewhere it escapes the next character (``\\t``, ``\\n``, ``\\r``, ``\\f`` and ``\\uHHHH`` have
    their usual meaning). A name alone, which Java reads as a name with an empty value, is an error.

    :raises ConfigError: if a line is not name=value; the text never shows a value, which may be a secret.
    """
    found: dict[str, str] = {}
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in _logical_lines(lines):
            match = _PROPERTY.fullmatch(line)
            if match is None:
                raise ConfigError(f"{path} line {number}: expected name=value")
            try:
                found[_unescape(match["name"])] = _unescape(match["value"])
            except ValueError:
                raise ConfigError(f"{path} line {number}: {match['name']} has a malformed \\uHHHH") from None
    return found


def _logical_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(number of the first line, text) of each line that is not blank and not a comment; continued lines are joined."""
    joined: list[str] = []
    first = 0
    for number, raw in enumerate(lines, 1):
        line = raw.removesuffix("\n").lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined.append(line[:-1] if is_continued else line)
        if not is_continued:
            yield first, "".join(joined)
            joined = []
    if joined:
        yield first, "".join(joined)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    if match["utf16"]:
        # Several at once, because a character beyond 16 bits is written as a pair.
        return bytes.fromhex(match["utf16"].replace("\\u", "")).decode("utf-16-be")
    character = match["character"]
    if character == "u":
        raise ValueError
    return _CONTROLS.get(character, character)


def markdown_table(
    config: type[Any], *, prefix: str = "", defaults: Mapping[str, str] | None = None, without: Collection[str] = ()
) -> str:
    """The option table of *config* in Markdown: name, default (*defaults* override the table's own), meaning."""
    rows = ["| option | default | meaning |", "| --- | --- | --- |"]
    for name, (entry, item) in keys(config).items():
        if name in without:
            continue
        rule = f" ({entry.validator.expected})" if entry.validator else ""
        default = (defaults or {}).get(name, item.default)
        rows.append(f"| `{prefix}{name}` | {_shown_default(default)} | {entry.doc}{rule} |")
    rows += [f"| `{prefix}{name}` | none | has no effect: {why} |" for name, why in no_effect(config).items()]
    return "\n".join(rows)


def _shown_default(default: Any) -> str:
    if default is MISSING:
        return "required"
    if default is None or default == () or default == "":
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, tuple) else str(default)
