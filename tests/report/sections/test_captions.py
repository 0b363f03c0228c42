"""Captions are short: one finding and one reading aid; what else helps to read a figure is folded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.report.sections.html import Cells
from tests.report.sections.test_numbers import EVERY, made

MAX_WORDS = 35


@pytest.mark.parametrize("sample", EVERY, ids=lambda path: path.name)
def test_captions_are_short(sample: Path) -> None:
    html, _ = made(sample)

    long = [
        (section, caption)
        for section, found in html.items()
        for caption in Cells.of(found, "figcaption", "caption")
        if len(re.sub(r"^(Figure|Table)\s[\d.]+", "", caption).split()) > MAX_WORDS
    ]

    assert long == []


def test_the_text_alternative_of_a_drawing_ends_with_the_finding() -> None:
    html, _ = made(EVERY[0])

    checked = 0
    for figure in re.findall(r"<figure.*?</figure>", "".join(html.values()), re.DOTALL):
        labels = re.findall(r'role="img" aria-label="([^"]*)"', figure)
        finding = re.search(r"<figcaption><b>.*?</b> (.*?)(?: <span class=\"read\">|</figcaption>)", figure)
        assert finding
        if len(labels) == 1:
            checked += 1
            assert labels[0].endswith(finding[1])
    assert checked > 5
