"""Configuration: one typed table per component.

A component is a frozen dataclass whose fields are declared by calling a :class:`ConfigType` with the default of the
property, its documentation and validator in one place. :func:`parse` converts properties (strings from a file,
a Spark option map, or Python values) to the dataclass. No other module parses properties. References to secrets are
replaced by :func:`parse`, or, for credentials, by :func:`resolved` for each connection.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

from kafka_sink.common.errors import ConfigError, UnresolvedReferenceError
from kafka_sink.common.log_context import warn
from kafka_sink.common.references import PROVIDERS, has_reference, providers_in, resolve

_log = logging.getLogger(__name__)

T = TypeVar("T")
OptionsT = TypeVar("OptionsT", bound="Options")

REDACTED = "[hidden]"
_HOSTS_AND_PORTS = re.compile(r"[\w.\-\[\]:, ]*(?::\d+)?", re.ASCII)
_META = "kafkalite.config"
REQUIRED: Any = MISSING


@dataclass(frozen=True)
class ConfigType:
    """The type of a property: *parse* converts the user's value, and raises ValueError if the type is wrong.

    Calling it declares a property of this type.
    """

    name: str
    parse: Callable[[Any], Any]

    def __call__(
        self,
        default: Any,
        doc: str,
        validator: Validator | None = None,
        *,
        name: str = "",
        sensitive: bool = False,
        at_connect: bool = False,
        is_address: bool = False,
        group: str = "",
    ) -> Any:
        """A dataclass field that is also a configuration key. ``default=REQUIRED`` makes it mandatory.

        :param name: the name of the key; by default the field's, with dots in place of underscores.
        :param sensitive: the value appears in no error and no ``repr``.
        :param at_connect: references in the value are not replaced by :func:`parse`, but for each connection by
            :func:`resolved`.
        :param is_address: the value may have a user and a password, which appear in no error, and the value in no
            ``repr``.
        :param group: the heading in docs/options.md; empty if it follows from the name.
        """
        entry = ConfigKey(name, self, doc, validator, sensitive, at_connect, is_address, group)
        shown = not (sensitive or is_address)
        return dataclasses.field(default=default, metadata={_META: entry}, repr=shown, kw_only=True)


#: The characters that Java trims from values: blanks and control characters, and none of Unicode's other blanks.
_TRIMMED = "".join(map(chr, range(0x21)))
#: Python's ``int`` also accepts 1_000.
_WHOLE_NUMBER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _parse_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip(_TRIMMED).lower()
    if text in ("true", "false"):
        return text == "true"
    raise ValueError


def _parse_int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(_matching(value, _WHOLE_NUMBER))


def _matching(value: Any, form: re.Pattern[str]) -> Any:
    """*value*, trimmed if it is text. :raises ValueError: if it is text of another form."""
    if not isinstance(value, str):
        return value
    text = value.strip(_TRIMMED)
    if form.fullmatch(text) is None:
        raise ValueError
    return text


def _parse_list(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else list(value)
    texts = (str(item).strip(_TRIMMED) for item in items)
    return tuple(dict.fromkeys(text for text in texts if text))


def _parse_string(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        # Other clients in Python accept acks=1, too.
        return str(value)
    if not isinstance(value, str):
        raise ValueError
    return value.strip(_TRIMMED)


def _parse_plugin(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip(_TRIMMED)
    if not text:
        raise ValueError
    return text


def _parse_plugins(value: Any) -> tuple[Any, ...]:
    items = value.split(",") if isinstance(value, str) else list(value)
    return tuple(_parse_plugin(item) for item in items if item != "")


BOOLEAN = ConfigType("true or false", _parse_bool)
INT = ConfigType("a whole number", _parse_int)
DOUBLE = ConfigType("a number", lambda value: float(_matching(value, _NUMBER)))
STRING = ConfigType("text", _parse_string)
#: Names that may be written in any case.
UPPER_CASE = ConfigType("text", lambda value: _parse_string(value).upper())
LOWER_CASE = ConfigType("text", lambda value: _parse_string(value).lower())
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


def all_of(*allowed: str) -> Validator:
    """A list that contains no other values than *allowed*."""
    return Validator("a list of " + ", ".join(allowed), lambda values: set(values) <= set(allowed))


def only(allowed: int) -> Validator:
    """The only value; False is shown as Kafka writes it."""
    return Validator(str(allowed).lower(), lambda value: bool(value == allowed))


class Options:
    """The table of a component's options, which a frozen dataclass with such fields inherits.

    ``NO_EFFECT`` are names that users know from other clients and that have no effect here, each with the reason;
    ``NOT_SUPPORTED`` are names that are refused, each with the alternative, in which ``{prefix}`` stands for the prefix
    of option names.
    """

    #: Whether names are written like Spark's, such as ``maxBadRows`` for ``max_bad_rows``, instead of with dots.
    IS_CAMEL_CASE: ClassVar[bool] = False
    NO_EFFECT: ClassVar[Mapping[str, str]] = MappingProxyType({})
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @staticmethod
    def reader_of(name: str) -> str | None:
        """The component that reads the option *name*, such as "for consumers"; None if it is unknown."""
        return None

    @staticmethod
    def instead_of(name: str, prefix: str, known: Collection[str]) -> str | None:
        """The remedy for *name*, an option of another client; None if no client has it."""
        return None

    def settle(self, explicit: Collection[str]) -> Self:
        """Adjust defaults to the options that were set: the names *explicit*."""
        return self


@dataclass(frozen=True)
class ConfigKey:
    """One row of a component's configuration table."""

    name: str
    type: ConfigType
    doc: str
    validator: Validator | None
    sensitive: bool
    at_connect: bool
    is_address: bool
    group: str

    def read(self, value: Any, shown_as: str, *, hidden: bool = False) -> Any:
        """Parse and validate *value*; *shown_as* is the name that the user wrote, for error texts, which do not show a
        *hidden* value."""
        seen = REDACTED if self.sensitive or hidden else repr(shown_address(value) if self.is_address else value)
        try:
            parsed = self.type.parse(value)
        except (TypeError, ValueError):
            raise ConfigError.of(shown_as, f": {seen} is not {self.type.name}; {self.doc}") from None
        if self.validator is not None and not self.validator.accepts(parsed):
            rule = self.validator.expected
            raise ConfigError.of(shown_as, f": {seen} is not allowed, expected {rule}; {self.doc}")
        return parsed


