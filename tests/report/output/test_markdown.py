"""What a tracker shows of texts that were escaped for it."""

from __future__ import annotations

import mistune
import pytest

from fuzz.hostile import NAMES
from jobreport.markdown import document, escape, prose, table
from jobrules.text import escape_name
from tests.report.page.sections.html import Page

#: Texts with markup at some place.
MARKUP = (
    *(escape_name(name) for name in NAMES.values()),
    *("# a", "#", "- a", "+ a", "* a", "---", "> a", "1. a", "12) a", "~~~", "| a |", "```"),
    *("a *b* c", "2*3*4", "**a**", "_a_", "__a__", "a_ _b", "~~a~~", "~a~", "`a`", "``a``"),
    *("[a](b)", "![a](b)", "[a]: b", "[ ] a", "{a}", "<b>a</b>", "<!-- a -->", "<https://a.b>"),
    *("&amp;", "&#65;", "@all", "ProfilerStep#12", "!7", "$a$", "$$a$$", "$3$", "a\\", "a\\*b*", "www.a.b"),
)


@pytest.mark.parametrize(
    ("form", "tags"),
    [("{}", ["p"]), ("- {}", ["ul", "li"]), ("**{}**", ["p", "strong"])],
)
@pytest.mark.parametrize("text", MARKUP)
def test_markup_is_shown_as_it_is(text: str, form: str, tags: list[str]) -> None:
    page = _shown(form.format(escape(text)))

    assert ([tag for tag, _ in page.elements], page.text.split()) == (tags, text.split())


@pytest.mark.parametrize("text", [*MARKUP, "a | b", r"a\|b"])
def test_markup_stays_in_its_cell(text: str) -> None:
    page = _shown(table([text, "b"], [["c", text]]))

    cells = [tag for tag, _ in page.elements if tag in ("th", "td")]
    assert (cells, page.text.split()) == (["th"] * 2 + ["td"] * 2, f"{text} b c {text}".split())


def _shown(text: str) -> Page:
    plugins = ["strikethrough", "table", "url", "math"]
    return Page.of(str(mistune.create_markdown(escape=False, plugins=plugins)(text)))


@pytest.mark.parametrize(
    "text",
    [
        "62.4% (0.31 of 0.50 GPU-h), +5%, -3%, ~ 7",
        "Set num_workers to 8: $3.06 an hour ($12 in all), R&D, 5 < 7 > 3, a | b, a * b, done!",
        "Rank #: 2 # 3",
        r"C:\jobs, \x1b",
    ],
)
def test_what_starts_no_markup_has_no_backslash(text: str) -> None:
    assert (escape(text), prose(text)) == (text, text)


def test_blanks_are_those_that_a_search_for_words_finds() -> None:
    assert document(["14\u00a0s", "a"]) == "14 s\n\na\n"
