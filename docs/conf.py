"""The site's configuration for Sphinx; ``scripts/docs.sh`` builds it."""

from __future__ import annotations

import os
import re
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Final

from docutils.nodes import Text, document, raw, reference
from sphinx.application import Sphinx

project = "kafkalite"
author = "The kafkalite developers"
release = version = version_of("kafkalite")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
html_theme = "furo"
html_title = f"kafkalite {release}"
html_show_copyright = False
# Section links as on code-hosting sites, where the pages can be read too.
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
python_use_unqualified_type_names = True

#: Files above this folder that are pages here too, each with the page that includes it.
_INCLUDED: Final = {
    ".github/CODE_OF_CONDUCT.md": "internals/code-of-conduct.md",
    "ARCHITECTURE.md": "internals/architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "examples/README.md": "examples.md",
    "SECURITY.md": "internals/security-policy.md",
    "tests/README.md": "internals/tests.md",
}
_DOCS: Final = Path(__file__).parent
_PICTURES: Final = (".png", ".svg")
#: The brackets of a link, and the path that it leads to.
_LINK: Final = re.compile(r"(\])\((?!https?://|#|path:)([^()\s#]+)(#[^()\s]*)?\)")

LLMS_TXT: Final = """# kafkalite

> A Kafka sink for PySpark in pure Python: no jars, whole Arrow batches, exactly once, and an embedded broker.

## Pages

"""


def _link_to_pages(app: Sphinx, docname: str, content: list[str]) -> None:
    """Links to the included files lead to their pages."""
    content[0] = _with_pages(content[0], _DOCS / docname, _DOCS / docname)


def _link_from_included(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    """The same within the included files, whose links start at the folders that they are in."""
    source = Path(os.path.normpath(_DOCS / path))
    content[0] = _with_pages(content[0], source, _DOCS / _INCLUDED[source.relative_to(_DOCS.parent).as_posix()])


def _with_pages(text: str, source: Path, page: Path) -> str:
    """*text* of the file *source*, with its links as those of *page*."""

    def with_page(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / found[2]))
        file = target.relative_to(_DOCS.parent).as_posix()
        # Results of tests, notebooks and programs are no pages, but can be downloaded.
        kind = "" if file in _INCLUDED or (_DOCS in target.parents and target.suffix == ".md") else "path:"
        if file in _INCLUDED:
            target = _DOCS / _INCLUDED[file]
        link = f"{os.path.relpath(target, page.parent)}{found[3] or ''}"
        return f"{found[1]}({kind if target.is_file() and target.suffix not in _PICTURES else ''}{link})"

    return _LINK.sub(with_page, text)


def _note_anchors(app: Sphinx, doctree: document) -> None:
    """Links may lead to anchors in HTML, such as those of single options, as they may on code-hosting sites."""
    slugs = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for node in doctree.findall(raw):
        slugs.update({name: (None, name, name) for name in re.findall(r'<a id="([^"]+)">', node.astext())})


def _unlink_placeholders(app: Sphinx, doctree: document) -> None:
    """A placeholder in the help of a command, such as HOST:PORT, is no address, although it has the form of one."""
    for link in list(doctree.findall(reference)):
        if re.match(r"[A-Z]+:", link.get("refuri", "")):
            link.replace_self(Text(link.astext()))


def _write_llms_txt(app: Sphinx, error: Exception | None) -> None:
    """List the pages for language models, as https://llmstxt.org describes."""
    if error is None and app.builder.name == "html":
        titles = app.env.titles
        lines = [f"- [{titles[name].astext()}]({name}.html)\n" for name in sorted(titles)]
        (Path(app.outdir) / "llms.txt").write_text(LLMS_TXT + "".join(lines), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _link_to_pages)
    app.connect("include-read", _link_from_included)
    app.connect("doctree-read", _note_anchors)
    app.connect("doctree-read", _unlink_placeholders)
    app.connect("build-finished", _write_llms_txt)
