"""A section that cannot be drawn costs itself: the page says so, and the command exits with 1."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from nbformat import NotebookNode

from jobreport import document, pipeline
from jobreport.errors import JobReportError
from jobreport.options import Options
from jobreport.output import export, notebook
from jobreport.page import sections
from tests.paths import SAMPLES
from tests.report.page.sections import examples


def undrawable() -> document.Report:
    """A report whose time lines do not fit together."""
    report = examples.gpu_job()
    return replace(report, time_lines=tuple(replace(line, mean=line.mean[:1]) for line in report.time_lines))


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    path = tmp_path_factory.mktemp("undrawable") / "report.json"
    path.write_bytes(document.to_json(undrawable()))
    return notebook.run_notebook(path.read_bytes())


def test_the_section_says_why_and_the_others_stand(executed: NotebookNode) -> None:
    (failed,) = executed.metadata["failed"]
    assert failed.startswith("Nodes (ValueError: ")
    html = export.render_html(executed)
    assert html.count("could not be drawn") == 1
    assert re.search('id="nodes-h"><span class="n">\\d+</span> Nodes', html)
    assert sections.page(undrawable())["devices"].html in html


def test_the_command_tells_of_it(
    executed: NotebookNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "run_notebook", lambda *_: executed)

    outcome = pipeline.make_report(SAMPLES[0], tmp_path / "out")

    assert "written without Nodes (ValueError: " in str(outcome.failure)
    assert outcome.main_file.name == "report.html"
    with pytest.raises(JobReportError, match="written without Nodes"):
        pipeline.make_report(SAMPLES[0], tmp_path / "strict", Options(strict=True))


def test_the_verdict_is_no_exception() -> None:
    report = examples.gpu_job()
    broken = replace(report, verdict=replace(report.verdict, findings=None))

    told = sections.verdict(broken)

    assert 'id="verdict-h">Verdict</h2>' in told.html
    assert told.facts["failed"].startswith("Verdict (")
