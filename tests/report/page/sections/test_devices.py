"""What the section on devices over time says and draws."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures import theme
from jobreport.page.figures.devices.heat_map import cells, map_figure
from jobreport.page.figures.devices.lines import defaults, lines_figure
from jobreport.page.figures.devices.rows import CORE, GPU, HeatMap, heat_map
from jobreport.page.figures.models import Image, Line, LinearColorMapper
from jobrules.analyses.devices import FULL, DeviceGrid
from jobrules.model import Metric
from tests.copies import replace
from tests.report.page.sections import example_devices, examples
from tests.report.page.sections.html import Page, read


def report(grid: DeviceGrid | None, **changes: Any) -> Report:
    base = examples.gpu_job()
    return replace(base, devices=grid, boxes=(), **changes)


def drawn(grid: DeviceGrid) -> HeatMap:
    return heat_map(grid, examples.gpu_job().phases)


def text(page: Page) -> str:
    return page.text.replace("\u00a0", " ")


def painted(heat: HeatMap) -> dict[str, list[int]]:
    """Row → step of the color in each column, read back from the paths, later ones above."""
    rows = {f"{10 * row.middle:.3g}": row for row in heat.rows}
    canvas = {f"{row.node}/{row.name}": [-1] * heat.columns for row in heat.rows}
    for part in cells(heat):
        for step, path in part.paths:
            for start, y, rest in re.findall(r"M(\d+) ([\d.]+)((?:h\d+(?:m\d+ 0)?)+)", path):
                row, at = rows[y], int(start)
                for length, gap in re.findall(r"h(\d+)(?:m(\d+) 0)?", rest):
                    canvas[f"{row.node}/{row.name}"][at : at + int(length)] = [step] * int(length)
                    at += int(length) + int(gap or 0)
    return canvas


def test_the_static_cells_and_the_live_image_have_the_colors_of_the_values() -> None:
    random = np.random.default_rng(5)
    values = random.integers(0, 101, (3, 60))
    values[1, 10:20] = 255
    values[1:, ::3] = np.where(values[1:, ::3] == 255, 255, values[1:, ::3] + FULL)
    grid = replace(
        example_devices.devices("n"),
        rows=(
            example_devices.rows("n", example_devices.GPU, ["gpu0"], values[:1].tolist()),
            example_devices.rows("n", example_devices.CPU, ["cpu0", "cpu1"], values[1:].tolist()),
        ),
    )
    heat = drawn(grid)
    light = theme.light()

    static = painted(heat)
    found, sources = map_figure(heat, heat.shared_range())
    plot: Any = found.live

    def expected(value: int, core: bool) -> int:
        if value == 255:
            return -1
        return 10 if core and value >= FULL else min(value // 10, 9)

    for i, name in enumerate(("n/gpu0", "n/cpu0", "n/cpu1")):
        assert static[name] == [expected(v, i > 0) for v in values[i].tolist()]
    images = [r for r in plot.renderers if isinstance(r.glyph, Image)]
    assert np.array_equal(np.concatenate(sources[0].data["image"]), values[:1])
    assert np.array_equal(np.concatenate(sources[1].data["image"]), values[1:])
    for renderer, core in zip(images, (False, True), strict=True):
        mapper: LinearColorMapper = renderer.glyph.color_mapper
        tokens = [
            light["lost" if (s := expected(v, core)) == 10 else f"h{s}"] for v in range(202 if core else 101)
        ]
        assert list(mapper.palette) == tokens
        assert (mapper.low, mapper.high) == (-0.5, len(tokens) - 0.5)


def test_without_zoom_samples_are_drawn_as_means_and_lines_with_their_peaks() -> None:
    values = np.tile([0, 100, 50, 10], 900)
    grid = replace(
        example_devices.devices("n", count=3600),
        samples=True,
        rows=(example_devices.rows("n", example_devices.GPU, ["gpu0"], [values.tolist()]),),
    )
    heat = drawn(grid)
    _, sources = map_figure(heat, heat.shared_range())

    assert painted(heat)["n/gpu0"] == [4] * 3600
    assert np.array_equal(sources[0].data["image"][0][0], values)
    lines = lines_figure(heat, heat.shared_range(), heat.choices, sources)
    (drawn_line,) = (shape for shape in lines.drawing.shapes if shape.style == "s1")
    plot: Any = lines.live
    assert np.array_equal(plot.renderers[0].data_source.data["y1"], values)
    # From the lowest to the highest of four, and back.
    assert drawn_line.path.count("-100") == 900
    shown = text(read(sections.devices(report(grid))))
    assert "Color: each sample, in print the mean of 4." in shown


def test_rows_do_not_overlap_and_gpus_stand_above_cores_of_their_node() -> None:
    heat = drawn(example_devices.devices("n", nodes=3))

    ends = [row.top + row.height for row in heat.rows]
    assert all(a <= row.top for a, row in zip(ends, heat.rows[1:], strict=False))
    assert ends[-1] <= heat.units + 1e-9
    assert [(row.node, row.kind) for row in heat.rows] == [
        (f"n-0{i}", kind) for i in range(3) for kind in ["gpu"] * 2 + ["core"] * 4
    ]


def with_boxes(grid: DeviceGrid, *below_10: float, means: tuple[float, ...] = ()) -> Report:
    """Boxes for the GPUs of the grid's first node, which idle in shares of their samples."""
    gpus = next(rows for rows in grid.rows if rows.metric == Metric.GPU_UTILIZATION)
    levels = means or (50.0,) * len(below_10)
    boxes = tuple(
        replace(box, node=gpus.node, device=device, below_10=low, above_90=0.02, mean=mean)
        for device, low, mean in zip(gpus.devices, below_10, levels, strict=True)
        for box in [examples.gpu_job().boxes[0]]
    )
    return replace(report(grid), boxes=boxes)


