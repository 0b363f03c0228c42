"""One run of the notebook for all tests of a session."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat import NotebookNode

from jobreport import document
from jobreport.output import export, notebook
from tests.report.page.sections import examples


@pytest.fixture(scope="session")
def gpu_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the ``report.json`` of one node with eight GPUs."""
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "report.json").write_bytes(document.to_json(examples.gpu_job()))
    return folder


@pytest.fixture(scope="session")
def gpu_notebook(gpu_folder: Path) -> NotebookNode:
    return notebook.run_notebook((gpu_folder / "report.json").read_bytes())


@pytest.fixture(scope="session")
def gpu_page(gpu_notebook: NotebookNode) -> str:
    return export.render_html(gpu_notebook)


@pytest.fixture(scope="session")
def hostile_notebook(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    path = tmp_path_factory.mktemp("hostile") / "report.json"
    path.write_bytes(document.to_json(examples.hostile_job()))
    return notebook.run_notebook(path.read_bytes())


@pytest.fixture(scope="session")
def hostile_page(hostile_notebook: NotebookNode) -> str:
    return export.render_html(hostile_notebook)
