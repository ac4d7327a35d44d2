"""Many cases of one test, for what needs no fixture of its own: a test of pytest costs more than most cases do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def with_each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """As ``pytest.mark.parametrize``, within one test: all cases run, and those that fail are named together.

    If none fails and some are skipped, so is the test; the reason says how many of its cases.
    """
    single = isinstance(names, str)
    wanted = [names] if isinstance(names, str) else list(names)
    given = [dict(zip(wanted, [case] if single else case, strict=True)) for case in cases]

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run_all(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            skips: list[str] = []
            for case in given:
                try:
                    test(**fixtures, **case)
                except pytest.skip.Exception as skip:
                    skips.append(str(skip))
                except (Exception, pytest.fail.Exception) as failure:
                    failure.add_note(f"case {case!r}")
                    failures.append(failure)
            if failures:
                raise failures[0] if len(failures) == 1 else BaseExceptionGroup(f"of {len(given)} cases", failures)
            if skips:
                pytest.skip(f"{len(skips)} of {len(given)} cases: {skips[0]}")

        rest = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        run_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run_all

    return decorate
