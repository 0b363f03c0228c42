"""What the section on workload balance says, and that drawing and live plot say the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from bokeh.models import HoverTool, Line, Quad
from bokeh.models.renderers.glyph_renderer import GlyphRenderer

from jobreport.document import Origin, Report
from jobreport.page import sections
from jobreport.page.figures import theme
from jobreport.page.figures.balance import Curve, Histograms, frame, histograms
from jobreport.page.figures.embed import document_json
from jobrules.analyses.balance import Balance
from jobrules.model import JobInMemory, Status
from jobrules.rules.load_balancing import LoadBalancing
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.example_balance import balance, of_panels, panel
from tests.report.page.sections.html import Page

NBSP = "\u00a0"


def page_of(found: Balance | None, **facts: Any) -> Page:
    return Page.of(html_of(found, **facts))


def html_of(found: Balance | None, **facts: Any) -> str:
    return sections.balance(report_of(found, **facts)).html


def report_of(found: Balance | None, **facts: Any) -> Report:
    base = examples.gpu_job()
    told: dict[str, Any] = {"status": Status.PASSED, "evaluated": 90} | facts
    card = examples.card("LoadBalancing", told.pop("status"), **told)
    return replace(base, balance=found, rules=(card,))


def text_of(found: Balance | None, **facts: Any) -> str:
    return page_of(found, **facts).text.replace(NBSP, " ")


def points(path: str) -> tuple[list[float], list[float]]:
    """Places of a path that starts at a point and goes on in relative steps."""
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", path)]
    return np.cumsum(numbers[0::2]).round(1).tolist(), np.cumsum(numbers[1::2]).round(1).tolist()


def renderers(plot: Any, kind: type) -> list[Any]:
    return [r for r in plot.renderers if isinstance(r, GlyphRenderer) and isinstance(r.glyph, kind)]


RAMP = tuple(float(i) / 12.25 for i in range(50))


def test_drawing_and_live_plot_have_the_same_outlines() -> None:
    shown = Histograms(curves=(Curve(name="a", values=RAMP), Curve(name="b", values=RAMP[::-1])), usual=RAMP)
    x, y = frame([shown])

    figure = histograms(shown, (x, y))

    plot: Any = figure.live
    assert (plot.x_range.start, plot.x_range.end) == (x.start, x.end) == (0, 100)
    assert (y.start, y.end) == (0, 4)
    assert (plot.y_range.start, plot.y_range.end) == pytest.approx((0, 4), abs=0.05)
    lines = renderers(plot, Line)
    mean, *drawn = figure.drawing.shapes
    assert [line.name for line in lines] == [shape.series for shape in drawn] == ["gpu-1", "gpu-2"]
    assert [mean.style, *(shape.style for shape in drawn)] == ["n1", "s1", "s2"]
    for line, shape, curve, (token, dash) in zip(lines, drawn, shown.curves, theme.SERIES, strict=False):
        heights = line.data_source.data["y"]
        assert line.glyph.line_color == theme.light()[token]
        assert line.glyph.line_dash == Line(line_dash=dash).line_dash
        assert heights[1:-1:2] == pytest.approx(curve.values)
        xs, ys = points(shape.path)
        assert xs == pytest.approx(10 * line.data_source.data["x"], abs=0.06)
        assert ys == pytest.approx(100 - 100 * heights / 4, abs=0.11)
    assert renderers(plot, Quad)[0].data_source.data["top"] == pytest.approx(RAMP)


def test_a_bin_tells_the_share_of_every_gpu() -> None:
    shown = Histograms(curves=(Curve(name="$$x$$", values=RAMP), Curve(name="b", values=RAMP)))

    plot: Any = histograms(shown, frame([shown])).live

    (hover,) = [tool for tool in plot.tools if isinstance(tool, HoverTool)]
    (bins,) = renderers(plot, Quad)
    assert hover.renderers == [bins]
    assert bins.data_source.data["left"].tolist() == list(range(0, 100, 2))
    assert bins.data_source.data["right"].tolist() == list(range(2, 101, 2))
    assert bins.data_source.data["v1"] == pytest.approx(RAMP)
    assert set(bins.data_source.data["n0"]) == {"$$x$$"}
    # Names of data are fields and never part of the markup.
    assert "$$" not in str(hover.tooltips)
    assert "@v1{0,0.00}" in str(hover.tooltips)


def test_every_color_is_a_token() -> None:
    shown = Histograms(curves=tuple(Curve(name=str(i), values=RAMP) for i in range(4)), usual=RAMP)

    text = document_json("balance", {"live": histograms(shown, frame([shown])).live})

    found = set(re.findall(r"#[0-9a-f]{6}\b", text.split('"handles"')[0]))
    assert {theme.light()[token] for token in ("s1", "s2", "s3", "s4", "line")} <= found
    assert found <= set(theme.tokens())


def test_the_scale_holds_the_fullest_bin_and_one_without_any() -> None:
    full = Histograms(curves=(Curve(name="a", values=(0.0,) * 49 + (100.0,)),))

    assert frame([full])[1].end == 100
    assert frame([])[1].end == 1


def test_few_gpus_share_a_plot_with_a_switch_each() -> None:
    found = of_panels(panel("algo-1", [90, 90, 91, 40]), panel("algo-2", [90, 90]))

    page = page_of(found)

    keys = [a["data-series"] for _, a in page.elements if "data-series" in a]
    assert keys == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert len([i for i in page.ids if i.startswith("live-balance-")]) == 2
    styles = [a["class"] for tag, a in page.elements if tag == "path" and "d" in a and len(str(a["d"])) > 9]
    assert styles == ["s1", "s2", "s3", "s4", "s1", "s2"]


def test_more_gpus_have_a_plot_each_before_the_mean_of_their_node() -> None:
    page = page_of(of_panels(panel("n", [90] * 5 + [40])))

    assert len([i for i in page.ids if i.startswith("live-balance-")]) == 6
    assert "mean of its node" in page.text
    assert [a for _, a in page.elements if a.get("class") == "multiples"]


def test_the_finding_names_the_pair_its_distance_the_threshold_and_the_means() -> None:
    text = text_of(of_panels(panel("n", [90, 90, 40])))

    assert "GPU utilization differs: largest distance 0.83 (gpu0 and gpu2, threshold 0.2)" in text
    assert "means 90.0% and 40.0%" in text
    assert "2 of 3 pairs are above the threshold at the end of the job." in text


def test_different_histograms_of_one_mean_are_active_at_different_times() -> None:
    swinging = panel("n", [50, 50])
    swinging.values[:, 1] = np.where(np.arange(len(swinging.values)) % 2, 10.0, 90.0)

    text = text_of(of_panels(swinging))

    assert "Both means 50.0%: the GPUs are active at different times." in text


def test_similar_gpus_have_no_table() -> None:
    text = text_of(of_panels(panel("n", [90, 90])))

    assert (
        "GPU utilization is similar: largest distance 0.00 (gpu0 and gpu1, threshold 0.2). Share of samples"
        in text
    )
    assert "Table" not in text


def shades(page: Page) -> list[str]:
    """Classes of the cells of the matrices, row by row."""
    styles = [str(a.get("class") or "") for tag, a in page.elements if tag == "td"]
    return [style for style in styles if re.fullmatch(r"h\d|m", style)]


def test_cells_are_shaded_up_to_the_limit_and_marked_above_it() -> None:
    found = of_panels(panel("n", [90, 90, 40]))
    (node,) = found.nodes
    given = replace(node, distances=((0.0, 0.1), (0.2,), ()))
    over = replace(node, distances=((0.199, 0.2001), (0.83,), ()))

    pages = [page_of(replace(found, nodes=(one,))) for one in (given, over)]

    # Rows of the symmetric matrix: (–, a, b), (a, –, c), (b, c, –).
    assert shades(pages[0]) == ["m", "h0", "h3", "h0", "m", "h5", "h3", "h5", "m"]
    assert shades(pages[1]) == ["m", "h5", "h9", "h5", "m", "h9", "h9", "h9", "m"]
    assert pages[0].text.count("▲") == 1  # in the caption alone
    assert pages[1].text.count("▲") == 5
    assert "0.83 above the threshold" in pages[1].text


def test_a_limit_of_0_shades_nothing() -> None:
    found = of_panels(panel("n", [90, 90, 90]))

    page = page_of(replace(found, limit=0.0))

    assert shades(page) == ["m", "h0", "h0", "h0", "m", "h0", "h0", "h0", "m"]


def test_gpus_with_too_few_samples_are_not_judged() -> None:
    text = text_of(
        balance("gpu"), status=Status.NOT_EVALUATED, reason="only 600 of 1001 samples", evaluated=0
    )

    assert "LoadBalancing was not evaluated: only 600 of 1001 samples." in text
    # The first node has 5 GPUs with enough samples, the second 2.
    assert "of 10 pairs on" in text
    assert "not evaluated; means" in text
    assert "similar" not in text
    assert text.count("too few samples") == 1


def test_nothing_is_judged_where_all_have_too_few() -> None:
    short = panel("n", [90, 40, 90])
    found = of_panels(replace(short, values=short.values[:9], time_us=short.time_us[:9]))

    page = page_of(found, status=Status.NOT_EVALUATED, reason="only 9 of 1001 samples")

    assert "No GPU has enough samples to be compared." in page.text
    assert set(shades(page)) == {"m"}
    assert "0.83" in page.text


@pytest.mark.parametrize(
    ("nodes", "told"), [(1, "The node has 1 GPU, so"), (3, "Every node has 1 GPU. GPUs of")]
)
def test_one_gpu_has_nothing_to_balance(nodes: int, told: str) -> None:
    page = page_of(of_panels(*(panel(f"n{i}", [50]) for i in range(nodes))))

    assert told in page.text
    assert "The fullest bin holds" in page.text
    assert "fig-distances" not in page.ids


def test_a_node_of_one_gpu_beside_others_is_named() -> None:
    text = text_of(of_panels(panel("single", [50]), panel("n", [50, 60])))

    assert "single has 1 GPU: nothing to compare." in text
    assert "LoadBalancing: 0 of 90 comparisons exceeded the threshold." in text


def test_what_the_rule_counted_is_told_with_the_end_of_the_job() -> None:
    facts = {
        "status": Status.TRIGGERED,
        "evaluated": 90,
        "violating": 9,
        "severity": 0.1,
        "last_us": examples.START_US,
    }
    apart, alike = (text_of(of_panels(panel("n", levels)), **facts) for levels in ([90, 40], [90, 90]))

    for text in (apart, alike):
        assert "LoadBalancing: 9 of 90 comparisons (10.0%) exceeded the threshold" in text
    assert ["; none at the end of the job." in text for text in (apart, alike)] == [False, True]


def test_a_rule_that_was_not_selected_is_told() -> None:
    report = replace(report_of(balance("gpu")), rules=())

    assert "LoadBalancing was not selected" in Page.of(sections.balance(report).html).text


def test_what_is_left_out_is_counted() -> None:
    page = page_of(of_panels(*(panel(f"n{i}", [90, 90, 90, 90 - 8 * i]) for i in range(6))))

    text = page.text.replace(NBSP, " ")
    assert "Drawn: the 8 of 24 GPUs that differ most from the others of their node." in text
    assert len([i for i in page.ids if i.startswith("live-balance-")]) == 8
    assert "on the 4 of 6 nodes that differ most" in text
    assert "Data: the largest distance on 2 other nodes" in text
    matrices = [a for _, a in page.elements if a.get("class") == "matrix"]
    assert len(matrices) == 4
    # Heads, 24 GPUs; then 4 matrices of a head and 4 rows; then a head and 2 nodes.
    assert len(page.all("tr")) == 25 + 4 * 5 + 3


def test_a_large_node_lists_the_odd_ones() -> None:
    text = text_of(of_panels(panel("n", [90] * 19 + [40])))

    assert "The 16 GPUs that differ most; 4 more are in the data above." in text


def test_nothing_to_show_is_said_with_the_reason() -> None:
    vendor = replace(report_of(None), origin=Origin.DEBUGGER_RESULTS)
    found = of_panels(panel("n", [50]))
    (node,) = found.nodes
    gone = replace(node, gpus=(replace(node.gpus[0], samples=0, mean=None, tenths=(), histogram=()),))

    assert "GPU utilization was not recorded." in page_of(None).text
    assert (
        "SageMaker Debugger's results hold no samples to compare"
        in Page.of(sections.balance(vendor).html).text
    )
    assert "not in the training loop" in page_of(replace(found, nodes=(gone,))).text


def test_hostile_names_stay_text() -> None:
    page = page_of(balance(examples.HOSTILE))

    assert all(attributes.get("type") == "application/json" for attributes, _ in page.scripts)
    assert page.faults == []
    assert page.text.count("<script>alert(1)") > 4


def test_the_limit_is_that_of_the_rule() -> None:
    job = JobInMemory(name="job", panels=(panel("n", [90, 40]),))
    assert "distance 0.83" in LoadBalancing().check(job).headline
    assert "largest distance 0.83 (gpu0 and gpu1, threshold 0.2)" in text_of(of_panels(*job.panels))


def test_alike_nodes_are_drawn_once_and_told_together() -> None:
    found = of_panels(*(panel(f"n{i}", [90 + i / 4, 90, 90]) for i in range(4)))

    page = page_of(found)

    assert len([i for i in page.ids if i.startswith("live-balance-")]) == 1
    assert re.search(r"All 4 nodes are similar \(means 90.0 to 90.[78]%\); drawn: n3, with", page.text)
    assert len([a for _, a in page.elements if a.get("class") == "matrix"]) == 1
    assert "Data: the largest distance on 3 other nodes" in page.text
    # Not where one of them differs.
    other = page_of(of_panels(panel("a", [90, 90, 90]), panel("b", [60, 60, 60])))
    assert len([i for i in other.ids if i.startswith("live-balance-")]) == 2


def test_nodes_of_two_gpus_are_a_sentence() -> None:
    found = of_panels(panel("a", [90, 90]), panel("b", [90, 40]), panel("c", [70, 70]))

    text = text_of(found)

    assert "Distances on 3 nodes with 2 GPUs: 0.00 to 0.83, above the threshold on b." in text
    assert "pair" not in text


def test_the_order_of_many_nodes_is_told() -> None:
    text = text_of(of_panels(*(panel(f"n{i}", [90, 90 - 8 * i]) for i in range(6))))

    assert "Nodes with the largest distance come first." in text
