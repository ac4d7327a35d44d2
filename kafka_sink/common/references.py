"""References to secrets in the values of options: ``${env:NAME}``, ``${file:/path:key}`` and ``${dir:/path:file}``.

References are replaced only in the process that connects, on the thread that creates a client and on the selector's
thread for every new connection and authentication, so only the reference is sent to that process. Reads environment
variables and files; no error text contains any part of their content.

Source: KIP-297, KIP-421, KIP-887; apache/kafka ``ConfigTransformer``, ``FileConfigProvider``,
``DirectoryConfigProvider``, ``EnvVarConfigProvider``. Unlike there, a reference that cannot be replaced is an error.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from pathlib import Path
from typing import Final

from kafka_sink.common.errors import ConfigError, UnresolvedReferenceError
from kafka_sink.common.properties import load_properties

#: ``${provider:[path:]key}``: the path ends at the first colon, so a key may contain colons.
_REFERENCE: Final = re.compile(r"\$\{(?P<provider>[A-Za-z]\w*):(?:(?P<path>[^:}]*):)?(?P<key>[^}]*)\}")
_NONE: Final[Set[str]] = frozenset()


def providers_in(value: object) -> Set[str]:
    """The providers that references in *value* name; fast for values without references, which every task reads."""
    if not isinstance(value, str) or "${" not in value:
        return _NONE
    return {match["provider"] for match in _REFERENCE.finditer(value)}


def has_reference(value: object, providers: Collection[str]) -> bool:
    return not providers_in(value).isdisjoint(providers)


def resolve(option: str, text: str, providers: Collection[str]) -> str:
    """*text*, the value of *option*, with the references to *providers* replaced. Other text is unchanged; the value of
    a reference is not searched for further references.

    :raises UnresolvedReferenceError: if a reference cannot be replaced; the text has the reason and the remedy.
    """

    def replaced(match: re.Match[str]) -> str:
        if match["provider"] not in providers:
            return match[0]
        try:
            return _PROVIDERS[match["provider"]](match["path"] or "", match["key"])
        except _NotFoundError as error:
            unresolved = f"option {option}: {match[0]} cannot be resolved on {platform.node()}: {error}"
            raise UnresolvedReferenceError(unresolved, option=option) from None

    return _REFERENCE.sub(replaced, text)


def replaced_by(word: str, text: str) -> str:
    """*text* with *word* in place of each reference, for code that reads it without their values."""
    return _REFERENCE.sub(word, text)


def referenced_files(text: str) -> Iterator[Path]:
    for match in _REFERENCE.finditer(text):
        path = match["path"] or ""
        if match["provider"] == "file" and path:
            yield Path(path)
        elif match["provider"] == "dir" and path:
            yield Path(path, match["key"])


class _NotFoundError(Exception):
    """There is no such variable, file or key; the text has the remedy."""


def _from_environment(path: str, key: str) -> str:
    if path or not key:
        raise _NotFoundError("expected ${env:NAME}")
    value = os.environ.get(key)
    if value is None:
        raise _NotFoundError(
            f"the environment variable {key} is not set; set it for every process that connects (on Spark's executors "
            "by the cluster manager), or use a file"
        )
    return value


def _from_file(path: str, key: str) -> str:
    if not path or not key:
        raise _NotFoundError("expected ${file:/path/of/a.properties:key}")
    try:
        properties = load_properties(path)
    except ConfigError:
        raise _NotFoundError(f"{path} is not a properties file of UTF-8: each line must be name=value") from None
    except (OSError, ValueError) as error:
        raise _NotFoundError(_unreadable(path, error)) from None
    if key not in properties:
        raise _NotFoundError(f"{path} has no key {key}; add a line {key}=…")
    return properties[key]


def _from_directory(path: str, key: str) -> str:
    if not path or Path(key).name != key or key in ("", ".."):
        raise _NotFoundError("expected ${dir:/path/of/a/directory:file}")
    file = Path(path, key)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise _NotFoundError(_unreadable(str(file), error)) from None
    # Editors and echo end a file with a line feed, which is not part of the secret.
    return text.removesuffix("\n").removesuffix("\r")


def _unreadable(path: str, error: OSError | ValueError) -> str:
    why = error.strerror if isinstance(error, OSError) else "it is not a file of UTF-8 text"
    return f"{path} cannot be read: {why}; put it on every machine that connects, readable for the user of its process"


_PROVIDERS: Final[Mapping[str, Callable[[str, str], str]]] = {
    "env": _from_environment,
    "file": _from_file,
    "dir": _from_directory,
}

#: The names of the providers.
PROVIDERS: Final = tuple(_PROVIDERS)
