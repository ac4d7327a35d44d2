"""Tests use the public interface of a class; the exceptions are listed here, each with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

#: Public in spite of the underscore: named tuples, hooks of notebooks, and documented names of other projects.
PUBLIC = frozenset(
    {"_replace", "_asdict", "_fields", "_exit", "_repr_html_", "_PARTITION_EOF", "_MSG_TIMED_OUT", "_UNKNOWN_TOPIC"}
)

#: Calls that take the name of an attribute as a string.
BY_NAME = frozenset({"setattr", "getattr", "hasattr", "delattr", "object"})

#: File → the private names that it uses; a comment beside each use states the reason.
ALLOWED: dict[str, set[str]] = {
    "fakes/producing.py": {"_queues"},
    "fakes/sender_world.py": {"_settings"},
    "golden/make_avro_golden.py": {"_jdf", "_jvm"},
    "property/test_client_hostile_answers.py": {"_nodes"},
    "sim/mutations.py": {"_pool"},
    "spark/test_json_settings.py": {"_jdf", "_jvm"},
    "spark/test_progress_line.py": {"_jsc"},
    "spark/test_stop.py": {"_jsc"},
    "spark/test_stream_write.py": {"_jsc"},
    "unit/broker/test_processor.py": {"_connections"},
    "unit/broker/test_socket_server.py": {"_listeners"},
    "unit/client/test_network_client.py": {"_correlation_id"},
    "unit/network/test_selector.py": {"_channels"},
    "unit/producer/test_producer_batch.py": {"_staging"},
    "unit/producer/test_sender.py": {"_backoff_left_ms"},
    "unit/spark/test_internals.py": {"_zip_directory_cache"},
    "unit/spark/test_promised_reports.py": {"_DataFrameWrite", "_by_partition", "_outcomes"},
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def is_own(owner: ast.expr) -> bool:
    """Whether *owner* is ``self``, ``cls`` or ``super()``."""
    if isinstance(owner, ast.Call):
        owner = owner.func
        return isinstance(owner, ast.Name) and owner.id == "super"
    return isinstance(owner, ast.Name) and owner.id in {"self", "cls"}


def names_used(node: ast.AST) -> Iterator[str]:
    """The names that *node* takes from something other than its own class."""
    if isinstance(node, ast.Attribute) and not is_own(node.value):
        yield node.attr
    elif isinstance(node, ast.ImportFrom):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in BY_NAME:
            for each in node.args:
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value.rpartition(".")[2]


def private_names(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return {name for node in ast.walk(tree) for name in names_used(node) if is_private(name)}


def test_tests_use_no_private_names_but_those_listed() -> None:
    found = {str(path.relative_to(TESTS)): private_names(path) for path in sorted(TESTS.rglob("*.py"))}
    assert {path: names for path, names in found.items() if names} == ALLOWED