def with_cores(*shares: float) -> sections.Fragment:
    grid = example_devices.devices("n", cores=len(shares))
    cores = tuple(replace(core, at_limit=share) for core, share in zip(grid.cores, shares, strict=True))
    return sections.devices(report(replace(grid, cores=cores)))


def busy() -> sections.Fragment:
    """Cores at their limit beside GPUs that idle."""
    grid = example_devices.devices("algo-1")
    cores = tuple(replace(core, at_limit=0.71 + 0.01 * i) for i, core in enumerate(grid.cores))
    return sections.devices(with_boxes(replace(grid, cores=cores), 0.718, 0.718))


GRID = example_devices.devices("n")
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "calm": lambda: sections.devices(with_boxes(example_devices.devices("algo-1"), 0.0, 0.0)),
    "busy cores": busy,
    "cores never busy": lambda: with_cores(0.0, 0.0),
    "one of two cores busy": lambda: with_cores(0.1, 0.6),
    "means that differ": lambda: sections.devices(with_boxes(GRID, 0.0, 0.0, means=(23.0, 27.3))),
    "another limit": lambda: sections.devices(report(replace(GRID, limit=30.0))),
    "not recorded": lambda: sections.devices(report(None)),
    "results": lambda: sections.devices(report(None, origin=Origin.DEBUGGER_RESULTS)),
}


def test_of_many_nodes_four_are_drawn_and_every_one_has_a_row() -> None:
    grid = example_devices.devices("node", nodes=16, gpus=8, cores=32, count=300)
    heat = drawn(grid)
    told = text(read(sections.devices(report(grid))))

    assert len(heat.drawn) == 4
    assert [row.node for row in heat.rows if row.kind == "node"] == [f"node-{i:02}" for i in range(16)]
    assert {"node-00", "node-15"} < set(heat.drawn)
    assert sum(row.kind == "gpu" for row in heat.rows) == 4 * 8
    assert not heat.of("core")
    assert "Rows: the mean of 16 nodes, and every device of the 4 nodes" in told
    # Every GPU of every node can still be chosen.
    assert sum(row.what == GPU for row in heat.choices) == 128


def test_many_cores_share_rows_that_show_the_busiest_and_can_be_chosen_one_by_one() -> None:
    grid = example_devices.devices("n", cores=96)
    heat = drawn(grid)
    told = text(read(sections.devices(report(grid))))

    cores = heat.of("core")
    assert len(cores) == 48
    assert cores[0].name == "cpu0–cpu1"
    assert cores[0].values[:31].tolist() == [35] * 30 + [95]
    assert "Up to 2 cores share a row, which shows the busiest." in told
    assert sum(row.what == CORE for row in heat.choices) == 96


def test_lines_are_those_of_the_devices_whose_means_differ_most() -> None:
    grid = example_devices.devices("n", gpus=3)
    heat = drawn(grid)
    chosen = defaults(heat)
    shared = heat.shared_range()
    sources: Any = map_figure(heat, shared)[1]
    plot: Any = lines_figure(heat, shared, chosen, sources).live

    assert [row.name for row in chosen] == ["gpu0", "gpu2"]
    assert plot.x_range is shared
    assert plot.tags == list(sources)
    names = [
        name
        for source in sources
        for one in source.data["name"]
        for name in ([one] if isinstance(one, str) else one)
    ]
    lines: list[Any] = [r for r in plot.renderers if isinstance(r.glyph, Line)]
    assert [names[line.tags[0]] for line in lines if line.tags] == ["gpu0", "gpu2"]
    assert [line.visible for line in lines] == [True, True, False, False]
    values = lines[1].data_source.data["y2"]
    assert np.nanmax(values) == 80
    assert np.isnan(values).sum() == 6
    assert len(names) == len(heat.choices)
    assert "gpu0 (20.0%) and gpu2 (80.0%)" in text(read(sections.devices(report(grid))))


@pytest.mark.parametrize(
    ("gpus", "cores", "expected"), [(1, 4, ["gpu0", "cpu0"]), (0, 4, ["cpu1", "cpu0"]), (1, 0, ["gpu0"])]
)
def test_a_single_gpu_stands_beside_the_busiest_core(gpus: int, cores: int, expected: list[str]) -> None:
    grid = example_devices.devices("n", gpus=gpus, cores=cores)

    assert [row.name for row in defaults(drawn(grid))] == expected
    page = read(sections.devices(report(grid)))
    assert page.faults == []


def test_no_measured_column_at_all_is_still_a_figure() -> None:
    grid = example_devices.devices("n")
    blank = replace(grid, rows=tuple(replace(r, values=bytes([255] * len(r.values))) for r in grid.rows))

    page = read(sections.devices(report(blank)))

    assert page.faults == []
    assert "not measured" in text(page)


def test_hostile_names_are_text_and_the_page_stays_small() -> None:
    page = read(sections.devices(report(example_devices.devices(examples.HOSTILE, nodes=2))))

    assert page.faults == []
    assert len(page.scripts) == 1
    assert "<" not in page.scripts[0][1]
    big = example_devices.devices("node", nodes=16, gpus=8, cores=32, count=300)
    assert len(sections.devices(report(big)).html) < 250_000
