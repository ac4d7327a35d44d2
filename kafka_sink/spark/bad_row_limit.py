"""How many rows of a write may be bad: the option maxBadRows.

Read on the driver; checked in each task as far as its own rows tell, and on the driver for all tasks together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from kafka_sink.spark.errors import TooManyBadRowsError

_LIMIT: Final = re.compile(r"(?P<rows>[0-9]+)|(?P<percent>[0-9]+(?:\.[0-9]+)?) ?%")


@dataclass(frozen=True, slots=True)
class BadRowLimit:
    """A number of rows, or a share of all rows; *text* is what the user wrote."""

    text: str
    rows: int | None
    share: Fraction

    @classmethod
    def parse(cls, given: object) -> BadRowLimit:
        """:raises ValueError: if *given* is neither a number of rows nor a share in percent."""
        text = str(given).strip()
        found = _LIMIT.fullmatch(text)
        if found is None:
            raise ValueError(text)
        if found["rows"] is not None:
            return cls(text, int(found["rows"]), Fraction(0))
        share = Fraction(found["percent"]) / 100
        if share > 1:
            raise ValueError(text)
        return cls(text, None, share)

    def check_task(self, bad_rows: int, first: str) -> None:
        """Check what one task has found so far, *bad_rows* bad rows, the *first* of which has this problem.

        :raises TooManyBadRowsError: if these are too many already, whatever follows.
        """
        if self.rows is not None and bad_rows > self.rows:
            raise self._error(f"{bad_rows} rows of one task", first)

    def check(self, bad_rows: int, rows: int, first: str) -> None:
        """Check a whole write of *rows* rows.

        :raises TooManyBadRowsError: if too many of them are bad.
        """
        most = self.share * rows if self.rows is None else self.rows
        if bad_rows > most:
            raise self._error(f"{bad_rows} of {rows} rows ({bad_rows / rows:.2%})", first)

    def _error(self, found: str, first: str) -> TooManyBadRowsError:
        return TooManyBadRowsError(
            f"{found} cannot be written, more than option maxBadRows={self.text} allows; the first: {first}; correct "
            "the rows, or raise maxBadRows"
        )
