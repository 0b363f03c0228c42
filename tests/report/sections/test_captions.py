"""Captions are short: one finding and one reading aid; what else helps to read a figure is folded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.report.sections.html import Cells
from tests.report.sections.test_numbers import EVERY, made

MAX_WORDS = 35
SECTIONS = ("summary", "utilization", "framework", "steps", "gpu-utilization", "balance", "batch-size")


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("sample", EVERY, ids=lambda path: path.name)
def test_captions_are_short(sample: Path, section: str) -> None:
    html, _ = made(sample)

    captions = [
        re.sub(r"^(Figure|Table)\s[\d.]+", "", one)
        for one in Cells.of(html[section], "figcaption", "caption")
    ]

    assert [one for one in captions if len(one.split()) > MAX_WORDS] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_the_text_alternative_of_a_drawing_ends_with_the_finding(section: str) -> None:
    html, _ = made(EVERY[0])

    for figure in re.findall(r"<figure.*?</figure>", html[section], re.DOTALL):
        labels = re.findall(r'role="img" aria-label="([^"]*)"', figure)
        finding = re.search(r"<figcaption><b>.*?</b> (.*?)(?: <span class=\"read\">|</figcaption>)", figure)
        assert finding
        if len(labels) == 1:
            assert labels[0].endswith(finding[1])
