"""Figures are pure: details in, models out."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.models import (
    BoxZoomTool,
    HoverTool,
    PanTool,
    PlainText,
    Quad,
    WheelZoomTool,
)
from bokeh.models.annotations.geometry import BoxAnnotation, Span
from bokeh.models.renderers.glyph_renderer import GlyphRenderer

from jobreport.document import Report
from jobreport.figures import theme
from jobreport.figures.box_plot import box_plot, extent, labels, slots
from jobreport.figures.embed import DEFAULTS, document_json
from jobreport.figures.time_line import SharedTime, shared_time, time_line, top_of
from jobreport.formats import Scale
from tests.copies import replace
from tests.report.figures import embedded
from tests.report.sections import examples

PERCENT = Scale(factor=1.0, unit="%")


def shared(report: Report | None = None) -> SharedTime:
    report = report or examples.hostile_job()
    return shared_time(report.columns, report.phases)


def data(time: SharedTime) -> dict[str, Any]:
    return dict(time.source.data)


def test_time_lines_share_one_range_and_one_table() -> None:
    report, time = examples.hostile_job(), shared()

    plots: list[Any] = [time_line([line], time, PERCENT, 100, labels=False) for line in report.time_lines]

    assert len({id(plot.x_range) for plot in plots}) == 1
    sources = {id(r.data_source) for plot in plots for r in plot.renderers if isinstance(r, GlyphRenderer)}
    assert sources == {id(time.source)}


def test_percent_runs_from_0_to_100_and_rates_to_a_round_number() -> None:
    report = examples.gpu_job()
    rate = report.time_lines[-1]
    megabytes = Scale(factor=1e6, unit="MB/s")

    assert top_of([report.time_lines[0]], PERCENT) == 100
    assert top_of([rate], megabytes) == 80
    assert top_of([replace(rate, high=(None,))], megabytes) == 1


def test_a_gap_stays_blank_and_is_hatched_on_its_node_only() -> None:
    report, time = examples.hostile_job(), shared()
    first, _, second = report.time_lines

    hatched: Any = time_line([second], time, PERCENT, 100, labels=False)
    whole: Any = time_line([first], time, PERCENT, 100, labels=False)

    columns = [c for c in data(time).values() if c.dtype == np.float32]
    holes = [int(np.isnan(c).sum()) for c in columns]
    assert sorted(set(holes)) == [0, sum(v is None for v in second.mean)]
    (box,) = [a for a in hatched.center if isinstance(a, BoxAnnotation)]
    assert (box.left, box.right) == (
        report.phases.gaps[0].start_us / 1000,
        report.phases.gaps[0].end_us / 1000,
    )
    assert not [a for a in whole.center if isinstance(a, BoxAnnotation)]


def test_values_are_small_and_equal_columns_are_kept_once() -> None:
    time = shared()
    flat = examples.line("n", "host_memory", "CPU memory", 1, 240, lambda x: 40.0)

    time_line([flat], time, PERCENT, 100, labels=False)

    assert {name: column.dtype.name for name, column in data(time).items()} == {
        "time": "float64",
        "v1": "float32",
        "v2": "uint8",
    }


def test_phase_boundaries_are_lines() -> None:
    report = examples.gpu_job()
    time = shared_time(report.columns, report.phases)

    plot: Any = time_line([report.time_lines[0]], time, PERCENT, 100, labels=False)

    spans = [a.location for a in plot.center if isinstance(a, Span)]
    assert spans == [phase.start_us / 1000 for phase in report.phases.phases[1:]]


def test_no_tool_takes_the_wheel_and_no_logo_is_shown() -> None:
    plot: Any = time_line(
        [examples.gpu_job().time_lines[0]], shared(examples.gpu_job()), PERCENT, 100, labels=False
    )

    assert not plot.select({"type": WheelZoomTool})
    assert {tool.dimensions for tool in plot.tools if isinstance(tool, BoxZoomTool | PanTool)} == {"width"}
    assert plot.toolbar.logo is None
    assert plot.toolbar_location is None


def test_the_tooltip_states_time_zone_and_unit() -> None:
    plot: Any = time_line(
        [examples.gpu_job().time_lines[0]], shared(examples.gpu_job()), PERCENT, 100, labels=False
    )

    (hover,) = [tool for tool in plot.tools if isinstance(tool, HoverTool)]
    tooltips = str(hover.tooltips)

    assert "UTC" in tooltips
    assert "{0,0.0}%" in tooltips
    assert "safe" not in tooltips


def test_a_single_column_can_be_drawn() -> None:
    report = examples.single_sample()

    time = shared_time(report.columns, report.phases)
    plot: Any = time_line([report.time_lines[0]], time, PERCENT, 100, labels=True)

    assert plot.x_range.end > plot.x_range.start


def test_boxes_stand_in_slots_whatever_their_number() -> None:
    boxes = [
        examples.box("n", f"gpu{i}", 50.0, basis)
        for i in range(40)
        for basis in ("training loop", "whole job")
    ]

    plot: Any = box_plot(boxes)

    assert plot is not None
    assert (plot.x_range.start, plot.x_range.end) == (0, 40)
    assert (plot.y_range.start, plot.y_range.end) == (0, 100)
    quads: list[Any] = [
        r for r in plot.renderers if isinstance(r, GlyphRenderer) and isinstance(r.glyph, Quad)
    ]
    assert sum(len(r.data_source.data["left"]) for r in quads) == 80
    assert max(r.data_source.data["right"].max() for r in quads) < 40


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
    plot: Any = box_plot(examples.hostile_job().boxes)
    assert plot is not None

    (axis,) = plot.below

    assert all(isinstance(label, PlainText) for label in axis.major_label_overrides.values())
    assert "$$x$$" in {label.text for label in axis.major_label_overrides.values()}


def test_no_boxes_no_figure() -> None:
    assert box_plot([]) is None


def test_embedded_json_is_deterministic_and_cannot_end_its_element() -> None:
    plots: list[Any] = [box_plot(examples.hostile_job().boxes) for _ in range(2)]

    first, second = (document_json("gpu", {"live": plot}) for plot in plots)

    assert first == second
    assert "<" not in first
    assert list(json.loads(first)["roots"].values()) == ["live"]
    assert next(iter(json.loads(first)["roots"])).startswith("gpu")
    assert examples.HOSTILE in json.dumps(json.loads(first))


def test_embedded_models_have_what_a_document_of_bokeh_writes() -> None:
    report = examples.gpu_job()
    time = shared_time(report.columns, report.phases)
    figures: list[Any] = [box_plot(report.boxes)]
    figures += [time_line([line], time, PERCENT, 100, labels=True) for line in report.time_lines]
    told = embedded.whole(document_json("all", {str(i): figure for i, figure in enumerate(figures)}))

    document = Document()
    for figure in figures:
        document.add_root(figure)

    written = _models(document.to_json(deferred=False)["roots"])
    assert _models(told["doc"]["roots"]) == written
    assert written.total() > 100


def _models(value: Any) -> Counter[tuple[Any, ...]]:
    """Every model that BokehJS does not make itself: its kind, the names of its attributes, its plain values."""
    if isinstance(value, list | tuple):
        return sum((_models(item) for item in value), Counter())
    if not isinstance(value, dict):
        return Counter()
    found = sum((_models(item) for item in value.values()), Counter[tuple[Any, ...]]())
    if value.get("type") == "object" and value["name"] not in DEFAULTS:
        kept = {k: v for k, v in value.get("attributes", {}).items() if not _made(v)}
        plain = {k: None if isinstance(v, dict | list) else v for k, v in kept.items()}
        found[value["name"], *sorted(plain.items())] += 1
    return found


def _made(value: Any) -> bool:
    return isinstance(value, dict) and value.get("name") in DEFAULTS


def test_the_schemes_define_the_same_colors_apart_from_each_other() -> None:
    used = [theme.light()[token] for token in theme.TOKENS]

    assert len(set(used)) == len(used)
    assert len({theme.dark()[token] for token in theme.TOKENS}) == len(theme.TOKENS)
    assert all(theme.light()[token] != theme.dark()[token] for token in theme.light())


def test_every_color_of_a_figure_is_a_token() -> None:
    report = examples.gpu_job()
    time = shared_time(report.columns, report.phases)
    figures = [box_plot(report.boxes)]
    figures += [time_line([line], time, PERCENT, 100, labels=True) for line in report.time_lines]

    text = document_json("all", {str(i): figure for i, figure in enumerate(figures) if figure})

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
