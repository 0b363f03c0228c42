"""Every number in the page is found in ``report.json``: the tables of every section, cell by cell."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from jobreport import document, pipeline, sections
from jobreport.document import Report
from jobrules.words import THIN, duration, utc
from tests.page.html import Cells
from tests.page.test_sections import CALLS
from tests.paths import SAMPLES

#: The top-level fields of report.json that the tables of a section may take their numbers from.
SOURCES = {
    "summary": ("course", "job"),
    "utilisation": ("usage", "job"),
    "framework": ("framework",),
    "steps": ("steps",),
    "gpu-use": ("boxes",),
    "balance": ("balance",),
    "loading": ("loading",),
    "batch-size": ("boxes", "rules"),
    "cpu-bottlenecks": ("stalls",),
    "io-bottlenecks": ("stalls",),
    "gpu-memory": ("memory",),
    "nodes": ("timelines", "nodes", "job"),
    "devices": ("devices", "boxes"),
    "moments": ("moments",),
    "profiles": ("profiles",),
    "quality": ("quality", "rules", "course"),
}
#: What a printed number may have been divided by or multiplied with: percent, ms, µs, kB, MB, GB, minutes, hours.
FACTORS = (1, 100, 1e3, 1e6, 1e-3, 1e-6, 1e-9, 1 / 60, 1 / 3600)
#: A longer cell holds a sentence.
LONGEST = 60
#: A number as a cell prints it, alone or before its unit.
NUMBER = re.compile(rf"[-−]?\d[\d{THIN}]*(?:\.\d+)?")


def numbers(value: Any) -> Iterator[float]:
    """All numbers in a piece of JSON, the lengths of its lists, and how long its stretches of time are."""
    if isinstance(value, dict):
        for start, end in (("start_us", "end_us"), ("first_us", "last_us")):
            if isinstance(value.get(start), int) and isinstance(value.get(end), int):
                yield value[end] - value[start]
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        yield len(value)
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    elif isinstance(value, str):
        yield from (float(found) for found in re.findall(r"\d+(?:\.\d+)?", value)[:20])


class Printed:
    """All ways in which the numbers of a section could be printed."""

    def __init__(self, values: Iterable[float]) -> None:
        self.values = sorted({abs(v * f) for v in values for f in FACTORS if math.isfinite(v)})
        self.texts = set[str]()

    @classmethod
    def of(cls, found: dict[str, Any], section: str) -> Printed:
        """What report.json holds for a section."""
        values = list(numbers([found.get(name) for name in SOURCES[section]]))
        printed = cls(values)
        for value in values:
            if 0 <= value < 4e15:
                printed.texts.add(duration(value))
                printed.texts.add(duration(value * 1e6))
            if 1e15 < value < 4e15:
                printed.texts |= {f"{utc(int(value)):%H:%M:%S}", f"{utc(int(value)):%Y-%m-%d %H:%M:%S}"}
        return printed

    def holds(self, text: str) -> bool:
        """Whether a cell's text is one of these ways, to the last printed digit."""
        if text in self.texts:
            return True
        for number in NUMBER.findall(re.sub(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d", "", text)):
            value = abs(float(number.replace(THIN, "").replace("−", "-")))
            digits = len(number.partition(".")[2])
            half = 0.5000001 * 10**-digits
            if not self._near(value, half):
                return False
        times = re.findall(r"\d\d:\d\d:\d\d", text)
        return all(time in self.texts for time in times)

    def _near(self, value: float, half: float) -> bool:
        from bisect import bisect_left  # noqa: PLC0415

        at = bisect_left(self.values, value - half)
        return at < len(self.values) and self.values[at] <= value + half


@cache
def made(sample: Path) -> tuple[Report, dict[str, Any]]:
    """The report of a sample job, and its JSON."""
    with TemporaryDirectory() as folder:
        report = pipeline.make_report(sample, Path(folder) / "out", formats=("json",)).report
    return report, json.loads(document.to_json(report))


def cells(report: Report, section: str) -> list[str]:
    """The texts of a section's table cells that hold a number."""
    (call,) = [one for one in CALLS if one(report).name == section]
    told = Cells.of(call(report).html)
    return [text for text in told if re.search(r"\d", text) and len(text) < LONGEST]


@pytest.mark.parametrize("section", SOURCES)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_the_numbers_of_a_section_are_in_the_json(sample: Path, section: str) -> None:
    report, found = made(sample)
    printed = Printed.of(found, section)

    assert [text for text in cells(report, section) if not printed.holds(text)] == []


def test_numbers_of_another_job_are_not() -> None:
    """The comparison above can fail: most numbers of one job are not in the JSON of another."""
    (one, _), (_, other) = made(SAMPLES[0]), made(SAMPLES[-1])

    for section in ("utilisation", "gpu-use"):
        told = [text for text in cells(one, section) if "." in text]
        strange = [text for text in told if not Printed.of(other, section).holds(text)]
        assert len(strange) > 0.4 * len(told) > 4


def test_every_section_has_its_sources() -> None:
    report, found = made(SAMPLES[0])
    names = {call(report).name for call in CALLS} - {"head", "verdict", "findings", "contents", "rules"}

    assert names == set(SOURCES)
    assert sections.__all__
    assert {name for names in SOURCES.values() for name in names} <= set(found)
