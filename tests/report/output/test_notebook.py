"""The executed notebook: small, the same on every machine, and it runs again."""

from __future__ import annotations

import getpass
import json
import shutil
import sys
from pathlib import Path

import pytest
from nbformat import NotebookNode

from jobreport import assets
from jobreport.errors import JobReportError
from jobreport.output import notebook
from tests.paths import ROOT


def test_it_is_small(gpu_notebook: NotebookNode) -> None:
    text = notebook.to_text(gpu_notebook)

    assert len(text.encode()) <= 500_000
    assert "jr-figures" not in text


def test_it_tells_nothing_of_the_machine(gpu_notebook: NotebookNode, gpu_folder: Path) -> None:
    text = notebook.to_text(gpu_notebook)

    for secret in (str(gpu_folder), str(ROOT), str(Path.home()), sys.prefix, f"/{getpass.getuser()}/"):
        assert secret not in text
    assert "papermill" not in text
    assert gpu_notebook.metadata.language_info == {"name": "python"}


def test_it_has_no_trace_of_the_run_but_its_outputs(gpu_notebook: NotebookNode) -> None:
    for cell in gpu_notebook.cells:
        assert set(cell.metadata) <= {"tags"}
    (parameters,) = [c for c in gpu_notebook.cells if "parameters" in c.metadata.get("tags", ())]
    assert parameters.source == 'report_json = "report.json"'
    (live,) = [c for c in gpu_notebook.cells if "bokeh-load" in c.metadata.get("tags", ())]
    assert live.outputs == []
    assert live is gpu_notebook.cells[-1]


@pytest.mark.slow
def test_the_written_notebook_runs_again(
    gpu_notebook: NotebookNode, gpu_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(gpu_folder / "report.json", tmp_path)
    (tmp_path / "report.ipynb").write_text(notebook.to_text(gpu_notebook), "utf-8")
    monkeypatch.setattr(assets, "notebooks", lambda: tmp_path)

    again = notebook.run_notebook((tmp_path / "report.json").read_bytes())

    assert notebook.to_text(again) == notebook.to_text(gpu_notebook)


def test_a_failing_cell_is_named(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")

    with pytest.raises(JobReportError, match=r"sections\.style.*not a report of this version"):
        notebook.run_notebook((tmp_path / "report.json").read_bytes())


def test_the_source_notebook_is_clean() -> None:
    source = json.loads((assets.notebooks() / "report.ipynb").read_text("utf-8"))

    for cell in source["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
