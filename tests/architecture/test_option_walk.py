"""The modules through which an option passes from the call of a write to the values that its tasks receive."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pyspark.sql.types import StructType

import kafka_sink
from kafka_sink import foreach_batch
from kafka_sink.spark.driver.before_write import prepared
from kafka_sink.spark.options import parse_options
from tests.conftest import Figure

PACKAGE = str(Path(kafka_sink.__file__).parent)
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "t", "kafka.linger.ms": "50"}
COLUMNS = StructType().add("key", "string").add("value", "string")


def write() -> object:
    return prepared(COLUMNS, parse_options(OPTIONS))


def stream() -> object:
    return foreach_batch(OPTIONS, app_id="app")


def entered(call: Callable[[], object]) -> list[str]:
    """The modules that *call* enters, in the order of their calls. Modules of ``common`` do not count: every table uses
    them to define options."""
    modules: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename.removeprefix(f"{PACKAGE}/")
        is_ours = name != frame.f_code.co_filename and not name.startswith("common/")
        if event == "call" and is_ours and frame.f_code.co_name != "<module>" and modules[-1:] != [name]:
            modules.append(name)

    call()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return modules


@pytest.mark.behaviour(
    "Sink options and commit messages", "An option is parsed once, and enters few modules on its way to the tasks"
)
@pytest.mark.parametrize("call", [write, stream])
def test_an_option_enters_few_modules_and_few_of_them_twice(call: Callable[[], object], figure: Figure) -> None:
    modules = entered(call)
    rooms, returns = len(set(modules)), len(modules) - len(set(modules))
    figure(call.__name__, f"{rooms} modules, {returns} returns")
    assert rooms <= 10, modules
    assert returns <= 8, modules
