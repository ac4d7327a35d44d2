"""Lets the packages of an archive share what Python has read of its directory: 10 MB of each worker and more.

Spark has ``pyspark.zip`` on the path of its Python processes, and calls :func:`importlib.invalidate_caches` when a
process has its first task, or other files. Python before 3.13 then reads the directory of the archive, 1,485 files, for
each package that was ever looked into, and keeps all of these equal copies (python/cpython#103200).
"""

from __future__ import annotations

import sys
import zipimport
from typing import Any


def share_zip_directories() -> None:
    """Leave one copy for each archive. Python 3.13 and later have no more."""
    if sys.version_info >= (3, 13):
        return
    # Private names: another build of Python may lack them, and then nothing is shared.
    directories: Any = getattr(zipimport, "_zip_directory_cache", {})
    for importer in list(sys.path_importer_cache.values()):
        if isinstance(importer, zipimport.zipimporter) and importer.archive in directories:
            vars(importer)["_files"] = directories[importer.archive]