def shown_address(address: Any) -> str:
    """The invalid *address* for an error, if it has only hosts and ports: any other part may be a password."""
    text = ",".join(map(str, address)) if isinstance(address, list | tuple) else str(address)
    return text if _HOSTS_AND_PORTS.fullmatch(text) else REDACTED


def keys(config: type[Any]) -> Mapping[str, tuple[ConfigKey, Field[Any]]]:
    """Property name → (key, dataclass field) of *config*, in declaration order."""
    return _keys(config)  # type: ignore[arg-type]  # mypy takes classes for unhashable


def known_to(config: type[Any], properties: Mapping[str, T]) -> dict[str, T]:
    """The *properties* that *config* has; the others are for other clients."""
    known = keys(config)
    return {name: value for name, value in properties.items() if name in known}


@cache
def _keys(config: type[Any]) -> Mapping[str, tuple[ConfigKey, Field[Any]]]:
    table: dict[str, tuple[ConfigKey, Field[Any]]] = {}
    for item in dataclasses.fields(config):
        key: ConfigKey | None = item.metadata.get(_META)
        if key is not None:
            first, *others = item.name.split("_")
            name = first + "".join(map(str.title, others)) if config.IS_CAMEL_CASE else ".".join((first, *others))
            key = dataclasses.replace(key, name=key.name or name)
            table[key.name] = key, item
    return MappingProxyType(table)


def as_properties(config: Any) -> dict[str, Any]:
    """Property name → value of *config*, the inverse of :func:`parse`."""
    return {name: getattr(config, item.name) for name, (_, item) in keys(type(config)).items()}


def changed(config: Any) -> dict[str, Any]:
    """Property name → value of *config*, for values that are not the defaults."""
    table = keys(type(config))
    return {name: value for name, value in as_properties(config).items() if value != table[name][1].default}


