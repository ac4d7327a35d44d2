"""Loads objects that a user names in a property: serializers, interceptors, partitioners.

The constructing thread calls it once. A name is the dotted path of a class (``my.module.MyClass``); built-in classes
also have short names. It imports the named module, and calls only the class.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from kafka_sink.common.config import nearest
from kafka_sink.common.errors import ConfigError


def load_plugin(option: str, plugin: Any, built_in: Mapping[str, Callable[..., Any]], *methods: str) -> Any:
    """The object for *plugin*: an object is returned unchanged; a class, or the class with that name, is called without
    arguments.

    :param built_in: the built-in classes or functions, by short names and by names that Kafka's users know.
    :param methods: the methods that the object must have.
    :raises ConfigError: if there is no such class, it cannot be instantiated, or it lacks one of *methods*.
    """
    loaded = _find(option, plugin, built_in) if isinstance(plugin, str) else plugin
    if isinstance(loaded, type):
        try:
            loaded = loaded()
        except Exception as error:
            raise ConfigError.of(
                option,
                f": {loaded.__module__}.{loaded.__qualname__} could not be created without arguments "
                f"({error!r}); give its parameters defaults, or pass the object itself to the constructor",
            ) from error
    for method in methods:
        if not callable(getattr(loaded, method, None)):
            raise ConfigError.of(option, f": {name_of(loaded)} has no method {method}")
    return loaded


def name_of(plugin: object) -> str:
    """The name of a plugin in messages: the function's, or its class's."""
    return str(getattr(plugin, "__qualname__", type(plugin).__qualname__))


def _find(option: str, name: str, built_in: Mapping[str, Callable[..., Any]]) -> Any:
    if name in built_in:
        return built_in[name]
    module, _, attribute = name.replace(":", ".").rpartition(".")
    short_names = [known for known in built_in if "." not in known]
    if not module:
        raise ConfigError.of(
            option,
            f": {name!r} is neither {', '.join(short_names)} nor the dotted path of a class"
            f"{nearest(name, short_names)}",
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ConfigError.of(option, f": {name} cannot be imported: {error}") from error
    except AttributeError:
        raise ConfigError.of(option, f": module {module} has no class {attribute}") from None
