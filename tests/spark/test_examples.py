"""The notebooks in ``examples/``: their cells run from top to bottom, with the stored outputs.

KAFKALITE_EXAMPLES=examples rewrites the notebooks with the outputs of the run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.amounts import only_long
from tests.support.spark_version import requires_data_sources

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))
TIMEOUT_S = 240


@requires_data_sources
@pytest.mark.behaviour("Documentation", "The notebooks run from top to bottom")
@only_long
@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    # The kernel of this interpreter, even if another one is registered under its name.
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")]))
    # nbformat's functions have no types.
    read: Callable[..., Any] = nbformat.reads
    write: Callable[..., str] = nbformat.writes
    book = read((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"), as_version=4)
    client = NotebookClient(book, timeout=TIMEOUT_S, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    if kept := os.environ.get("KAFKALITE_EXAMPLES"):
        (Path(kept) / f"{name}.ipynb").write_text(write(cleaned(book)) + "\n", encoding="utf-8")


def cleaned(book: Any) -> Any:
    """Return *book* without machine-dependent output: times, and the JVM's lines about the machine."""
    for cell in book["cells"]:
        cell["metadata"] = {}
        if cell["cell_type"] == "code":
            cell["outputs"] = [output for output in cell["outputs"] if output.get("name") != "stderr"]
    return book


@pytest.mark.behaviour("Documentation", "The notebooks have the outputs of a whole run, without an error")
@pytest.mark.parametrize("name", NAMES)
def test_notebook_has_the_outputs_of_a_whole_run(name: str) -> None:
    book = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs and all(output["output_type"] != "error" for output in outputs)
    assert [output for output in outputs if output.get("name") == "stderr"] == []
