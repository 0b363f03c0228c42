"""The means to dig, used by keyboard on one page of many nodes, in a browser without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from jobreport.page import sections
from jobreport.page.kit import Fragment
from jobreport.page.kit.fragment import render
from jobreport.page.kit.section import Heading
from jobreport.page.kit.table import Table
from tests.browser.visit import Visit, barriers, needs_axe, needs_browser, page_of, place_of
from tests.copies import replace
from tests.report.page.sections import example_devices, examples

pytestmark = [pytest.mark.browser, needs_browser]

SUMMARY = "# A ticket\n\n**<b>62%</b>** & `code`\n"
#: A table of all that a number may look like: the rows in the order of the numbers, what is missing last.
NUMBERS = ("−3 ms", "0", "2 µs", "1,500 µs", "0.5 s", "< 900 ms", "59.5 s", "1 min 2 s", "–")
NAMES = ("gpu10", "gpu9", "gpu2", "=1+1", "rank 0", "gpu1", "+x", "gpu3", "gpu0")

#: Kept instead of given to the clipboard.
CLIPBOARD = "window.copied = []; navigator.clipboard.writeText = async (text) => { copied.push(text); };"
#: Steps, and in which minute of the job they started: it came to step 1,000, and began again with step 500.
STEPS = ((0, 5), (1000, 25), (500, 26), (1500, 46))
#: Labels of a time axis, and where they stand.
LABELS = """() => { const root = Bokeh.documents.flatMap((one) => one.roots()).find(({ x_range, below }) => x_range.name === "time" && below[0].formatter.type === "DatetimeTickFormatter");
  const { ticker, formatter } = root.below[0], { start, end } = root.x_range;
  const { major } = ticker.get_ticks(start, end, root.x_range, 0);
  return formatter.doFormat(major, { loc: 0 }).map((label, i) => [label, major[i]]); }"""
#: The ranges of all figures over time.
RANGES = """() => [...new Set(Bokeh.documents.flatMap((one) => one.roots()).map((root) => root.x_range)
  .filter((range) => range.name === "time"))].map(({ start, end }) => [start, end])"""
SHOWN = "(rows) => rows.filter((row) => row.checkVisibility()).map((row) => row.cells[0].innerText)"


class Reader(Visit):
    """A visit whose clipboard can be read."""

    def _opened(self) -> None:
        self.context.add_init_script(CLIPBOARD)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def find(self, query: str) -> list[str]:
        """Press ``/`` and type; the names that are offered."""
        self.press("/")
        self.page.keyboard.type(query)
        return list(self.page.locator("#jr-hits li > :nth-child(2)").all_inner_texts())

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)

    def column(self, number: int) -> list[str]:
        """The cells of the table of numbers."""
        return list(self.page.locator(f"#mixed tbody tr > :nth-child({number})").all_inner_texts())


def minute(number: int) -> float:
    """A minute of the job, in milliseconds."""
    return examples.START_US / 1000 + 60_000 * number


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    order = (8, 4, 2, 0, 6, 1, 3, 7, 5)
    rows = [(NAMES[i], NUMBERS[i], "not a number") for i in order]
    table = Table(label="Numbers", heads=(":Device", "Lasts", ":Word"), rows=rows)
    heading = Heading(anchor="mixed", title="Mixed")
    mixed = Fragment(name="mixed", html=render("section", heading=heading, blocks=[table]))
    base, traced = examples.many_nodes(), examples.captures()
    report = replace(
        base,
        devices=example_devices.devices("node", nodes=16, gpus=4, gap=False),
        captures=traced.captures,
        across_ranks=traced.across_ranks,
    )
    phases = [(one.label, one.start_us / 1000, one.end_us / 1000) for one in report.phases.phases]
    fragments = [*sections.page(report).values(), mixed]
    steps = [(step, minute(at)) for step, at in STEPS]
    about = {"summary": SUMMARY, "phases": phases, "steps": steps}
    return page_of(fragments, tmp_path_factory.mktemp("dig") / "report.html", about=about)


@pytest.fixture(scope="module")
def opened(browser: Any, file: Path) -> Iterator[Reader]:
    reader = Reader(browser, file, accept_downloads=True)
    reader.live()
    yield reader
    reader.context.close()


@pytest.fixture
def reader(opened: Reader) -> Iterator[Reader]:
    """The page, folded, from its top; nothing complains of what is done to it."""
    opened.page.evaluate("scrollTo({top: 0, behavior: 'instant'}); document.activeElement.blur()")
    yield opened
    assert opened.complaints == []
    assert len(opened.requests) == 1


def test_a_slash_finds_and_enter_goes_there(reader: Reader) -> None:
    page = reader.page
    for query, name in (
        ("nodes", "Nodes"),
        ("rule lowgpu", "LowGPUUtilization"),
        ("rank 1", "rank 1"),
        ("node-09", "node-09"),
    ):
        offered = reader.find(query)
        reader.press("ArrowDown", "ArrowUp", "Enter")
        reached = page.evaluate(
            "document.activeElement.innerText + document.activeElement.getAttribute('aria-label')"
        )

        assert name in offered[0]
        assert name.removeprefix("rank ") in reached
        page.wait_for_function(
            """() => { const { top, bottom } = document.activeElement.getBoundingClientRect();
              return document.activeElement.checkVisibility() && top < innerHeight && bottom > 0; }"""
        )
        assert not page.locator("dialog").is_visible()


def test_what_is_found_can_be_seen(reader: Reader) -> None:
    """The heading of the evidence is for those who listen."""
    found = reader.find("section")
    reader.press("Escape")

    assert reader.page.locator("#evidence-h").count() == 1
    assert "Findings, worst first" in found
    assert "Evidence" not in found


def test_arrows_choose_and_escape_closes(reader: Reader) -> None:
    chosen = reader.page.locator("#jr-hits [aria-selected=true]")
    offered = reader.find("gpu")
    at = []
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp"):
        reader.press(key)
        at.append(offered.index(chosen.locator("span").nth(1).inner_text()))
        assert chosen.get_attribute("id") == reader.page.locator("#jr-hits").locator(
            "xpath=preceding-sibling::input"
        ).get_attribute("aria-activedescendant")
    reader.press("Escape")

    assert len(offered) > 3
    assert at == [1, 2, 1, 0, len(offered) - 1]
    assert not reader.page.locator("dialog").is_visible()


def test_what_is_found_in_a_fold_is_unfolded(reader: Reader) -> None:
    page = reader.page
    fold = page.locator("main details:has(caption:not(.vh))").first
    caption = fold.locator("caption").first.text_content()
    before = fold.get_attribute("open")

    reader.find(caption)
    reader.press("Enter")
    seen = fold.locator("caption").first.is_visible()
    reader.fold(away=True)

    assert before is None
    assert seen


def test_a_head_sorts_numbers_with_units_and_signs(reader: Reader) -> None:
    before = reader.column(2)
    head = reader.page.locator("#mixed thead th").nth(1)
    reader.button("Lasts").focus()
    reader.press("Enter")
    falling, said = reader.column(2), head.get_attribute("aria-sort")
    reader.press("Space")
    rising, then = reader.column(2), head.get_attribute("aria-sort")
    reader.press("Enter")

    assert rising == [*NUMBERS]
    assert falling == [*NUMBERS[-2::-1], NUMBERS[-1]]
    assert (said, then) == ("descending", "ascending")
    assert reader.column(2) == before != rising
    assert head.get_attribute("aria-sort") is None


def test_a_head_sorts_names_as_people_count_and_equal_ones_stay(reader: Reader) -> None:
    before = reader.column(1)
    reader.button("Word").focus()
    reader.press("Enter")
    equal = reader.column(1)
    reader.page.locator("#mixed").get_by_role("button", name="Device").focus()
    reader.press("Enter")
    names = [name for name in reader.column(1) if name.startswith("gpu")]
    reader.press("Enter", "Enter")

    assert equal == before
    assert names == ["gpu0", "gpu1", "gpu2", "gpu3", "gpu9", "gpu10"]


def test_titles_of_rows_stay_with_their_rows(reader: Reader) -> None:
    table = reader.page.locator("table:has(tr.group)").first
    titles = table.locator("tr.group").all_inner_texts()
    heads = table.locator("thead button")
    bodies = "(all) => all.map((one) => [...one.rows].map((row) => row.innerText).sort())"
    before = table.locator("tbody").evaluate_all(bodies)
    heads.first.focus()
    reader.press("Enter")

    assert table.locator("tr.group").all_inner_texts() == titles
    assert table.locator("tbody").evaluate_all(bodies) == before
    reader.press("Enter", "Enter")


def test_a_table_is_copied_as_tab_separated_text(reader: Reader) -> None:
    reader.button("Copy the table: Numbers").focus()
    reader.press("Enter")
    lines = reader.page.evaluate("copied.pop()").split("\n")

    assert lines[0] == "Device\tLasts\tWord"
    assert len(lines) == 1 + len(NUMBERS)
    assert "gpu10\t−3 ms\tnot a number" in lines
    # What a spreadsheet would run is text.
    assert "'=1+1\t1,500 µs\tnot a number" in lines
    assert "'+x\t59.5 s\tnot a number" in lines


def test_the_summary_is_copied_for_a_ticket(reader: Reader) -> None:
    reader.button("Copy for a ticket").focus()
    reader.press("Enter")

    assert reader.page.evaluate("copied.pop()") == SUMMARY
    assert "Markdown" in reader.page.locator(".said").inner_text()


def test_a_figure_is_saved_as_a_drawing_and_as_a_picture(reader: Reader, tmp_path: Path) -> None:
    number = reader.page.locator("#fig-gpu-utilization figcaption b").inner_text().rstrip(".")
    for kind in ("SVG", "PNG"):
        reader.page.get_by_role("button", name=f"Save {number} as {kind}", exact=True).focus()
        with reader.page.expect_download() as download:
            reader.press("Enter")
        assert download.value.suggested_filename == f"fig-gpu-utilization.{kind.lower()}"
        download.value.save_as(tmp_path / kind)

    drawn = ElementTree.fromstring((tmp_path / "SVG").read_text("utf-8"))
    words = " ".join(
        text for one in drawn.iter("{http://www.w3.org/2000/svg}text") for text in one.itertext()
    )
    styles = {one.get("style", "") for one in drawn.iter("{http://www.w3.org/2000/svg}line")}
    assert "GPU utilization" in words
    assert any("stroke:" in style for style in styles)
    assert "var(" not in str(styles)
    assert (tmp_path / "PNG").read_bytes().startswith(b"\x89PNG")
    size = (tmp_path / "PNG").stat().st_size
    assert size > 10_000


def test_only_some_nodes_are_shown(reader: Reader) -> None:
    page = reader.page
    rows = page.locator("main table:has(thead button:text-is('Node')) tbody tr:has(td)")
    reader.fold(away=False)
    before = rows.evaluate_all(SHOWN)
    reader.button("Show only").focus()
    reader.press("Enter")
    page.get_by_role("checkbox", name="node-09").focus()
    reader.press("Space", "Escape")
    after = rows.evaluate_all(SHOWN)
    panels = page.locator("#fig-nodes h3").evaluate_all(
        "(all) => all.filter((one) => one.checkVisibility()).map((one) => one.innerText)"
    )
    label = page.locator("nav > button").nth(1).inner_text()
    page.locator("nav > button").nth(1).focus()
    reader.press("Enter")
    page.get_by_role("button", name="Show all").focus()
    reader.press("Enter", "Escape")
    back = rows.evaluate_all(SHOWN)
    reader.fold(away=True)

    nodes = {name for name in after if name.startswith("node-")}
    assert len({*before}) > 3
    assert nodes == {"node-09"}
    assert [name for name in panels if name.startswith("node-")] == [
        name for name in panels if "node-09" in name
    ]
    assert label == "Only node-09"
    assert back == before


@pytest.mark.parametrize(
    ("kind", "figure", "left"),
    [("node-15", "devices-map", 2), ("2", "profiled-steps-ranks", 1)],
)
def test_rows_of_heat_maps_and_lines_without_a_key_are_hidden(
    reader: Reader, kind: str, figure: str, left: int
) -> None:
    page = reader.page
    reader.fold(away=False)
    # At the middle of a row, which element is on top.
    tops = """(rows) => rows.map((row) => {
      row.scrollIntoView({ block: "center", behavior: "instant" });
      const { x, y, width, height } = row.getBoundingClientRect();
      return document.elementFromPoint(x + width / 2, y + height / 2) === row;
    })"""
    rows = page.locator(f"#fig-{figure} .rows > i")
    count = rows.count()
    lines = """() => Bokeh.documents.flatMap((one) => one.roots()).flatMap((root) => root.renderers ?? [])
      .filter((one) => one.name?.startsWith("node-")).map((one) => [one.name, one.visible])"""
    before = page.evaluate(lines)
    reader.button("Show only").focus()
    reader.press("Enter")
    page.get_by_role("checkbox", name=kind, exact=True).focus()
    reader.press("Space", "Escape")
    covered = rows.evaluate_all(tops)
    shown = page.evaluate(lines)
    page.locator("nav > button").nth(1).focus()
    reader.press("Enter")
    page.get_by_role("button", name="Show all").focus()
    reader.press("Enter", "Escape")
    back = page.locator(f"#fig-{figure} .rows > i.left-out").count()
    again = page.evaluate(lines)
    reader.fold(away=True)

    assert count > left
    assert covered.count(False) == left
    assert back == 0
    assert again == before == [[name, True] for name, _ in before]
    assert before
    if kind.startswith("node"):
        assert shown == [[name, name.startswith(f"{kind} ")] for name, _ in before]


def test_a_phase_is_shown_on_all_time_axes(reader: Reader) -> None:
    page = reader.page
    whole = page.evaluate(RANGES)
    report = examples.many_nodes()
    loop = report.phases.phases[1]
    reader.button("Show only").focus()
    reader.press("Enter")
    page.get_by_role("checkbox", name=loop.label).focus()
    reader.press("Space")
    inside = page.evaluate(RANGES)
    reader.press("Space", "Escape")

    assert len(whole) > 2
    assert {tuple(one) for one in inside} == {(loop.start_us / 1000, loop.end_us / 1000)}
    assert page.evaluate(RANGES) == whole


def test_keys_zoom_and_move_all_figures_over_time_together(reader: Reader) -> None:
    page = reader.page
    whole = page.evaluate(RANGES)
    figure = page.locator("figure [aria-keyshortcuts]").first
    figure.focus()

    def after(key: str) -> tuple[float, float]:
        before = page.evaluate(RANGES)
        reader.press(key)
        page.wait_for_function(
            f"(b) => {{ const now = ({RANGES})(); return JSON.stringify(now) !== JSON.stringify(b) && new Set(now.map(String)).size === 1; }}",
            arg=before,
        )
        return tuple(page.evaluate(RANGES)[0])

    zoomed = after("+")
    right = after("ArrowRight")
    left = after("ArrowLeft")
    closer = after("+")
    wider = after("-")
    said = page.locator(".said").inner_text()
    reader.press("0")
    page.wait_for_function(f"(b) => JSON.stringify(({RANGES})()) === JSON.stringify(b)", arg=whole)

    width = zoomed[1] - zoomed[0]
    assert right[0] == pytest.approx(zoomed[0] + width / 4)
    assert right[1] - right[0] == pytest.approx(width)
    assert left == pytest.approx(zoomed)
    assert closer[1] - closer[0] == pytest.approx(width / 2)
    assert wider == pytest.approx(zoomed)
    assert re.fullmatch(r"[\d:]+ UTC to [\d:]+ UTC", said)


def test_a_line_is_at_the_time_of_the_pointer_in_all_figures(reader: Reader) -> None:
    page = reader.page
    left, top, width, _ = place_of(reader, "#fig-nodes .live")
    page.mouse.move(left + width / 2, top + 40)
    page.mouse.move(left + width / 2 + 1, top + 40)
    page.wait_for_selector(".cross:not([hidden])")
    shown = page.locator("#fig-nodes .cross:not([hidden])").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect().left - one.parentElement.getBoundingClientRect().left)"
    )
    elsewhere = page.locator("figure:not(#fig-nodes) .cross:not([hidden])").count()
    page.mouse.move(0, 0)
    page.wait_for_function("document.querySelector('.cross:not([hidden])') === null")

    assert len(shown) > 1
    assert max(shown) - min(shown) < 1
    assert shown[0] == pytest.approx(width / 2 + 1, abs=1.5)
    assert elsewhere > 0


def test_time_axes_count_from_the_start_or_in_steps(reader: Reader) -> None:
    of_day = reader.page.evaluate(LABELS)
    reader.button("Times since the start").focus()
    reader.press("Enter")
    counted = reader.page.evaluate(LABELS)
    reader.button("Steps on time axes").focus()
    reader.press("Enter")
    in_steps = reader.page.evaluate(LABELS)
    pressed = reader.page.locator("[data-times][aria-pressed=true]").all_inner_texts()
    reader.press("Enter")

    # The job starts at 08:00.
    assert [label for label, _ in counted] == [f"+{int(label[:2]) - 8}:{label[3:]}:00" for label, _ in of_day]
    assert len(counted) > 2
    assert pressed == ["Steps on time axes"]
    shown = ((0, 5), (500, 15), (1000, 25), (500, 26), (1000, 36), (1500, 46))
    assert in_steps == [[f"step {step:,}", pytest.approx(minute(at), abs=1)] for step, at in shown]
    assert reader.page.evaluate(LABELS) == of_day != counted


def test_steps_are_said_as_a_figure_is_moved(reader: Reader) -> None:
    page = reader.page
    reader.button("Steps on time axes").focus()
    reader.press("Enter")
    page.locator("figure [aria-keyshortcuts]").first.focus()
    reader.press("+")
    page.wait_for_function("() => /step/.test(document.querySelector('.said').innerText)")
    said = page.locator(".said").inner_text()
    reader.press("0")
    reader.button("Steps on time axes").focus()
    reader.press("Enter")

    assert re.fullmatch(r"(before |after )?step [\d,]+ to (before |after )?step [\d,]+", said)


def test_folds_open_and_close_all_at_once(reader: Reader) -> None:
    states = "(all) => [...new Set(all.map((one) => one.open))]"
    folds = reader.page.locator("main details")
    reader.button("Open all").focus()
    reader.press("Enter")
    opened = folds.evaluate_all(states)
    reader.button("Close all").focus()
    reader.press("Enter")

    assert folds.count() > 5
    assert opened == [True]
    assert folds.evaluate_all(states) == [False]


def test_headings_findings_and_figures_have_links(reader: Reader) -> None:
    page = reader.page
    without = page.evaluate("""[...document.querySelectorAll("main :is(h2, h3, h4, figure[id])")]
      .filter((one) => !one.closest("nav, .evidence > h2, .verdict :not(h2)") && !one.querySelector(":scope > .here, :scope > .signs > .here")).map((one) => one.outerHTML.slice(0, 100))""")
    dead = page.evaluate(
        """[...document.querySelectorAll(".here")].filter((one) => !document.getElementById(decodeURIComponent(one.hash.slice(1)))).map((one) => one.hash)"""
    )
    link = page.locator(".find .here").first
    link.focus()
    reader.press("Enter")
    copied = page.evaluate("copied.pop()")

    assert without == []
    assert dead == []
    assert copied.endswith(link.get_attribute("href"))
    assert page.evaluate("location.href") == copied
    assert page.locator(".find li.found").count() == 1


def test_a_link_into_a_fold_unfolds_it(reader: Reader) -> None:
    fold = reader.page.locator("main details:has(caption:not(.vh))").first
    fold.evaluate("(one) => { one.querySelector('table').id = 'deep'; location.hash = 'deep'; }")
    fold.locator("table").first.wait_for()
    reader.fold(away=True)


@needs_axe
@pytest.mark.slow
def test_axe_finds_no_barrier_in_what_is_opened(reader: Reader) -> None:
    reader.find("gpu")
    found = barriers(reader, "dialog")
    reader.press("Escape")

    assert found == []


def test_paper_has_no_means(reader: Reader) -> None:
    reader.page.emulate_media(media="print")
    shown = reader.page.locator(
        ".means, .here, .sign, .signs, .find-key, .said, dialog, .cross"
    ).evaluate_all("(all) => all.filter((one) => one.checkVisibility()).length")
    reader.page.emulate_media(media="screen")

    assert shown == 0


def test_paper_names_what_is_unfolded(reader: Reader) -> None:
    summary = "(folds) => folds.filter((one) => one.querySelector('summary').checkVisibility()).length"
    folds = reader.page.locator("main > section > details")
    reader.fold(away=True)
    reader.page.emulate_media(media="print")
    closed = folds.evaluate_all(summary)
    folds.evaluate_all("(folds) => folds.forEach((one) => { one.open = true; })")
    opened = folds.evaluate_all(summary)
    reader.page.emulate_media(media="screen")
    reader.fold(away=True)

    assert (closed, opened) == (0, folds.count())
    assert opened > 0


def test_without_scripts_no_means_are_there(file: Path) -> None:
    html = re.sub(r"<(script|style)\b.*?</\1>", "", file.read_text("utf-8"), flags=re.DOTALL)

    assert json.loads(re.search(r'id="jr-about">(.*?)<', file.read_text("utf-8"))[1])["summary"] == SUMMARY  # type: ignore[index]
    assert not re.search(r'class="(means|here|sign|find-key|dig-box|said|cross)"', html)
