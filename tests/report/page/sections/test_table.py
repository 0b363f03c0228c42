"""Tables and figures of whole pages: numbers, folds, and places of live plots."""

from __future__ import annotations

import json

import pytest

from jobreport.page.kit.table import Table, as_code, bar, swatch
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


def test_names_in_markup_are_escaped() -> None:
    assert str(as_code("<b>")) == "<code>&lt;b&gt;</code>"
    assert "<b>" not in swatch("u", "<b>")
    assert bar(("l", 50.0), ("u", 20.0)).count("<rect") == 2
