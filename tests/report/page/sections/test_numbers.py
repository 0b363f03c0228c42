"""Every number in the page is found in ``report.json``: the tables of every section, cell by cell.

Captions are short: one finding and one reading aid; what else helps to read a figure is folded.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from jobreport import document, pipeline
from jobreport.options import Options
from jobreport.page import sections
from jobreport.page.sections.order import BY_ANCHOR
from jobreport.page.sections.outline import OF_CAPTURES
from jobreport.page.sections.verdict import SMALL_PERCENT
from jobrules.text import duration, utc
from tests.paths import ROOT, SAMPLES
from tests.report.page.sections.example_cost import pricing
from tests.report.page.sections.html import Cells

MAX_CAPTION_WORDS = 35

#: The samples, and one that is no more than a log.
EVERY = (*SAMPLES, ROOT / "sample_data" / "throttled-4gpu")

#: The top-level fields of report.json that a section may take its numbers from.
SOURCES = {
    "verdict": ("verdict", "cost"),
    "findings": ("verdict",),
    "summary": ("phases", "job"),
    "utilization": ("utilization", "job"),
    "framework": ("framework",),
    "steps": ("steps",),
    "goodput": ("goodput", "verdict"),
    "gpu-utilization": ("boxes", "job"),
    "balance": ("balance",),
    "data-loading": ("data_loading",),
    "batch-size": ("boxes", "rules"),
    "cpu-bottlenecks": ("bottlenecks", "columns"),
    "io-bottlenecks": ("bottlenecks", "columns"),
    "gpu-memory": ("gpu_memory", "columns", "power", "phases"),
    "nodes": ("time_lines", "nodes", "job", "columns", "phases"),
    "devices": ("devices", "boxes", "job", "rules"),
    "close-ups": ("close_ups",),
    "profiles": ("profiles",),
    "power": ("power", "time_lines", "columns", "phases"),
    "cost": ("cost", "verdict"),
    "quality": ("quality", "rules", "phases", "verdict", "job"),
    "identifiers": ("job", "profiles", "quality"),
}
#: Where sections print numbers besides the cells of tables: values of lists, amounts; and besides captions: headlines.
PLACES = {"verdict": ("dd",), "findings": ("b", "span")}
HEADLINES = {"verdict": ("h2", "strong")}
#: The number of a figure or a table.
NUMBERED = re.compile(r"(?:Figure|Table)\s[\d.]+")
#: What a printed number may have been divided by or multiplied with: percent, ms, µs, kB, MB, GB, minutes, hours, MiB, GiB.
FACTORS = (1, 100, 1e3, 1e6, 1e-3, 1e-6, 1e-9, 1 / 60, 1 / 3600, 2**-20, 2**-30)
#: A longer list holds the columns of a figure, among which nearly every percentage is found: no cell is of it.
COLUMNS = 100
#: A longer cell holds a sentence.
LONGEST = 60
#: A number alone or before its unit; digits within a name, as in ``gpu0`` or ``p95``, are none.
NUMBER = re.compile(r"(?<![\w./-])[-−]?\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w/])|(?<![\w./-])\d+(?=σ)")
DAY, CLOCK = re.compile(r"\d{4}-\d\d-\d\d"), re.compile(r"\d\d:\d\d:\d\d")
DURATION = re.compile(r"(?<![\w.])\d+(?:\.\d+)?\s(?:d|h|min|s)\b(?: \d+\s(?:h|min|s)\b)?")


def numbers(value: Any, most: float = math.inf) -> Iterator[float]:
    """All numbers in a piece of JSON, the lengths of its lists, and how long its stretches of time are.

    Of lists with more than ``most`` entries only the lengths.
    """
    if isinstance(value, dict):
        for start, end in (("start_us", "end_us"), ("first_us", "last_us")):
            if isinstance(value.get(start), int) and isinstance(value.get(end), int):
                yield value[end] - value[start]
        for item in value.values():
            yield from numbers(item, most)
    elif isinstance(value, list):
        yield len(value)
        for item in value if len(value) <= most else ():
            yield from numbers(item, most)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    elif isinstance(value, str):
        yield from (float(found) for found in re.findall(r"\d+(?:\.\d+)?", value)[:20])


def small_parts(found: dict[str, Any]) -> list[float]:
    """What small parts of the verdict's bar amount to, which are one there."""
    use = found["verdict"].get("use") if isinstance(found["verdict"], dict) else None
    parts = use["parts"] if use else ()
    small = [part for part in parts if part["role"] == "lost" and part["percent"] < SMALL_PERCENT]
    return [sum(part[key] for part in small) for key in ("amount", "percent")]


class Printed:
    """All ways in which the numbers of a section could be printed."""

    def __init__(self, values: Iterable[float]) -> None:
        finite = [v for v in values if math.isfinite(v)]
        self.values = np.unique(np.abs(np.outer(finite, FACTORS))).tolist()
        self.texts = set[str]()

    @classmethod
    def of(cls, found: dict[str, Any], section: str, most: float = math.inf) -> Printed:
        """What report.json holds for a section, without the lists that are longer."""
        values = list(numbers([found.get(name) for name in SOURCES[section]], most))
        values += small_parts(found) if section == "verdict" else []
        printed = cls(values)
        for value in {*values}:
            if 0 <= value < 4e15:
                printed.texts.add(duration(value))
                printed.texts.add(duration(value * 1e6))
            if 1e15 < value < 4e15:
                printed.texts |= {f"{utc(int(value)):%H:%M:%S}", f"{utc(int(value)):%Y-%m-%d %H:%M:%S}"}
        return printed

    def holds(self, text: str) -> bool:
        """Whether a text is one of these ways, or every number in it is, to the last printed digit."""
        return text in self.texts or not self.strange(text)

    def strange(self, text: str) -> list[str]:
        """The times and numbers of a text that are in none of these ways."""
        found = [time for time in CLOCK.findall(text) if time not in self.texts]
        text = CLOCK.sub("", DAY.sub("", text))
        text = DURATION.sub(lambda one: "" if one[0] in self.texts else one[0], text)
        for number in NUMBER.findall(text):
            value = abs(float(number.replace(",", "").replace("−", "-")))
            half = 0.5000001 * 10 ** -len(number.partition(".")[2])
            if not self._near(value, half):
                found.append(number)
        return found

    def _near(self, value: float, half: float) -> bool:
        at = bisect_left(self.values, value - half)
        return at < len(self.values) and self.values[at] <= value + half


