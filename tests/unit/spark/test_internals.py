"""Access to Spark's private API: where it is missing, nothing fails, and no other module uses it."""

from __future__ import annotations

import re
import sys
import types
import zipimport
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from kafka_sink.spark import internals
from tests.support.cases import with_each

#: Another Spark, which has none of the private names.
ANOTHER: Any = SimpleNamespace()


@pytest.mark.behaviour("Versions", "Where Spark's privates are gone, no write fails")
@with_each(
    ("look", "found"),
    [
        (internals.classic_context, None),
        (lambda spark: internals.stages_with_tag(spark, "tag"), set()),
        (lambda spark: internals.running_tasks(spark, {1}), 0),
        (internals.remove_checkpoint, None),
        (internals.java_query, None),
        (lambda spark: internals.running_query(spark, "5f0c8d7e"), None),
        (internals.activate, None),
        (internals.is_active, True),
        (lambda spark: internals.environment_of_jvm(spark, "PYSPARK_PYTHON"), None),
        (internals.python_of_workers, None),
        (internals.folder_of_jvm, None),
        (internals.has_workers, True),
        (lambda spark: internals.provide_format(spark, "kafkalite", object), False),
        (lambda _: internals.micro_batch_of(None), (None, None)),
        (lambda _: internals.setting_of_session(None, "spark.sql.x", "Y"), "Y"),
        (lambda _: internals.worker_socket(), None),
    ],
)
def test_what_is_gone_has_an_answer(look: Callable[[Any], object], found: object) -> None:
    assert look(ANOTHER) == found


def test_a_progress_bar_that_is_gone_is_not_held_back() -> None:
    bar = internals.SparksBar(ANOTHER)
    bar.hold_back()
    bar.erase()


def test_a_field_of_the_bar_that_is_gone_leaves_the_bar() -> None:
    calls: list[str] = []

    def no_field(name: str) -> object:
        calls.append(name)
        raise AttributeError(name)

    java = SimpleNamespace(getClass=lambda: SimpleNamespace(getDeclaredField=no_field))
    option = SimpleNamespace(isDefined=lambda: True, get=lambda: java)
    bar = internals.SparksBar(
        SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(progressBar=lambda: option)))
    )
    bar.hold_back()
    assert calls == ["lastFinishTime"]


@pytest.mark.parametrize("gateway", [None, SimpleNamespace()])
def test_a_gateway_that_is_gone_leaves_signals(gateway: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "SparkContext", SimpleNamespace(_gateway=gateway))
    assert internals.jvm_with_callbacks() is None
    monkeypatch.setattr(pyspark, "SparkContext", SimpleNamespace())
    assert internals.jvm_with_callbacks() is None


def test_a_writer_without_its_session_names_the_format() -> None:
    named: list[tuple[object, str]] = []

    def format(writer: object, source: str) -> object:
        named.append((writer, source))
        return writer

    activating = internals.activate_before(format, "kafkalite")
    assert internals.activate_before(activating, "kafkalite") is activating, "once is enough"
    assert activating(ANOTHER, "KafkaLite") is ANOTHER and activating(ANOTHER, "parquet") is ANOTHER
    assert named == [(ANOTHER, "KafkaLite"), (ANOTHER, "parquet")]


class Writer:
    def save(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.behaviour("Streams and foreachBatch", "An interrupted df.write says that Spark's job goes on")
def test_an_interrupted_save_says_how_to_stop_its_job() -> None:
    activating = internals.activate_before(lambda writer, source: writer, "kafkalite")
    ours, of_others = activating(activating(Writer(), "parquet"), "kafkalite"), activating(Writer(), "parquet")
    with pytest.raises(KeyboardInterrupt, match=r"its Spark job goes on.*spark\.sparkContext\.cancelAllJobs\(\)"):
        ours.save()
    for writer in (of_others, activating(ours, "parquet")):
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            writer.save()


def test_a_look_up_that_is_gone_says_so() -> None:
    with pytest.raises(AttributeError, match="_jvm"):
        internals.look_up_format(ANOTHER, "kafkalite")
    with pytest.raises(AttributeError, match="_jvm"):
        internals.hadoop_files(ANOTHER, "s3a://bucket")


def test_directories_of_archives_that_are_gone_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    # Another build of Python may lack it.
    monkeypatch.delattr(zipimport, "_zip_directory_cache", raising=False)
    internals.share_zip_directories()


def test_an_array_function_that_is_gone_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    other = types.ModuleType("pyarrow")
    monkeypatch.setitem(sys.modules, "pyarrow", other)
    internals.spare_pandas()
    assert not hasattr(other, "array")


#: Private names of Spark and Python.
PRIVATE = re.compile(
    r"\b_(?:jvm|jsc|jsq|jdf|jsparkSession|sc|gateway|getframe|spark|zip_directory_cache)\b(?!\s*[:=(])|\bpythonExec\b|"
    r"\blastFinishTime\b|\btaskIdToTaskSetManager\b|\"_files\"|\bgetLocalProperty\(\"s"
)


@pytest.mark.behaviour("Versions", "One module reaches into the privates of Spark")
def test_one_module_reaches_into_privates() -> None:
    folder = Path(internals.__file__).parent
    found = {
        f"{path.relative_to(folder)}: {match[0]}"
        for path in sorted(folder.rglob("*.py"))
        if path.name != "internals.py"
        for match in PRIVATE.finditer(re.sub(r"\bself\._\w+", "", path.read_text(encoding="utf-8")))
    }
    assert found == set()
    assert PRIVATE.search(Path(internals.__file__).read_text(encoding="utf-8"))
