"""One run of the notebook for all tests of a session."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from jobreport import document
from jobreport.output import export, notebook
from jobreport.page import sections
from tests.once import made_once
from tests.report.page.sections import examples
from tests.report.page.sections.html import notebook_of


def run(folder: Path, report: document.Report) -> None:
    """The files of a report and of its notebook as it was run."""
    data = document.to_json(report)
    (folder / "report.json").write_bytes(data)
    nbformat.write(notebook.run_notebook(data), folder / "run.ipynb")  # type: ignore[no-untyped-call]


def read(folder: Path) -> NotebookNode:
    return nbformat.read(folder / "run.ipynb", as_version=4)  # type: ignore[no-untyped-call, no-any-return]


@pytest.fixture(scope="session")
def gpu_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the ``report.json`` of one node with eight GPUs, and its notebook."""
    return made_once(tmp_path_factory, "gpu", lambda folder: run(folder, examples.gpu_job()))


@pytest.fixture(scope="session")
def gpu_notebook(gpu_folder: Path) -> NotebookNode:
    return read(gpu_folder)


@pytest.fixture(scope="session")
def gpu_page(gpu_notebook: NotebookNode) -> str:
    return export.render_html(gpu_notebook)


@pytest.fixture(scope="session")
def hostile_notebook() -> NotebookNode:
    return notebook_of(sections.page(examples.hostile_job()).values())
