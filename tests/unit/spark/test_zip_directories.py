"""The packages of an archive on Python's path share its directory."""

from __future__ import annotations

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from kafka_sink.spark.task.worker_process import WorkerProcess


def write_archive(path: Path, *modules: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for module in ("zipped_a/__init__", "zipped_a/b/__init__", "zipped_a/b/c", *modules):
            archive.writestr(f"{module}.py", "")


def directories(archive: Path) -> set[int]:
    """The directories of the importers of *archive*; in Python 3.13 they keep none."""
    importers = [each for each in sys.path_importer_cache.values() if isinstance(each, zipimport.zipimporter)]
    found = [each for each in importers if each.archive == str(archive)]
    assert len(found) == 3, "the archive and two packages in it"
    return {id(value) for each in found for value in vars(each).values() if isinstance(value, dict)}


@pytest.mark.behaviour("Tasks", "A worker keeps one copy of the directory of pyspark.zip: 10 MB less")
def test_packages_of_an_archive_share_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "zipped.zip"
    write_archive(archive)
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("zipped_a.b.c")
    importlib.invalidate_caches()
    if sys.version_info < (3, 13):
        assert len(directories(archive)) == 3, "Python shares it itself: share_zip_directories is needed no more"
    with WorkerProcess().task(tuned=True):
        assert len(directories(archive)) <= 1
        importlib.import_module("zipped_a.b")
    # A module that is added later is found after Spark has invalidated the caches.
    write_archive(archive, "zipped_a/b/d")
    importlib.invalidate_caches()
    with WorkerProcess().task(tuned=True):
        importlib.import_module("zipped_a.b.d")
        assert len(directories(archive)) <= 1
