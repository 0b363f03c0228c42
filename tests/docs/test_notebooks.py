"""The notebooks of the documents run, from the root of a clone, and say what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from tests.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
#: The sample whose findings each prints.
SAMPLE = {"before-and-after": "cpu-bottleneck-2gpu", "which-rank-is-slow": "late-rank-4gpu"}


def outputs(path: Path) -> str:
    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}})
    client.execute()
    return json.dumps([cell.get("outputs") for cell in notebook.cells])


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_has_the_findings_of_the_page(path: Path) -> None:
    sample = SAMPLE.get(path.stem, "cpu-bottleneck-2gpu")
    page = json.loads((ROOT / "tests" / "golden" / f"{sample}.json").read_bytes())
    found = outputs(path)

    assert len(NOTEBOOKS) == 3
    for one in page["verdict"]["findings"]:
        assert json.dumps(one["title"])[1:-1] in found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_bytes())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
