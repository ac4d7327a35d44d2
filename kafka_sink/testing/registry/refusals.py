"""The errors with which the registry refuses requests: the codes and texts of Confluent's registry.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html#errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The maximum number of comparisons of types for two schemas: about 5,000 nullable columns need 30,000.
_MOST_STEPS: Final = 50_000

_SOFT_DELETED: Final = "was soft deleted.Set permanent=true to delete permanently"
_NOT_SOFT_DELETED: Final = "was not deleted first before being permanently deleted"
#: Code → text. The first three digits of a code are the HTTP status.
_TEXTS: Final[Mapping[int, str]] = {
    400: "{}",
    404: "HTTP 404 Not Found",
    40401: "Subject '{}' not found.",
    40402: "Version {} not found.",
    40403: "Schema {}not found",
    40404: f"Subject '{{}}' {_SOFT_DELETED}",
    40405: f"Subject '{{}}' {_NOT_SOFT_DELETED}",
    40406: f"Subject '{{}}' Version {{}} {_SOFT_DELETED}",
    40407: f"Subject '{{}}' Version {{}} {_NOT_SOFT_DELETED}",
    40408: "Subject '{}' does not have subject-level compatibility configured",
    40409: "Subject '{}' does not have subject-level mode configured",
    409: 'Schema being registered is incompatible with an earlier schema for subject "{}", details: [{}]',
    42201: "Invalid schema: {}",
    42202: "The specified version '{}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
    'string "latest"',
    42203: "Invalid compatibility level. Valid values are {}",
    42204: "Invalid mode. Valid values are {}",
    42205: "{}",
    42206: "One or more references exist to the schema of version {} of subject '{}'.",
    42208: "The specified subject '{}' is not a valid subject: this registry has no contexts",
    42210: "Invalid rule set: {}",
    50001: "Error in the backend data store: {}",
}


class RefusalError(Exception):
    """A request that the registry refuses, with Confluent's *code* and the arguments of its text."""

    def __init__(self, code: int, *named: object) -> None:
        super().__init__(_TEXTS[code].format(*named))
        self.code = code
        self.status = int(str(code)[:3])


class CannotJudgeError(Exception):
    """A pair of schemas that a judge cannot compare as Confluent's registry does."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"this registry cannot judge {what}; {remedy}set compatibility NONE for it")


class Steps:
    """Counts and limits the comparisons of a judge: two schemas of a mebibyte may need far too many."""

    def __init__(self, what: str, most: int = _MOST_STEPS) -> None:
        self._what = what
        self._most = most
        self._taken = 0

    def take(self, number: int = 1) -> None:
        """:raises CannotJudgeError: if these are too many steps."""
        self._taken += number
        if self._taken > self._most:
            raise CannotJudgeError(f"{self._what} that take more than {self._most} comparisons")