@cache
def made(sample: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """The HTML of each section of a sample job's report, and its JSON."""
    with TemporaryDirectory() as folder:
        report = pipeline.make_report(
            sample, Path(folder) / "out", Options(formats=("json",), pricing=pricing())
        ).report
    calls = (sections.verdict, sections.findings, *BY_ANCHOR.values())
    return {call.anchor: call(report).html for call in calls}, json.loads(document.to_json(report))


def cells(html: str, section: str) -> list[str]:
    """The texts of a section's cells, values and amounts that hold a number."""
    texts = Cells.of(html, "td", *PLACES.get(section, ()))
    return [text for text in texts if re.search(r"\d", text) and len(text) < LONGEST]


def captions(html: str, section: str) -> list[str]:
    """The captions of a section's figures, and its headline, without the numbers of figures."""
    return [NUMBERED.sub("", text) for text in Cells.of(html, "figcaption", *HEADLINES.get(section, ()))]


@pytest.mark.parametrize("section", SOURCES)
@pytest.mark.parametrize("sample", EVERY, ids=lambda path: path.name)
def test_the_numbers_of_a_section_are_in_the_json(sample: Path, section: str) -> None:
    html, found = made(sample)
    printed = Printed.of(found, section, COLUMNS)

    assert [text for text in cells(html[section], section) if not printed.holds(text)] == []


@pytest.mark.parametrize("section", SOURCES)
@pytest.mark.parametrize("sample", EVERY, ids=lambda path: path.name)
def test_the_numbers_of_captions_are_in_the_json(sample: Path, section: str) -> None:
    html, found = made(sample)
    printed = Printed.of(found, section)
    texts = captions(html[section], section)

    assert [(strange, text) for text in texts if (strange := printed.strange(text))] == []


@pytest.mark.parametrize(
    ("section", "share"),
    [
        # Times of three digits and more: the few hundred numbers of another job, in nine units each, hit
        # next to none of them by chance.
        ("framework", 0.9),
        ("steps", 0.9),
        ("close-ups", 0.9),
        ("data-loading", 0.8),
        # Percentages with one digit, of which there are a thousand: the more of them another job holds,
        # the more are hit.
        ("cpu-bottlenecks", 0.5),
        ("devices", 0.3),
        ("utilization", 0.3),
        ("gpu-utilization", 0.1),
    ],
)
def test_numbers_of_another_job_are_not(section: str, share: float) -> None:
    """The comparisons above can fail: numbers of one job are not in the JSON of another."""
    (one, _), (_, other) = made(SAMPLES[0]), made(SAMPLES[-1])
    printed = Printed.of(other, section, COLUMNS)

    texts = [text for text in cells(one[section], section) if "." in text]
    strange = [text for text in texts if not printed.holds(text)]
    assert len(texts) > 10
    assert len(strange) > share * len(texts)


def test_captions_of_another_job_are_not() -> None:
    (one, _), (_, other) = made(SAMPLES[0]), made(SAMPLES[-1])

    strange = {
        section
        for section in SOURCES
        if any(Printed.of(other, section).strange(text) for text in captions(one[section], section))
    }
    assert strange >= {
        "verdict",
        "summary",
        "framework",
        "steps",
        "gpu-utilization",
        "data-loading",
        "cpu-bottlenecks",
        "devices",
        "close-ups",
    }


@pytest.mark.parametrize(
    ("text", "strange"),
    [
        ("12.34 of 56.8", ["56.8"]),
        ("half took 12.3\u00a0s, 1,234 of gpu12", []),
        ("at 2025-11-14 08:00:01, not 08:00:02", ["08:00:02"]),
        ("3\u00a0h 26\u00a0min, not 3\u00a0h 27\u00a0min", ["27"]),
        ("p95 −12, 12.35", ["12.35"]),
    ],
)
def test_strange_numbers_and_times_are_found(text: str, strange: list[str]) -> None:
    moment = 1_763_107_201_000_000
    printed = Printed.of({"verdict": [12.34, 1234, moment, 12_360_000_000, 3]}, "verdict")

    assert printed.strange(text) == strange


def test_every_section_has_its_sources() -> None:
    html, _ = made(SAMPLES[0])

    # Tests of their own compare those on traces and on stacks with the model, which no sample has.
    assert (
        html.keys() - {"head", "contents", "rules", "code-waits", "learning", "trees"} - OF_CAPTURES
        == SOURCES.keys()
    )
    assert sections.__all__
    # What no sample of a job has is left out of its JSON.
    known = {name for sample in EVERY for name in made(sample)[1]}
    assert {name for names in SOURCES.values() for name in names} <= known


@pytest.mark.parametrize("sample", EVERY, ids=lambda path: path.name)
def test_captions_are_short(sample: Path) -> None:
    html, _ = made(sample)

    long = [
        (section, caption)
        for section, found in html.items()
        for caption in Cells.of(found, "figcaption", "caption")
        if len(re.sub(r"^(Figure|Table)\s[\d.]+", "", caption).split()) > MAX_CAPTION_WORDS
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
