"""What holds for every section that is made from blocks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from jinja2 import DictLoader, Environment
from jinja2.bccache import bc_magic
from markupsafe import Markup

from jobreport.page.figures import chart
from jobreport.page.figures.canvas import Canvas
from jobreport.page.kit import Drawing, Empty, Figure, Fold, Note, Sentences, Subsection, Table
from jobreport.page.kit.fragment import _Compiled, code
from jobreport.page.kit.head import MAX_TAB, page_head
from jobreport.page.kit.page import folded, numbered
from jobreport.page.kit.section import Failed, sections_of
from tests.report.page.sections.html import Page, read

if TYPE_CHECKING:
    from pathlib import Path

    from jobreport.page.kit.blocks import Block
    from jobreport.page.kit.section import Content, Section

OUTLINE = (("first", "First"), ("made-here", "Made here"))


def page_of(content: Content, error: str = "", number: int = 0) -> Page:
    def made_here(_: None) -> Content:
        return content

    made = sections_of(OUTLINE, lambda _document, _anchor: error)(made_here)
    return read(made.drawn(made.content(None), number))


def section(anchor: str, content: Content) -> tuple[Section[None], Content]:
    def function(_: None) -> Content:
        return content

    function.__name__ = anchor
    return sections_of([(anchor, f"Title of {anchor}")])(function), content


def test_sections_are_numbered_as_they_stand_and_those_without_content_are_one_line() -> None:
    absent = Empty("no", absent=True)
    contents = [
        section("a", ["text"]),
        section("b", Empty("why")),
        section("c", Failed("error")),
        section("d", absent),
        section("e", [figure("f")]),
    ]

    fragments, entries = numbered(contents)

    assert entries == [
        *(("a", 1, "Title of a"), ("c", 2, "Title of c"), ("e", 3, "Title of e")),
        ("nothing-to-show", 0, "Sections without data"),
    ]
    page = Page.of("".join(one.html for one in fragments))
    assert [one for one in page.ids if one in "abcd"] == ["a", "c", "b"]
    assert "Figure 3.1." in page.text
    assert page.text.endswith("Sections without data: title of b. WhyTitle of b: why")


def table(label: str, caption: str, fold: str = "") -> Table:
    return Table(label=label, heads=(":Name", "Value"), rows=[("one", "1")], caption=caption, fold=fold)


def figure(name: str, drawings: int = 1, **fields: object) -> Figure:
    axis = chart.upward(10, 2)
    drawn = [Drawing(figure=Canvas(axis, axis).figure) for _ in range(drawings)]
    return Figure(**{"name": name, "title": "Title", "finding": "Finding.", "drawings": drawn, **fields})  # type: ignore[arg-type]


def test_figures_and_tables_are_numbered_in_the_order_of_the_page() -> None:
    page = page_of(
        [
            table("a", caption="A."),
            figure("f", tables=[table("b", caption="B."), table("c", caption="C.", fold="c")]),
            Subsection(title="Part", blocks=[figure("g"), table("d", caption="D.")]),
            Fold(summary="More", blocks=[table("e", caption="E.")]),
            figure("h", of_tables=True),
        ],
        number=2,
    )

    numbers = re.findall(r"(?:Figure|Table)\xa0[\d.]+\d", "".join(page.pieces))
    assert numbers == [
        *("Table\xa02.1", "Figure\xa02.1", "Table\xa02.2", "Figure\xa02.2", "Table\xa02.3", "Table\xa02.4")
    ]
    assert page.faults == []


@pytest.mark.parametrize(
    ("content", "quiet", "seen", "fold"),
    [
        (["a", figure("f"), "b", table("t", "T.")], False, ["a", "f"], "More: t"),
        (["a", figure("f"), "b", table("t", "T.")], True, ["a"], "More: title; t"),
        (
            [figure("f"), Subsection(title="Some Parts", blocks=["b"])],
            True,
            ["Finding."],
            "More: title; some Parts",
        ),
        (["a", figure("f"), "b"], False, ["a", "f", "b"], ""),
        (["a", "b"], True, ["a", "b"], ""),
    ],
)
def test_a_section_is_folded_behind_its_first_figure_or_before_it(
    content: list[Block], *, quiet: bool, seen: list[str], fold: str
) -> None:
    blocks = folded(content, quiet=quiet)

    assert isinstance(blocks, list)
    shown = [getattr(one, "name", one) for one in blocks if not isinstance(one, Fold)]
    assert shown == seen
    assert [one.summary.replace("\u00a0", " ") for one in blocks if isinstance(one, Fold)] == [fold] * bool(
        fold
    )


def test_tables_of_a_figure_of_a_folded_section_are_folded() -> None:
    page = page_of(folded([figure("f", tables=[table("Values", caption="B.")])]))

    assert len(page.all("details")) == 1
    assert "Data: values" in page.text


def test_rows_with_equal_numbers_are_one_line() -> None:
    def shown(*values: str) -> Page:
        rows = [(f"gpu{i}", value) for i, value in enumerate(values)]
        return page_of([Table(label="L", heads=(":Name", "Value"), rows=rows, caption="C.")])

    assert "3 rows with equal numbers (C)" in shown("1", "1", "1").text
    assert len(shown("1", "1", "1").all("details")) == 1
    assert shown("1", "1", "2").all("details") == shown("1", "1").all("details") == []


def test_each_drawing_has_a_place_and_a_live_plot() -> None:
    page = page_of([figure("f", drawings=2), figure("g")])

    live = [name for name in page.ids if name.startswith("live-")]
    assert len(live) == len(set(live)) == 3
    ((_, text),) = page.scripts
    assert sorted(json.loads(text)["roots"].values()) == sorted(live)


def test_blocks_without_content_are_not_shown() -> None:
    empty = Table(label="none", heads=("A",), rows=[])
    nothing = [None, "", empty, Sentences([]), Note(""), Subsection(title="None", blocks=[None, empty])]

    assert page_of(nothing).text == page_of([]).text == "Made here"


def test_a_section_without_content_is_one_line_unless_its_analysis_failed() -> None:
    assert page_of(Empty("why")).text == "Made here: why"
    assert "Error why it failed" in page_of(Empty("why"), "why it failed").text


def test_a_tab_shows_the_beginning_of_a_long_verdict() -> None:
    verdict = "B took 12% longer than A. " * 20
    title = page_head("Job", "", [], tab=verdict).facts["title"]

    assert len(title) <= MAX_TAB
    assert verdict.startswith(title.removesuffix("…"))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("algo-1 gpu0", '<span class="nw">algo-1</span> gpu0'),
        (
            "2025-03-07 to `x-1`",
            '<span class="nw">2025-03-07</span> to <code><span class="nw">x-1</span></code>',
        ),
        ("GPU-hours, -1 <b-2>", "GPU-hours, -1 &lt;b-2&gt;"),
        (f"{'a' * 30}-1", f"{'a' * 30}-1"),
    ],
)
def test_no_line_ends_within_a_date_or_a_short_name_with_a_number(text: str, html: str) -> None:
    assert code(text) == html


def test_texts_are_escaped_and_markup_is_not() -> None:
    page = page_of(["<b>", Markup("<i>x</i>"), figure("f", finding=Markup("<code>a&amp;b</code>"))])

    assert "<b>" in page.text
    assert [tag for tag, _ in page.elements].count("i") == 1
    assert "Title. a&b" in [attributes.get("aria-label") for _, attributes in page.elements]


@pytest.mark.parametrize("size", [0, len(bc_magic), len(bc_magic) + 5, -20])
def test_a_compiled_template_that_is_cut_short_is_compiled_again(size: int, tmp_path: Path) -> None:
    def filled() -> str:
        cache = _Compiled(str(tmp_path), "%s.jinja")
        return Environment(loader=DictLoader({"a": "text"}), bytecode_cache=cache).get_template("a").render()

    assert filled() == "text"
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:size])

    assert filled() == "text"
    assert kept.read_bytes() == whole
