"""The static drawings say the same as the live ones."""

from __future__ import annotations

import re

from jobreport.figures.still import still_boxes, still_line, still_ring
from jobreport.formats import Scale
from tests.page import examples

PERCENT = Scale(factor=1.0, unit="%")


def subpaths(path: str) -> int:
    return len(re.findall("M", path))


def test_a_line_breaks_at_a_gap() -> None:
    report = examples.hostile_job()
    whole, _, holed = report.timelines

    drawn = [still_line(line, report.columns, report.course, PERCENT, 100) for line in (whole, holed)]

    assert [subpaths(d.line) for d in drawn] == [1, 2]
    assert [subpaths(d.band) for d in drawn] == [1, 2]
    assert [len(d.gaps) for d in drawn] == [0, 1]
    assert (drawn[1].gaps[0].at, drawn[1].gaps[0].width) == (25.0, 12.5)


def test_paths_hold_numbers_only() -> None:
    report = examples.hostile_job()

    drawn = still_line(report.timelines[2], report.columns, report.course, PERCENT, 100)

    assert re.fullmatch(r"[MLlz0-9 .\-]+", drawn.line + drawn.band)


def test_a_line_ends_where_its_steps_add_up_to() -> None:
    report = examples.gpu_job()

    drawn = still_line(report.timelines[4], report.columns, report.course, PERCENT, 100)

    numbers = [float(n) for n in re.findall(r"-?[\d.]+", drawn.line)]
    x, y = sum(numbers[0::2]), sum(numbers[1::2])
    assert abs(x - 1000) < 1
    assert abs(y - (100 - 45)) < 0.2


def test_a_value_above_the_scale_stays_inside() -> None:
    report = examples.hostile_job()

    drawn = still_line(report.timelines[0], report.columns, report.course, PERCENT, 10)

    assert " -" not in drawn.band.split("l")[0]


def test_one_column_is_drawn_as_wide_as_it_is() -> None:
    report = examples.single_sample()

    drawn = still_line(report.timelines[0], report.columns, report.course, PERCENT, 100)

    assert drawn.line.startswith("M0 88l500 0 500 0")


def test_wedges_cover_the_ring_and_a_whole_is_closed() -> None:
    assert [w.key for w in still_ring(examples.gpu_job().course.phases)] == ["before", "loop", "after"]
    assert "A" in still_ring(examples.cpu_job().course.phases)[0].path
    assert still_ring(examples.single_sample().course.phases) == ()


def test_boxes_lie_inside_the_drawing() -> None:
    drawn = still_boxes(examples.many_nodes().boxes)

    assert len(drawn.boxes) == 128
    assert all(b.left >= 0 and b.left + b.width <= 100 for b in drawn.boxes)
    assert all(0 <= v <= 100 for b in drawn.boxes for v in (b.top, b.median, b.p95, b.upper, b.lower))
    assert len(drawn.borders) == 15
