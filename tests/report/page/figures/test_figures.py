"""Figures are pure: details in, models out."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest

from jobreport import assets
from jobreport.document import Report
from jobreport.formats import Scale
from jobreport.page.figures import models, theme
from jobreport.page.figures.box_plot import box_plot, extent, labels, slots
from jobreport.page.figures.embed import document_json
from jobreport.page.figures.models import PlainText
from jobreport.page.figures.names import cut_apart
from jobreport.page.figures.over_time import SharedTime
from jobreport.page.figures.time_line import time_line
from tests.report.page.figures import embedded
from tests.report.page.sections import examples


def figures_of(report: Report) -> list[Any]:
    """A ring, boxes, and time lines."""
    boxes, time = box_plot(report.boxes), SharedTime(report.columns)
    assert boxes
    scale = Scale(factor=1.0, unit="%")
    lines = [
        time_line([line], time, report.phases, scale, 100, labels=True).live for line in report.time_lines
    ]
    return [boxes.live, *lines]


def test_boxes_stand_in_slots_whatever_their_number() -> None:
    boxes = [
        examples.box("n", f"gpu{i}", 50.0, basis)
        for i in range(40)
        for basis in ("training loop", "whole job")
    ]

    figure = box_plot(boxes)

    assert figure
    drawing = figure.drawing
    assert (drawing.x.start, drawing.x.end, drawing.y.start, drawing.y.end) == (0, 40, 0, 100)
    assert [shape.path.count("M") for shape in drawing.shapes] == [40, 40]
    assert {rule.style for rule in drawing.rules} == {"box-whole", "box-loop", "median", "tick95"}
    assert all(0 <= place <= 100 for rule in drawing.rules for place in (rule.x1, rule.x2, rule.y1, rule.y2))


def test_the_boxes_of_a_slot_do_not_touch() -> None:
    (slot,) = slots([examples.box("n", "gpu0", 50.0, basis) for basis in ("training loop", "whole job")])

    assert [box.basis for box in slot.boxes] == ["whole job", "training loop"]
    assert (
        0 < extent(0, 0, 2, 1)[0] < extent(0, 0, 2, 1)[1] < extent(0, 1, 2, 1)[0] < extent(0, 1, 2, 1)[1] < 1
    )


def test_many_devices_are_named_by_their_nodes() -> None:
    report = examples.many_nodes()

    named = labels(slots(report.boxes))

    assert [text.strip() for text in named.values()] == [node.name for node in report.job.nodes]


def test_names_on_the_axis_are_plain_text() -> None:
    figure = box_plot(examples.hostile_job().boxes)
    assert figure

    axis: Any = figure.live.below[0]

    assert all(isinstance(label, PlainText) for label in axis.major_label_overrides.values())
    assert "$$x$$" in {label.text for label in axis.major_label_overrides.values()}


def test_no_boxes_no_figure() -> None:
    assert box_plot([]) is None


def test_embedded_json_is_deterministic_and_cannot_end_its_element() -> None:
    figures = [box_plot(examples.hostile_job().boxes) for _ in range(2)]

    first, second = (document_json("gpu", {"live": one.live}) for one in figures if one)

    assert first == second
    assert "<" not in first
    assert list(json.loads(first)["roots"].values()) == ["live"]
    assert next(iter(json.loads(first)["roots"])).startswith("gpu")
    assert examples.HOSTILE in json.dumps(json.loads(first))


@pytest.mark.parametrize(
    "values",
    [
        [1.5, math.inf, -math.inf, math.nan],
        np.array([0.1, np.inf, -np.inf, np.nan], np.float32),
        np.array([[1, 2], [3, 4]], np.uint8),
        np.array([], np.float64),
        np.array([1, -2], np.int64),
        np.array([2**40, -(2**40)], np.int64),
        ["x", "$$x$$", ""],
    ],
    ids=str,
)
def test_the_values_of_a_column_are_read_as_they_were(values: Any) -> None:
    plot = models.Plot()
    plot.add_glyph(models.ColumnDataSource({"x": values}), models.Line(x="x", y="x"))

    (root,) = embedded.loaded(document_json("s", {"e": plot})).roots

    read = root.renderers[0].data_source.data["x"]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(np.asarray(read), np.asarray(values))


def test_the_colors_of_both_schemes_are_apart_from_each_other() -> None:
    for scheme in assets.text("style/tokens.css").split("@media screen and (prefers-color-scheme:dark)"):
        colors = dict(re.findall(r"--([a-z0-9]+):(#[0-9a-f]{6})\b", scheme))
        assert len({colors[token] for token in theme.TOKENS}) == len(theme.TOKENS)


def test_every_color_of_a_figure_is_a_token() -> None:
    text = document_json("all", {str(i): one for i, one in enumerate(figures_of(examples.gpu_job()))})

    found = set(_colors(embedded.whole(text)["doc"]["roots"]))
    assert found
    assert found <= set(theme.tokens())


def _colors(value: object) -> list[str]:
    if isinstance(value, list):
        return [c for item in value for c in _colors(item)]
    if not isinstance(value, dict):
        return []
    found = []
    for key, item in value.items():
        plain = item.get("value") if isinstance(item, dict) else item
        if key == "handles":  # Bokeh's own, for boxes that can be edited; ours cannot
            continue
        if key.endswith("color") and isinstance(plain, str):
            found.append(plain)
        else:
            found += _colors(item)
    return found


def test_names_that_are_shown_alike_are_cut_alike() -> None:
    """A tab, and the two characters that stand for it."""
    assert cut_apart(["a\tb", "a\\tb", "c"]) == ["a\\tb", "a\\tb", "c"]
