"""What the sections on the job, its utilization and its nodes say, read back from their HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from jobreport.document import Report
from jobreport.page import sections
from jobrules.analyses.nodes import NodeUtilization, PhaseUtilization
from jobrules.measures.sample_weights import Gap
from jobrules.model import SECOND_US
from jobrules.verdict.phases import JobPhases, Phase, interrupted, missing
from tests.copies import replace
from tests.report.page.figures.embedded import whole
from tests.report.page.sections import example_nodes, examples
from tests.report.page.sections.html import Page, read

START, MINUTE = examples.START_US, examples.MINUTE_US


def text_of(page: Page) -> str:
    return page.text.replace("\u00a0", " ")


def roots(page: Page) -> list[str]:
    ((_, script),) = page.scripts
    return list(json.loads(script)["roots"].values())


def sixteen(odd: dict[str, str], **means: float) -> Report:
    """Sixteen nodes of which some are odd; only these, or the first two, have time lines."""
    base = examples.many_nodes()
    levels = {node.name: 70.0 + 0.1 * i for i, node in enumerate(base.job.nodes)} | means
    found = example_nodes.ranked(levels, odd, START)
    lines = tuple(
        examples.line(name, "gpu_utilization", "GPU", 8, 600, lambda x: 50.0) for name in found.drawn
    )
    usage = tuple(examples.usage(name, "GPU", level) for name, level in levels.items())
    return replace(base, nodes=found, time_lines=lines, utilization=usage)


def rows_of(html: str) -> list[list[str]]:
    """The cells of every table row as text."""
    found = []
    for row in re.findall(r"<tr.*?</tr>", html, flags=re.S):
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.S)
        found.append([re.sub(r"<[^>]+>", "", cell).replace("\u00a0", " ").strip() for cell in cells])
    return found


def test_the_odd_nodes_come_first_the_others_share_a_row_and_all_are_reachable() -> None:
    report = sixteen({"node-07": "1 of 8 GPUs at 0%"}, **{"node-07": 61.4})

    fragment = sections.nodes(report)
    rows = rows_of(fragment.html)

    assert rows[1] == ["node-07", "Warning", "1 of 8 GPUs at 0%", "61.4", "−9.3", ""]
    assert rows[2] == ["15 similar nodes", "Similar", "means 70.0 to 71.5%", "70.8", "−0.7 to +0.8", ""]
    assert [row[0] for row in rows[4:19]] == [f"node-{i:02}" for i in range(16) if i != 7]
    page = read(fragment)
    assert "1 of 16" in text_of(page)
    assert "Drawn: node-07." in text_of(page)
    assert roots(page) == ["live-node0-gpu-utilization"]


def test_small_lines_have_a_hatch_where_not_measured() -> None:
    fragment = sections.nodes(sixteen({"node-07": "no samples for 10 min"}))

    (first, *others) = re.findall(r'<svg class="glyph spark".*?</svg></td>', fragment.html, flags=re.S)

    assert '<rect class="x" x="16.67%" width="16.67%"' in first
    assert first.count("M") == 2  # the line breaks at the hole
    assert all('class="x"' not in other for other in others)
    assert 'href="#nodes-similar"' in first


def test_hostile_names_of_many_nodes_stay_text() -> None:
    base = sixteen({"node-07": "odd"})
    assert base.nodes is not None
    ranks = tuple(replace(rank, node=examples.HOSTILE + rank.node) for rank in base.nodes.ranks)
    lines = tuple(replace(line, node=examples.HOSTILE + line.node) for line in base.time_lines)
    drawn = tuple(examples.HOSTILE + name for name in base.nodes.drawn)

    page = read(
        sections.nodes(replace(base, nodes=replace(base.nodes, ranks=ranks, drawn=drawn), time_lines=lines))
    )

    assert [a.get("type") for a, _ in page.scripts] == ["application/json"]
    assert page.faults == []
    assert "<script>alert(1)" in page.text


def test_received_and_sent_share_a_plot_with_a_key() -> None:
    base = examples.gpu_job()
    lines = tuple(
        examples.line("algo-1", key, label, 1, 600, lambda x: 4e7, "B/s")
        for key, label in (("network_receive", "Network receive"), ("network_transmit", "Network transmit"))
    )

    page = read(sections.nodes(replace(base, time_lines=(*base.time_lines[:5], *lines))))

    assert "Network, MB/s" in text_of(page)
    series = [a["data-series"] for _, a in page.elements if "data-series" in a]
    assert series == ["network_receive", "network_transmit"]
    assert [name for name in roots(page) if "network" in name] == ["live-node0-network-receive"]
    ((_, script),) = page.scripts
    assert all(f'"name": "{name}"' in script or f'"name":"{name}"' in script for name in series)


def test_all_time_axes_of_the_section_are_one() -> None:
    ((_, script),) = read(sections.nodes(examples.hostile_job())).scripts
    doc: Any = whole(script)["doc"]

    ranges = [root["attributes"]["x_range"]["id"] for root in doc["roots"]]

    assert len(ranges) == 3
    assert len(set(ranges)) == 1


@pytest.mark.parametrize("anchor", ["nodes", "devices", "gpu_memory", "cpu_bottlenecks"])
def test_the_time_of_traces_is_marked_where_samples_are_drawn(anchor: str) -> None:
    job = examples.gpu_job()
    start_us = job.job.start_us + 10 * 60 * SECOND_US
    traced = replace(job, phases=replace(job.phases, profiled=((start_us, start_us + SECOND_US),)))

    plain, marked = (getattr(sections, anchor)(one).html for one in (job, traced))

    assert "Solid upright line: PyTorch traces were recorded (first 08:10:00)." in text_of(
        read(getattr(sections, anchor)(traced))
    )
    assert marked.count('class="axis"') > plain.count('class="axis"')


def test_few_nodes_are_told_one_by_one_and_nothing_is_folded() -> None:
    page = read(sections.utilization(examples.hostile_job()))

    assert page.all("details") == []
    assert len(page.all("table")) == 1


def with_gaps(report: Report, gaps: tuple[Gap, ...]) -> JobPhases:
    span_us = report.job.start_us, report.job.end_us
    return replace(
        report.phases,
        gaps=gaps,
        missing=missing(gaps, span_us),
        interrupted=interrupted(gaps, [node.name for node in report.job.nodes], span_us),
    )


def with_mixed_nodes() -> sections.Fragment:
    """Three nodes, of which one has fewer GPUs."""
    base = examples.gpu_job()
    node = base.job.nodes[0]
    others = replace(node, name="b"), replace(node, name="c", gpus=4, interval_s=1.0)
    return sections.summary(replace(base, job=replace(base.job, nodes=(node, *others))))


def with_pauses(*minutes: tuple[str, int, int]) -> sections.Fragment:
    """Two nodes, which were not sampled from one minute to another."""
    base = examples.gpu_job()
    node = base.job.nodes[0]
    base = replace(base, job=replace(base.job, nodes=(node, replace(node, name="b"))))
    gaps = tuple(
        Gap(node=name, start_us=START + start * MINUTE, end_us=START + end * MINUTE)
        for name, start, end in minutes
    )
    return sections.summary(replace(base, phases=with_gaps(base, gaps)))


def with_medians(gpu_p95: float, cpu_p95: float) -> sections.Fragment:
    rows = [
        replace(examples.usage("algo-1", label, 50.0), p50=10.0, p95=p95)
        for label, p95 in (("GPU", gpu_p95), ("CPU", cpu_p95))
    ]
    return sections.utilization(replace(examples.cpu_job(), utilization=tuple(rows), boxes=()))


def phases(*minutes: tuple[str, float, float]) -> JobPhases:
    return JobPhases(
        basis="steps",
        phases=tuple(
            Phase(
                key=key,
                label=key,
                start_us=START + round(a * MINUTE),
                end_us=START + round(b * MINUTE),
                percent=round((b - a) / 0.6, 1),
            )
            for key, a, b in minutes
        ),
        gaps=(),
        first_work_us=None,
        last_work_us=None,
    )


def used(
    means: dict[str, float], *phases: tuple[str, float], falls: int = 0, basis: str = "steps"
) -> sections.Fragment:
    """The section by the means of nodes and phases."""
    base = sixteen({})
    assert base.nodes is not None
    lines = tuple(replace(base.time_lines[0], node=name) for name in means)
    use = NodeUtilization(
        label="GPU",
        means=means,
        mean=sum(means.values()) / len(means),
        phases=tuple(PhaseUtilization(phase=key, mean=mean) for key, mean in phases),
        falls=falls,
        fall_us=10_000_000 if falls else 0,
    )
    found = replace(base.nodes, drawn=tuple(means), use=use)
    course = replace(examples.gpu_job().phases, basis=basis)
    return sections.nodes(replace(base, nodes=found, time_lines=lines, phases=course))


def with_minutes_missing(minutes: dict[str, int]) -> Report:
    """Sixteen nodes, of which some lack so many minutes."""
    base = sixteen({})
    gaps = tuple(Gap(node=name, start_us=START, end_us=START + n * MINUTE) for name, n in minutes.items())
    return replace(base, phases=with_gaps(base, gaps))


SAME = {"a": 60.0}
LONG_START = phases(("before", 0, 40), ("loop", 40, 59), ("after", 59, 60))
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "one node": lambda: used(SAME),
    "phases that differ": lambda: used(SAME, ("before", 2.0), ("loop", 70.0), ("after", 0.0)),
    "work of GPUs": lambda: used(SAME, ("loop", 95.6), ("after", 0.2), basis="gpu"),
    "phases alike": lambda: used(SAME, ("before", 59.0), ("loop", 61.0)),
    "falls": lambda: used(SAME, falls=2),
    "two nodes alike": lambda: used({"a": 60.0, "b": 60.04}),
    "two nodes similar": lambda: used({"a": 60.0, "b": 64.9}),
    "two nodes that differ": lambda: used({"a": 60.0, "b": 40.0}),
    "three nodes that differ": lambda: used({"a": 60.0, "b": 40.0, "c": 50.0}),
    "sixteen alike": lambda: sections.nodes(sixteen({})),
    "use, GPU and CPU low": lambda: with_medians(20, 20),
    "use, sampled in part": lambda: sections.utilization(
        with_minutes_missing({f"node-{i:02}": i for i in range(1, 7)})
    ),
    "summary, a long start": lambda: sections.summary(replace(examples.gpu_job(), phases=LONG_START)),
    "fourteen odd nodes": lambda: sections.nodes(sixteen({f"node-{i:02}": "no samples" for i in range(14)})),
    "summary, nodes that differ": with_mixed_nodes,
    "summary, pauses of one node": lambda: with_pauses(("algo-1", 10, 20)),
    "summary, pauses of both nodes": lambda: with_pauses(("algo-1", 10, 20), ("b", 14, 30)),
    "summary, many gaps": lambda: sections.summary(
        with_minutes_missing({f"node-{i:02}": 2 for i in range(9)})
    ),
}
