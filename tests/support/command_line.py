"""The ``kafkalite`` command without a process of its own, in which most of the time goes into imports."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from io import BytesIO, TextIOWrapper
from subprocess import CompletedProcess
from types import MappingProxyType

import pytest

from kafka_sink.cli.main import run


def run_command(
    arguments: Sequence[str], stdin: str | bytes = "", environment: Mapping[str, str] = MappingProxyType({})
) -> CompletedProcess[str]:
    """Run it with *arguments*, which begin after its name, with *stdin* and further variables of the *environment*."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        given = stdin.encode() if isinstance(stdin, str) else stdin
        patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(given), "utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        code = run(arguments)
    return CompletedProcess(arguments, code, *(_text(stream) for stream in (out, err)))


def _text(stream: TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
