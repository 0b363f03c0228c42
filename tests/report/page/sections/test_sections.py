"""What the sections say, read back from their HTML."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from jobreport import document
from jobreport.document import Report
from jobreport.page import sections
from jobreport.page.figures import chart, models
from jobreport.page.sections.evidence import finding_of, places
from jobreport.page.sections.order import BY_ANCHOR
from jobreport.page.sections.outline import LAST, OF_CAPTURES, SECTIONS
from tests.captured_jobs import training
from tests.once import slow_but
from tests.report.comparison.runs import of_traces
from tests.report.page.figures import embedded
from tests.report.page.sections import examples
from tests.report.page.sections.html import Page, read

_FIGURES = re.compile(r'<script type="application/json" class="jr-figures"[^>]*>(.*?)</script>', re.DOTALL)
_MODELS = re.compile(r'"\$":"(\w+)"')
#: Classes of which no figure has a model, and one that stands beside the models.
NO_MODELS = {"Model", "Glyph", "DocumentConfig"}
#: Pages by the id of their report, which is kept, and what makes its live plots: many tests look at one page.
_PAGES: dict[tuple[int, int], tuple[Report, dict[str, str], Page]] = {}


def drawn(report: Report) -> dict[str, str]:
    return {name: one.html for name, one in sections.page(report).items()}


def whole(report: Report) -> Page:
    return _once(report)[2]


def html_of(report: Report) -> dict[str, str]:
    return _once(report)[1]


def _once(report: Report) -> tuple[Report, dict[str, str], Page]:
    key = id(report), id(chart.live_plot)
    if key not in _PAGES:
        html = drawn(report)
        _PAGES[key] = report, html, Page.of("".join(html.values()))
    return _PAGES[key]


def example(name: str) -> Report:
    return examples.ALL[name]()


#: ``make test`` draws these with their live plots; the golden texts have the others.
FEW = {"gpu", "cpu", "single", "empty", "captures", "hostile"}


@pytest.fixture(params=slow_but(FEW, examples.ALL))
def report(request: pytest.FixtureRequest) -> Report:
    return example(request.param)


def test_every_job_renders_to_elements_that_nest(report: Report) -> None:
    page = whole(report)

    assert page.faults == []
    assert len(page.ids) == len(set(page.ids))


def test_links_inside_the_page_lead_somewhere(report: Report) -> None:
    page = whole(report)

    targets = {link[1:] for link in page.links if link.startswith("#")} - {
        "i-crit",
        "i-warn",
        "i-info",
        "i-pass",
        "i-off",
        "i-err",
    }
    cards = {f"r-{u.rule}" for u in report.verdict.not_evaluated} - {f"r-{c.name}" for c in report.rules}
    assert targets - cards <= set(page.ids)
    assert {link for link in page.links if not link.startswith("#")} == set()


def test_sections_are_numbered_as_they_stand_and_every_anchor_is_there(report: Report) -> None:
    page = whole(report)

    found = re.findall(r'<h2 id="([\w-]+)-h"><span class="n">(\d+)</span>', "".join(html_of(report).values()))
    assert [int(number) for _, number in found] == list(range(1, len(found) + 1))
    links = re.findall(r'<a href="#([\w-]+)">(\d+) ', html_of(report)["contents"])
    assert links == found
    there = {
        "code-waits": report.code_lines,
        "learning": report.learning,
        "trees": report.learning and report.learning.trees,
    }
    absent = {name for name, one in there.items() if not one} | (set() if report.captures else OF_CAPTURES)
    anchors = [anchor for anchor, _ in SECTIONS if anchor not in absent]
    assert sorted(set(page.ids) & {anchor for anchor, _ in SECTIONS}) == sorted(anchors)
    assert (
        [anchor for anchor, _ in found if anchor in LAST] == [*LAST] == [anchor for anchor, _ in found][-3:]
    )


def test_sections_come_in_the_order_of_the_findings_behind_the_evidence(report: Report) -> None:
    pieces = [*html_of(report)]

    first = {anchor for anchor, _ in SECTIONS} - {*LAST}
    named = [*dict.fromkeys(one.section for one in report.verdict.findings if one.section in first)]
    assert pieces[pieces.index("contents") + 1 :][: len(named)] == named
    if "evidence" in pieces:
        assert pieces.index("verdict") < pieces.index("evidence") < pieces.index("findings")


def test_the_evidence_is_a_figure_of_a_section_that_shows_the_cause_and_stands_once(report: Report) -> None:
    lead, html = finding_of(report), html_of(report)
    sections_of_it = [section for section, _ in places(lead)] if lead else []
    figures = {
        name
        for section in sections_of_it
        if section in BY_ANCHOR
        for name in re.findall(r'<figure id="([\w-]+)"', BY_ANCHOR[section](report).html)
    }

    shown = re.findall(r'<figure id="([\w-]+)".*?Figure\u00a01\.', html.get("evidence", ""), re.DOTALL)
    assert len(shown) == ("evidence" in html) == bool(figures)
    assert {*shown} <= figures
    assert "".join(html.values()).count("<figure ") == len(
        {*re.findall(r'<figure id="([\w-]+)"', "".join(html.values()))}
    )


def test_headings_nest(report: Report) -> None:
    page = whole(report)

    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("every", slow_but(False, [False, True]))
def test_bokeh_itself_reads_every_figure_and_every_kind_of_model(every: bool) -> None:
    """In ``make test`` the figures that have a kind of model which those before them had not."""
    found = set[str]()
    for name in ("gpu", "captures"):
        for text in _FIGURES.findall("".join(html_of(example(name)).values())):
            if not every and {*_MODELS.findall(text)} - NO_MODELS <= found:
                continue
            document = embedded.loaded(text)
            assert len(document.roots) == len(json.loads(text)["roots"])
            found |= {type(one).__name__ for one in document.models}

    kinds = {
        name for name, one in vars(models).items() if isinstance(one, type) and issubclass(one, models.Model)
    }
    assert kinds - found == NO_MODELS


def test_no_inline_styles(report: Report) -> None:
    assert [a for _, a in whole(report).elements if "style" in a] == []


def test_every_drawing_has_a_text_alternative(report: Report) -> None:
    page = whole(report)

    for tag, attributes in page.elements:
        if tag == "svg" and attributes.get("viewbox") != "0 0 1000 100":
            inside_draw = attributes.get("class") is None and "aria-hidden" not in attributes
            assert inside_draw or attributes.get("aria-hidden") == "true" or attributes.get("aria-label")
        if "draw" in (attributes.get("class") or "").split():
            assert attributes.get("role") == "img"
            assert attributes.get("aria-label")


def test_every_table_has_a_caption_and_scoped_heads(report: Report) -> None:
    page = whole(report)

    assert len(page.all("table")) == len(page.all("caption"))
    assert all(head.get("scope") for head in page.all("th"))


def test_nothing_that_was_not_measured_is_printed_as_a_number(report: Report) -> None:
    assert not re.search(r"\b(nan|inf)\b|=None|: None\b", whole(report).text)


def test_one_is_singular(report: Report) -> None:
    text = whole(report).text.replace("\u00a0", " ")

    assert not re.search(
        r"(?<![\d.,\u202f])1 (nodes|GPUs|cores|rules|samples|lines|files|snapshots|steps)\b", text
    )


def test_figures_and_tables_are_counted_within_their_section(report: Report) -> None:
    page = whole(report)

    for kind in ("Figure", "Table"):
        found = [(int(a), int(b)) for a, b in re.findall(rf"{kind} (\d+)\.(\d+)\.", page.text)]
        assert found == sorted(found)
        for section in {a for a, _ in found}:
            numbers = [b for a, b in found if a == section]
            assert numbers == list(range(1, len(numbers) + 1))


def test_hostile_names_are_text() -> None:
    page = whole(example("hostile"))

    assert all(attributes.get("type") == "application/json" for attributes, _ in page.scripts)
    assert page.all("img") == []
    assert examples.HOSTILE in page.text
    for attributes, text in page.scripts:
        assert "<" not in text
        assert set(json.loads(text)) == {"roots", "common", "doc"}, attributes


def test_the_direction_of_text_cannot_be_turned_by_a_name() -> None:
    assert "\u202e" not in "".join(html_of(example("hostile")).values())


def test_the_bar_is_as_wide_as_its_parts() -> None:
    page = read(sections.verdict(examples.gpu_job()))

    widths = [float(str(r["width"]).rstrip("%")) for r in page.all("rect") if str(r.get("height")) == "100%"]
    assert round(sum(widths), 1) == 100.0


def test_the_same_report_gives_the_same_html_and_stays_the_same() -> None:
    before = document.to_json(examples.gpu_job.__wrapped__())
    report = example("gpu")

    assert drawn(report) == html_of(report)
    assert document.to_json(report) == before


def test_a_notebook_shows_a_fragment_as_html() -> None:
    fragment = sections.head(examples.gpu_job())

    html, facts = fragment._repr_html_()

    assert html == fragment.html
    assert facts["title"].startswith("41.0")
    assert repr(fragment) == "<section 'head' of the report>"


def test_the_tab_of_traces_shows_what_they_say() -> None:
    report = of_traces(training("copy", 0.3))
    profiled = report.verdict.profiled
    assert profiled

    title = sections.head(report).facts["title"]

    assert title.startswith(f"{profiled.of('used'):.1f}%")


def test_the_style_of_a_notebook_stays_with_the_report() -> None:
    sheet = sections.style().html.partition("<svg")[0]

    selectors = re.findall(r"(?:^|[}\n])([^{}@/*]+)\{", re.sub(r"/\*.*?\*/", "", sheet, flags=re.S))
    assert selectors
    assert all(
        part.strip().startswith(".jr") for s in selectors for part in s.removeprefix("<style>").split(",")
    )
