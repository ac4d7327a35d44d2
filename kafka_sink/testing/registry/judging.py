"""What judges of compatibility have in common: what they say, and what they say if they cannot judge."""

from __future__ import annotations


class CannotJudgeError(Exception):
    """A pair of schemas that a judge does not know to judge as Confluent's registry does."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"this registry cannot judge {what}; {remedy}set compatibility NONE for it")
