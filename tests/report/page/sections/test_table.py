"""Tables and figures of whole pages: numbers, folds, and places of live plots."""

from __future__ import annotations

import json

import pytest

from jobreport.page.kit.table import MANY, Cell, Table, as_code, bar, swatch
from tests.once import slow_but
from tests.report.page.sections import examples
from tests.report.page.sections.html import Page
from tests.report.page.sections.test_sections import FEW, example, html_of


@pytest.mark.parametrize("name", slow_but(FEW, examples.ALL))
def test_every_live_plot_has_its_place_and_every_key_its_series(name: str) -> None:
    for html in html_of(example(name)).values():
        page = Page.of(html)
        roots = [root for _, text in page.scripts for root in json.loads(text)["roots"].values()]
        assert sorted(roots) == sorted(i for i in page.ids if i.startswith("live-"))
        scripts = "".join(text for _, text in page.scripts)
        series = {str(one["data-series"]) for one in page.all("span") if "data-series" in one}
        assert all(f'"{one}"' in scripts for one in series)


def test_heads_of_words_and_their_cells_stand_left() -> None:
    table = Table(label="all", heads=(":Node", "Mean", ":Word"), rows=[("n", "1.0", "low")])

    assert table.columns == [("Node", True), ("Mean", False), ("Word", True)]
    assert table.body == [[("n", "tl"), ("1.0", ""), ("low", "tl")]]


#: A mean, a share, a count, words, and a bar of each of 12 ranks on 2 nodes; all within 5%, or what the last digit counts.
RANKS = [
    ("a" if i < 6 else "b", str(i), f"{50 + i / 5:.1f}", f"0.{i % 2}", "1,000", "same", bar(("u", 5.0 + i)))
    for i in range(12)
]
HEADS = (":Node", ":Rank", "Mean (ms)", "Waits (%)", "Steps", ":Word", ":0 to 100")


def ranks(**changes: tuple[int, object]) -> tuple[Table, Table]:
    """The table of the ranks, of which rank 5 has another cell, and that of all of them."""
    rows = [list(row) for row in RANKS]
    for column, cell in changes.values():
        rows[5][column] = cell  # type: ignore[call-overload]
    few = Table(label="Ranks", caption="All.", heads=HEADS, rows=rows).shown
    assert few.every
    return few, few.every


def test_ranks_that_are_alike_are_one_row_and_all_can_be_reached() -> None:
    few, every = ranks()

    assert [*few.rows[0]][:6] == ["2\u00a0nodes", "12\u00a0ranks", "50.0–52.2", "0.0–0.1", "1,000", "same"]
    assert (len(few.rows), few.fold, few.caption) == (1, "", "All.")
    assert (every.fold, every.caption, [*map(list, every.rows)]) == ("all 12 rows", "", [*map(list, RANKS)])


@pytest.mark.parametrize(
    "odd",
    [
        (2, "60.0"),
        (2, "45.0"),
        (2, "–"),
        (2, "50.0 s"),
        (2, Cell("50.0", "h9")),
        (3, "0.4"),
        (4, "1,100"),
        (5, "late"),
    ],
    ids=str,
)
def test_a_rank_that_stands_out_comes_first_and_the_others_are_one(odd: tuple[int, object]) -> None:
    few, every = ranks(odd=odd)

    assert list(few.rows[0]) == list(every.rows[5])
    assert [row[1] for row in few.rows] == ["5", "11\u00a0other ranks"]


def test_rows_that_are_few_differ_or_are_about_something_else_stay() -> None:
    rows = [row[1:] for row in RANKS]
    far = [(str(i), f"{50 + 5 * i}") for i in range(MANY)]
    counts = [(str(i), str(i % 3)) for i in range(MANY)]

    for heads, given in (
        (HEADS[1:], rows[: MANY - 1]),
        ((":Kernel", *HEADS[2:]), rows),
        (HEADS[1:3], far),
        (HEADS[1:3], counts),
        (HEADS[1:], ["rank 0", *rows]),
    ):
        table = Table(label="Rows", heads=heads, rows=given)
        assert table.shown is table
    assert Table(label="Rows", heads=HEADS[1:3], rows=[*far, *far]).shown.fold == "rows"


def test_names_in_markup_are_escaped() -> None:
    assert str(as_code("<b>")) == "<code>&lt;b&gt;</code>"
    assert "<b>" not in swatch("u", "<b>")
    assert bar(("l", 50.0), ("u", 20.0)).count("<rect") == 2
