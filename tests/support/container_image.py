"""Images of containers without a registry: an archive of one layer, as ``ctr images import`` takes it."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(
    archive: Path,
    name: str,
    files: Mapping[str, bytes],
    config: Mapping[str, object],
    *,
    folders: Sequence[str] = (),
    links: Mapping[str, str] | None = None,
) -> None:
    """An image of the machine's architecture with these *files*, *folders* and symbolic *links* by their paths, and the
    *config* of its containers (``Entrypoint``, ``Env``, …: opencontainers/image-spec, config.md)."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path in folders:
            folder = tarfile.TarInfo(path)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for path, target in (links or {}).items():
            link = tarfile.TarInfo(path)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        for path, content in files.items():
            _add(tar, path, content)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    described = {
        "architecture": _MACHINES[platform.machine()],
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, "config.json", json.dumps(described).encode())
        _add(tar, "layer.tar", layer.getvalue())
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _add(tar: tarfile.TarFile, path: str, content: bytes) -> None:
    file = tarfile.TarInfo(path)
    file.size, file.mode = len(content), 0o755
    tar.addfile(file, io.BytesIO(content))


def program(path: str) -> dict[str, bytes]:
    """A program of this machine, with its libraries."""
    printed = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    return {file.lstrip("/"): Path(file).read_bytes() for file in (path, *re.findall(r"(/\S+) \(0x", printed))}
