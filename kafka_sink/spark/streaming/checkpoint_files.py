"""Access to the files of a query's checkpoint: on this machine, through Hadoop's file systems in the JVM of a classic
session with its settings, or through pyarrow's file systems.

Called on the driver's machine. It only reads. Locations may contain credentials, so no message repeats one.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

#: Hadoop's URI schemes → pyarrow's.
_SCHEMES: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "hdfs": "hdfs"}


class LocalFiles:
    """The files of a folder on this machine."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def names(self, folder: str) -> list[str]:
        return [path.name for path in (self._folder / folder).iterdir()]

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        with (self._folder / path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - most, 0))
            return file.read(), size <= most


class HadoopFiles:
    """The files of Hadoop's file system of *location*, to which Spark has just written, with the settings of a classic
    *session*."""

    def __init__(self, location: str, session: Any) -> None:
        self._jvm = session._jvm
        self._location = location
        self._hadoop = self._path("").getFileSystem(session._jsparkSession.sessionState().newHadoopConf())

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._location}/{path}")

    def names(self, folder: str) -> list[str]:
        return [str(status.getPath().getName()) for status in self._hadoop.listStatus(self._path(folder))]

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        where = self._path(path)
        if not self._hadoop.exists(where):
            raise FileNotFoundError(path)
        size = self._hadoop.getFileStatus(where).getLen()
        stream = self._hadoop.open(where)
        try:
            stream.seek(max(size - most, 0))
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)), size <= most
        finally:
            stream.close()


class ArrowFiles:
    """The files of an object store or HDFS, with the credentials from the environment of this machine."""

    def __init__(self, location: str) -> None:
        self._fs, self._folder = _opened(location)

    def names(self, folder: str) -> list[str]:
        from pyarrow import fs

        return [str(each.base_name) for each in self._fs.get_file_info(fs.FileSelector(f"{self._folder}/{folder}"))]

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        with self._fs.open_input_file(f"{self._folder}/{path}") as file:
            size = file.size()
            file.seek(max(size - most, 0))
            return bytes(file.read()), size <= most


@lru_cache(maxsize=4)
def _opened(location: str) -> tuple[Any, str]:
    """pyarrow's file system of *location* and the path in it; cached, so that its connections are reused by later
    batches."""
    from pyarrow import fs

    parts = urlsplit(location)
    opened: tuple[Any, str] = fs.FileSystem.from_uri(parts._replace(scheme=_SCHEMES[parts.scheme]).geturl())
    return opened


def local_folder(location: str) -> str | None:
    """*location* as a path on this machine; None if it is not on this machine."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    return parts.path if parts.scheme else location


def may_end_its_process(location: str) -> bool:
    """Whether pyarrow's client for *location* ends the process in which it has no credentials."""
    return _SCHEMES.get(urlsplit(location).scheme) in ("abfs", "abfss")


def is_remote(location: str) -> bool:
    """Whether pyarrow has a file system for *location*."""
    return urlsplit(location).scheme in _SCHEMES