def nearest(name: str, known: Iterable[str]) -> str:
    """`` (did you mean …?)`` for the known name most similar to *name*, or "" if none is similar."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {matches[0]}?)" if matches else ""


#: The least similarity (0 to 1) of the name of an option and its misspelling, by their letters and digits: of most
#: names, and of names with few of them, where a single wrong one weighs more.
_LIKENESS, _LIKENESS_OF_SHORT_NAMES, _SHORT = 0.85, 0.75, 6


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """The option among *known* of which *name* is a misspelling: a few wrong letters, other separators or another
    case. A wrong suggestion is worse than none, so a name that is only similar is no misspelling, and neither is a name
    with an additional word."""
    by_letters = {_letters(each): each for each in known}
    letters = _letters(name)
    likeness = _LIKENESS_OF_SHORT_NAMES if len(letters) <= _SHORT else _LIKENESS
    matches = difflib.get_close_matches(letters, by_letters, n=1, cutoff=likeness)
    meant = by_letters[matches[0]] if matches else None
    return None if meant is None or _words(name) > _words(meant) else meant


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def reader_of(config: type[Options], name: str) -> str | None:
    """The component that reads the option *name*, such as "for consumers", if *config* does not; None if unknown."""
    return None if name in keys(config) else config.reader_of(name)


def without_effect(config: type[Options], names: Iterable[str]) -> dict[str, str]:
    """The *names* that *config* accepts although they have no effect, each with the reason or the component for it."""
    reasons = {name: config.NO_EFFECT.get(name) or reader_of(config, name) for name in names}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def warn_without_effect(reasons: Mapping[str, str], prefix: str = "") -> None:
    """Log one warning for all options in *reasons*, which are accepted although they have no effect."""
    if reasons:
        listed = ", ".join(f"{prefix}{name} ({reason})" for name, reason in reasons.items())
        warn(_log, "options without effect here: %s", listed)


#: The name of the option with the providers of references.
CONFIG_PROVIDERS = "config.providers"


@dataclass(frozen=True)
class ReferencesConfig(Options):
    """The option with the providers of references to secrets."""

    config_providers: tuple[str, ...] = LIST(
        PROVIDERS,
        "providers of references such as ${file:/path:key} in the values of other options; an empty value turns "
        "references off",
        Validator(f"any of {', '.join(PROVIDERS)}, which are built in", lambda names: set(names) <= set(PROVIDERS)),
        name=CONFIG_PROVIDERS,
    )


def resolved(config: T, prefix: str = "") -> T:
    """*config* with the current values of the references that :func:`parse` has left in it; the same object if it has
    none.

    :raises UnresolvedReferenceError: if a reference cannot be replaced, or the result is empty; the text names the
        option with *prefix*.
    """
    providers = getattr(config, "config_providers", ())
    present: dict[str, Any] = {}
    for name, (entry, item) in keys(type(config)).items():
        value = getattr(config, item.name)
        if entry.at_connect and has_reference(value, providers):
            present[item.name] = entry.read(
                resolve(f"{prefix}{name}", value, providers), f"{prefix}{name}", hidden=True
            )
            if not present[item.name]:
                raise UnresolvedReferenceError.of(f"{prefix}{name}", f": {value} refers to an empty value; set one")
    return dataclasses.replace(config, **present) if present else config  # type: ignore[type-var]


def with_values(properties: Mapping[str, Any], config: ReferencesConfig) -> dict[str, Any]:
    """*properties* with all references to the providers of *config* replaced, for code that supports no references.

    :raises UnresolvedReferenceError: if a reference cannot be replaced.
    """
    providers = config.config_providers
    return {
        name: value if providers_in(value).isdisjoint(providers) else resolve(name, value, providers)
        for name, value in properties.items()
    }


def providers_of(config: type[Any], properties: Mapping[str, Any]) -> tuple[str, ...]:
    """The providers of references in *properties*; none if *config* has no such option, or if it is invalid."""
    table = keys(config)
    if CONFIG_PROVIDERS not in table:
        return ()
    entry, item = table[CONFIG_PROVIDERS]
    try:
        providers: tuple[str, ...] = entry.read(properties.get(CONFIG_PROVIDERS, item.default), CONFIG_PROVIDERS)
    except ConfigError:
        return ()
    return providers


def read_one(config: type[Any], name: str, properties: Mapping[str, Any]) -> Any:
    """The value of the option *name* of *config* in *properties*, or its default; other options are not checked.

    :raises ConfigError: if the value is invalid or has a reference that cannot be replaced.
    """
    entry, item = keys(config)[name]
    return _read(entry, properties.get(name, item.default), name, providers_of(config, properties))


def check_names(properties: Any) -> None:
    """:raises ConfigError: if *properties* is not a mapping of names."""
    if not isinstance(properties, Mapping):
        raise ConfigError(f"the options must be a mapping of names to values, got {type(properties).__name__}")
    for name in properties:
        if not isinstance(name, str):
            raise ConfigError(f"the name of an option must be str, got {type(name).__name__} ({name!r:.50})")


def without_none(properties: Mapping[str, Any]) -> dict[str, Any]:
    """*properties* without the options that are None, which are not set.

    :raises ConfigError: if *properties* is not a mapping of names.
    """
    check_names(properties)
    return {name: value for name, value in properties.items() if value is not None}


def parse(
    config: type[OptionsT],
    properties: Mapping[str, Any],
    *,
    prefix: str = "",
    passed_over: Collection[str] = (),
    made: Mapping[str, Any] = MappingProxyType({}),
) -> OptionsT:
    """Build *config* from *properties* (names without *prefix*; errors show the name with it).

    Names in the class's ``NO_EFFECT``, and those for other programs (``reader_of``), are ignored with one warning that
    names them all; names in *passed_over* are ignored, because another component reads them. Defaults are adjusted to
    the options that were given (``settle``). *made* are values of fields that are no options.

    :raises ConfigError: if *properties* is not a mapping of names, a name is unknown (the text suggests the intended
        one, if it is known) or in the class's ``NOT_SUPPORTED``, a value has the wrong type or is out of range, a
        required key is missing, or a reference cannot be replaced.
    """
    table = keys(config)
    values: dict[str, Any] = {}
    check_names(properties)
    ignored = without_effect(config, [name for name in properties if name not in passed_over])
    providers = providers_of(config, properties)
    for name, value in properties.items():
        if name in passed_over or name in ignored:
            continue
        if name not in table:
            raise _unusable(config, name, prefix)
        entry, item = table[name]
        values[item.name] = _read(entry, value, f"{prefix}{name}", providers)
    for name, (entry, item) in table.items():
        if item.default is MISSING and item.name not in values:
            raise ConfigError.of(f"{prefix}{name}", f" is required: {entry.doc}")
    warn_without_effect(ignored, prefix)
    return config(**values, **made).settle(properties.keys())


def _read(entry: ConfigKey, value: Any, shown_as: str, providers: Collection[str]) -> Any:
    """*value* as the type of *entry*; references are replaced unless that is done for each connection."""
    named = providers_in(value)
    if providers and not named <= set(providers):
        warn(
            _log,
            "option %s contains a reference to a provider that is not among %s; it is used as it is",
            shown_as,
            ", ".join(providers),
        )
    if entry.at_connect or named.isdisjoint(providers):
        return entry.read(value, shown_as)
    return entry.read(resolve(shown_as, value, providers), shown_as, hidden=True)


def _unusable(config: type[Options], name: str, prefix: str) -> ConfigError:
    reason = config.NOT_SUPPORTED.get(name)
    if reason is not None:
        reason = reason.replace("{prefix}", prefix)
        return ConfigError.of(f"{prefix}{name}", f" is not supported: {reason}; remove it")
    return ConfigError(f"unknown option {prefix}{name}{hint(config, name, prefix)}", option=f"{prefix}{name}")


def hint(config: type[Options], name: str, prefix: str, *, without: Collection[str] = ()) -> str:
    """The suggestion for *name*, which is not an option of *config*, as an addition to an error; "" if there is none.
    Options in *without* are not suggested."""
    known = [key for key in keys(config) if key not in without]
    if instead := config.instead_of(name, prefix, known):
        return f": {instead}"
    meant = misspelt(name, known)
    return f" (did you mean {prefix}{meant}?)" if meant else ""
