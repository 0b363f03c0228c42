"""The page is one file that asks nobody for anything."""

# mypy: allow-untyped-calls

from __future__ import annotations

import re

import nbformat
import pytest
from nbformat import NotebookNode

from jobreport import assets
from jobreport.errors import JobReportError
from jobreport.output import export
from tests.report.page.sections.html import Page


def content_policy(page: Page) -> str:
    (policy,) = [
        str(m["content"]) for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"
    ]
    return policy


@pytest.fixture(scope="session")
def page(gpu_page: str) -> Page:
    return Page.of(gpu_page)


def test_it_is_within_its_budget(gpu_page: str) -> None:
    assert len(gpu_page.encode()) <= 2_000_000


def test_its_style_loads_nothing(page: Page) -> None:
    style = "".join(page.styles)

    assert "@import" not in style
    assert set(re.findall(r"url\(([^)]*)\)", style)) == {"#hatch"}


def test_bokeh_stands_in_it_once(gpu_page: str) -> None:
    assert gpu_page.count("Copyright (c) Anaconda, Inc., and Bokeh Contributors") == 1
    assert gpu_page.count("Bokeh.embed.embed_items") == 1
    assert len(re.findall(r"<script>", gpu_page)) == 3


def test_it_says_what_it_is(page: Page) -> None:
    (html,) = page.all("html")
    assert html["lang"] == "en"
    assert "41.0% of GPU time used: resnet50" in "".join(page.pieces)
    names = {str(m.get("name")): m.get("content") for m in page.all("meta") if "name" in m}
    assert names["referrer"] == "no-referrer"
    assert names["color-scheme"] == "light dark"
    assert names["viewport"] == "width=device-width,initial-scale=1"


def test_it_has_landmarks_and_a_way_past_them(page: Page) -> None:
    for landmark in ("header", "main", "nav", "footer"):
        assert len(page.all(landmark)) == 1
    assert page.links[1] == "#verdict"


def test_no_cell_for_notebooks_leaves_a_trace(gpu_page: str) -> None:
    assert "report_json" not in gpu_page
    assert "sections.head" not in gpu_page
    assert gpu_page.count('class="jr-symbols"') == 1


def test_a_page_without_figures_carries_no_bokeh() -> None:
    cell = nbformat.v4.new_code_cell("x", id="head")
    cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": "<header>h</header>"})]

    html = export.render_html(nbformat.v4.new_notebook(cells=[cell]))

    assert html.count("<script") == 1
    assert "Bokeh" not in html


def test_a_static_page_carries_no_script_and_is_otherwise_the_same(
    gpu_notebook: NotebookNode, gpu_page: str
) -> None:
    still = export.render_html(gpu_notebook, static=True)

    page, live = Page.of(still), Page.of(gpu_page)
    assert page.faults == []
    assert page.scripts == []
    assert "script-src 'none'" in content_policy(page)
    assert "need scripts" not in page.text
    assert len(still.encode()) <= 500_000
    for tag in ("figure", "figcaption", "table", "svg", "section", "h2", "h3", "path"):
        assert len(page.all(tag)) == len(live.all(tag)) > 0


def test_a_notebook_that_was_not_run_is_refused() -> None:
    with pytest.raises(JobReportError, match="not run to its end"):
        export.render_html(nbformat.v4.new_notebook())


def test_a_title_is_escaped(gpu_notebook: NotebookNode) -> None:
    named = nbformat.from_dict({**gpu_notebook, "metadata": {"title": "</title><b>"}})

    assert "<title>&lt;/title&gt;&lt;b&gt;</title>" in export.render_html(named)


def test_the_style_sheets_close_what_they_open() -> None:
    for name in ("style/tokens.css", "style/drawing.css", "style/page.css"):
        sheet = re.sub(r"/\*.*?\*/", "", assets.text(name), flags=re.S)
        assert sheet.count("{") == sheet.count("}")
        if name != "style/tokens.css":
            assert not re.search(r"#[0-9a-f]{3,6}\b", sheet), "colors are tokens"
