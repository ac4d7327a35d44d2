"""The names of a struct's columns against those of a schema. Called where columns are matched with a schema."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.common.config import nearest
from kafka_sink.formats.errors import FormatError


def check_names(names: Sequence[str], known: Sequence[str], described: object, path: str) -> None:
    """Check that each of the columns *names* of the struct *path* has a field: *known* are those of what the schema
    calls *described*.

    :raises FormatError: if two columns have the same name, or a column has no field.
    """
    for name in names:
        if names.count(name) > 1:
            raise FormatError(f"column '{path}' has two fields named '{name}'; rename one of them")
        if name not in known:
            meant = next((f" (did you mean {each}?)" for each in known if each.lower() == name.lower()), None)
            raise FormatError(
                f"column '{path}.{name}' has no field in the schema's {described}{meant or nearest(name, known)}; "
                "rename or drop it, or add it to the schema"
            )
