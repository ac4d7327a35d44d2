"""Copies the sources of a build, with the number of the build, and with links that work on a package index's page.

    python -P scripts/build_copy.py FOLDER NUMBER [URL REF]

Called by ``scripts/build.sh``. A checkout has the version of the next release, and its README links to paths. FOLDER
gets NUMBER as its version, and links to the repository at URL as of REF, a tag or a commit.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[1]
_FOLDERS: Final = ("kafka_sink", "pyspark_kafkalite")
_FILES: Final = ("LICENSE", "README.md", "pyproject.toml", "setup.cfg")
#: A link or an image in Markdown, and its path.
_LINK: Final = re.compile(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)]+)\)")


def build_copy(folder: Path, number: str, url: str = "", ref: str = "") -> None:
    """Write the sources of the build into *folder*, with *number* as their version."""
    for name in _FOLDERS:
        shutil.copytree(_ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _FILES:
        shutil.copy(_ROOT / name, folder)
    settings = folder / "setup.cfg"
    text = settings.read_text(encoding="utf-8")
    (version,) = re.findall(r"^version = (.+)$", text, re.MULTILINE)
    settings.write_text(
        text.replace(f"version = {version}\n", f"version = {number}\n{project_urls(url, ref)}", 1), encoding="utf-8"
    )
    module = folder / "kafka_sink" / "common" / "version.py"
    module.write_text(module.read_text(encoding="utf-8").replace(f'"{version}"', f'"{number}"', 1), encoding="utf-8")
    if url:
        readme = folder / "README.md"
        readme.write_text(with_addresses(readme.read_text(encoding="utf-8"), url, ref), encoding="utf-8")


def project_urls(url: str, ref: str) -> str:
    """Return the lines of setup.cfg for ``project_urls``; an empty text without *url*."""
    if not url:
        return ""
    places = {
        "Source": url,
        "Documentation": f"{url}/blob/{ref}/docs/index.md",
        "Changelog": f"{url}/blob/{ref}/CHANGELOG.md",
        "Issues": f"{url}/issues",
        "Security": f"{url}/blob/{ref}/SECURITY.md",
    }
    return "project_urls =\n" + "".join(f"    {name} = {place}\n" for name, place in places.items())


def with_addresses(page: str, url: str, ref: str) -> str:
    """Return *page* with URLs instead of paths relative to the checkout; images link to their raw files."""
    return _LINK.sub(
        lambda found: f"{found[1]}{found[2]}({url}/{'raw' if found[1] else 'blob'}/{ref}/{found[3]})", page
    )


if __name__ == "__main__":
    build_copy(Path(sys.argv[1]), *sys.argv[2:])
