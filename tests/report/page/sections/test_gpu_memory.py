"""What the section on GPU memory says, and that both of its drawings say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures import gpu_memory as figures
from jobreport.page.figures.chart import Drawing
from jobreport.page.figures.over_time import SharedTime
from jobrules.analyses.gpu_memory import GPUMemory, MemoryLine, MemoryUse, Trend
from jobrules.analyses.time_lines import Columns
from jobrules.measures.sample_weights import Gap
from jobrules.verdict.phases import JobPhases
from tests.copies import replace
from tests.report.page.figures import embedded
from tests.report.page.sections import example_data_loading, examples
from tests.report.page.sections.example_data_loading import gpu_memory
from tests.report.page.sections.html import Page

EXAMPLE = example_data_loading.memory_use("algo-1", "gpu0", 600)
FASTER = Trend(points_per_hour=12.0, agreement=0.97, steady=True)
GROWS = Trend(points_per_hour=0.5, agreement=0.97, steady=True)


def page_of(found: MemoryUse | None, **facts: object) -> Page:
    report: Report = replace(examples.gpu_job(), gpu_memory=found, **facts)
    return Page.of(sections.gpu_memory(report).html)


def with_gpus(*gpus: GPUMemory) -> MemoryUse:
    return replace(EXAMPLE, gpus=gpus, rises=())


def shown(found: MemoryUse | None, **changes: Any) -> sections.Fragment:
    return sections.gpu_memory(replace(examples.gpu_job(), gpu_memory=found, **changes))


def changed(**changes: Any) -> sections.Fragment:
    return shown(replace(EXAMPLE, **changes))


def without_jump(**facts: Any) -> sections.Fragment:
    """GPUs by a fact of each."""
    rows = [dict(zip(facts, values, strict=True)) for values in zip(*facts.values(), strict=True)]
    return shown(with_gpus(*(gpu_memory("algo-1", f"gpu{i}", **one) for i, one in enumerate(rows))))


def alike() -> sections.Fragment:
    return changed(
        gpus=tuple(gpu_memory(f"n{i}", "gpu0", mean=60.0 + i, p95=70.0) for i in range(3)),
        bands=(replace(EXAMPLE.bands[0], node="n2", devices=1),),
        lines=(MemoryLine(node="n2", device="gpu0", mean=EXAMPLE.lines[0].mean),),
        rises=(),
        alike=True,
    )


FLAT = Trend(points_per_hour=-0.04, agreement=0.0, steady=False)
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "jumps": lambda: shown(EXAMPLE),
    "another window": lambda: changed(window="10s", limit=7.0),
    "growth": lambda: shown(with_gpus(gpu_memory("n", "a", trend=GROWS), gpu_memory("n", "b", trend=FASTER))),
    "growth of activity": lambda: shown(
        with_gpus(gpu_memory("algo-1", "gpu0", trend=FASTER, p95=97.0, loop_p95=20.0, loop_p5=1.0))
    ),
    "no growth": lambda: shown(
        with_gpus(gpu_memory("n", "a"), gpu_memory("n", "b", trend=FLAT), gpu_memory("n", "c", trend=None))
    ),
    "no jump": lambda: without_jump(rise=(1.0,), events=(0,)),
    "no jump of two": lambda: without_jump(rise=(1.0, 0.0), p95=(73.0, 80.0)),
    "quantiles of the loop": lambda: without_jump(
        loop_p5=(20.0, 1.0, 5.0, 90.0), loop_p95=(28.0, 50.0, 55.5, 95.0)
    ),
    "alike": alike,
    "left out": lambda: changed(rises_left_out=1, gpus_left_out=12),
    "not recorded": lambda: shown(None),
    "results": lambda: shown(None, origin=Origin.DEBUGGER_RESULTS),
}


def node(**facts: object) -> figures.NodeMemory:
    made = figures.NodeMemory(key="n0", band=EXAMPLE.bands[0], lines=EXAMPLE.lines, rises=EXAMPLE.rises)
    return replace(made, **facts)


COLUMNS = Columns(start_us=examples.START_US, width_us=6_000_000, count=600)


def drawn(found: figures.NodeMemory, phases: JobPhases) -> Drawing:
    return figures.memory(found, SharedTime(COLUMNS), phases).drawing


def test_lines_lie_over_the_band_and_jumps_are_triangles() -> None:
    drawing = drawn(node(), examples.gpu_job().phases)

    assert [shape.series for shape in drawing.shapes] == ["n0-band", "n0-s1", "n0-s2"]
    # Two levels of the band: equal neighbors are one step.
    assert drawing.shapes[0].path == "M0 40h500v-14h500v17h-1000z"
    (triangle,) = drawing.words
    assert (triangle.x, triangle.y) == pytest.approx((100 * 600 / 3600, 100 - 72))
    assert len(drawing.rules) == 2


def test_what_was_not_measured_is_hatched_and_no_line_crosses_it() -> None:
    found = example_data_loading.memory_use("algo-1", "gpu0", 600, range(100, 200))
    gap = Gap(node="algo-1", start_us=COLUMNS.start_us + 600_000_000, end_us=COLUMNS.start_us + 1_200_000_000)
    other = replace(gap, node="algo-2")
    course = replace(examples.gpu_job().phases, gaps=(gap, other))

    drawing = drawn(node(band=found.bands[0], lines=found.lines), course)

    (area,) = drawing.areas
    assert (area.x, area.width) == pytest.approx((100 / 6, 100 / 6))
    assert [shape.path.count("M") for shape in drawing.shapes[1:]] == [2, 2]
    report = replace(examples.gpu_job(), gpu_memory=found, phases=course)
    assert "Hatched: not measured" in sections.gpu_memory(report).html


def test_more_gpus_than_lines_add_their_mean() -> None:
    band = replace(EXAMPLE.bands[0], devices=8)

    drawing = drawn(node(band=band), examples.gpu_job().phases)
    text = page_of(replace(EXAMPLE, bands=(band,))).text

    assert [shape.series for shape in drawing.shapes] == ["n0-band", "n0-mean", "n0-s1", "n0-s2"]
    assert "mean of 8 GPUs" in text


def test_four_of_more_nodes_are_drawn() -> None:
    gpus = tuple(gpu_memory(f"n{i}", "gpu0") for i in range(6))
    bands = tuple(replace(EXAMPLE.bands[0], node=f"n{i}", devices=1) for i in range(4))
    lines = tuple(MemoryLine(node=f"n{i}", device="gpu0", mean=EXAMPLE.lines[0].mean) for i in range(4))

    page = page_of(replace(EXAMPLE, gpus=gpus, bands=bands, lines=lines, rises=()))

    assert "Drawn: 4 of 6 GPUs on 4 of 6" in page.text
    assert len([name for name in page.ids if name.startswith("live-gpu-memory")]) == 4
    series = [a["data-series"] for a in page.all("span") if "data-series" in a]
    # One key switches the lines of all nodes, whose GPUs have the same names.
    assert series == ["n-s1", "n-band"]
    ((_, text),) = page.scripts
    assert text.count('"name":"n-s1"') == 4
    assert len(page.all("tr")) == 7


def test_nodes_with_other_gpus_have_a_key_each() -> None:
    bands = tuple(replace(EXAMPLE.bands[0], node=f"n{i}", devices=1) for i in range(2))
    lines = tuple(MemoryLine(node=f"n{i}", device=f"gpu{i}", mean=EXAMPLE.lines[0].mean) for i in range(2))
    gpus = tuple(gpu_memory(f"n{i}", f"gpu{i}") for i in range(2))

    page = page_of(replace(EXAMPLE, gpus=gpus, bands=bands, lines=lines, rises=()))

    series = [a["data-series"] for a in page.all("span") if "data-series" in a]
    assert series == ["n0-s1", "n0-band", "n1-s1", "n1-band"]


def test_a_job_that_covers_no_time_has_a_table_and_no_figure() -> None:
    report = replace(examples.single_sample(), gpu_memory=replace(EXAMPLE, rises=()))

    page = Page.of(sections.gpu_memory(report).html)

    assert page.all("figure") == []
    assert page.scripts == []
    assert len(page.all("table")) == 1


@pytest.mark.parametrize("name", [examples.HOSTILE, "$$x$$", "@v1{0}", "$index"])
def test_hostile_names_stay_text(name: str) -> None:
    page = page_of(example_data_loading.memory_use(name, name, 600))

    assert page.faults == []
    ((_, text),) = page.scripts
    assert "<" not in text
    assert name in page.text
    tooltips = [
        model["attributes"]["tooltips"]
        for model in _models(embedded.whole(text))
        if model.get("name") == "HoverTool"
    ]
    (tooltip,) = tooltips
    assert name not in tooltip
    assert "Solid line" in tooltip


def _models(value: object) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        own = [value] if value.get("type") == "object" else []
        return own + [model for one in value.values() for model in _models(one)]
    return [model for one in value for model in _models(one)] if isinstance(value, list) else []
