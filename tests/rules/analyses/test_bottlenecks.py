"""Bottlenecks over time, in runs, by core and during what, against plain loops over samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.analyses.bottlenecks import Bottlenecks, BottlenecksOverTime, bottlenecks
from jobrules.analyses.time_lines import Columns, columns
from jobrules.measures.sample_weights import pauses
from jobrules.model import SECOND_US, EventSource, Job, Metric, Panel, Steps
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.io_bottleneck import IOBottleneck
from tests.copies import replace
from tests.elsewhere import JobElsewhere
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps

NAN = float("nan")
GRID = Columns(start_us=START_US, width_us=60 * SECOND_US, count=10)


def found(
    job: Job, rule: CPUBottleneck | IOBottleneck | None = None, grid: Columns | None = None
) -> Bottlenecks:
    told = bottlenecks(job, rule or CPUBottleneck(), grid or columns(job))
    assert told is not None
    return told


# Against the definition.

PARTS = ("busy", "partly", "idle_unsaturated", "idle_no_core_sample", "bottleneck")
VALUE = st.sampled_from([NAN, 0.0, 5.0, 10.0, 50.0, 90.0, 90.5, 95.0, 100.0])


def panel_of(metric: Metric, rows: list[list[float]], at: list[int], node: str, prefix: str) -> Panel | None:
    """A panel without empty rows or columns, its snapshots numbered as the ticks."""
    table = np.array(rows)
    there = ~np.isnan(table).all(axis=1)
    devices = ~np.isnan(table).all(axis=0)
    if not there.any():
        return None
    ticks = np.flatnonzero(there)
    panel = make_panel(
        metric, table[there][:, devices], node=node, time_us=[at[i] for i in ticks], prefix=prefix
    )
    names = tuple(f"{prefix}{i}" for i in np.flatnonzero(devices))
    return replace(panel, snapshot=ticks, devices=names)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Nodes with two GPUs and three cores, sensors that fail, pauses, and steps on some."""
    panels: list[Panel] = []
    steps: list[Steps] = []
    for i in range(draw(st.integers(1, 6))):
        node = f"algo-{i + 1}"
        n = draw(st.integers(1, 14))
        gaps = draw(st.lists(st.sampled_from([20, 20, 20, 30, 700]), min_size=n, max_size=n))
        at = (START_US + np.cumsum(gaps) * SECOND_US).tolist()
        for metric, width, prefix in ((Metric.GPU_UTILIZATION, 2, "gpu"), (Metric.CPU_UTILIZATION, 3, "cpu")):
            row = st.lists(VALUE, min_size=width, max_size=width)
            made = panel_of(metric, draw(st.lists(row, min_size=n, max_size=n)), at, node, prefix)
            panels += [made] if made else []
        if draw(st.booleans()):
            ends = sorted(draw(st.lists(st.integers(0, 400), min_size=2, max_size=8, unique=True)))
            steps.append(make_steps(list(pairwise(ends)), node=node))
    return make_job(extra=panels, steps=joined_steps(*steps) if steps else None)


def reference(job: Job, grid: Columns) -> dict[str, tuple[int, Counter[str], bool, dict[int, Any]]]:
    """Of each node low snapshots without a core sample, parts of its GPU samples, if these are of the loop, columns."""
    told = {}
    for name in job.nodes:
        gpu, cpu = job.panel(name, Metric.GPU_UTILIZATION), job.panel(name, Metric.CPU_UTILIZATION)
        if gpu is None or cpu is None:
            continue
        cores_at = {int(s): row for s, row in zip(cpu.snapshot, cpu.values, strict=True)}
        rows = []
        for t, snapshot, values in zip(gpu.time_us.tolist(), gpu.snapshot.tolist(), gpu.values, strict=True):
            low = any(v < 10 for v in values)
            hit = low and any(v > 90 for v in cores_at.get(snapshot, []))
            rows.append((t, values, low, snapshot in cores_at, hit))
        loop = job.loop_us(name)
        inside = [row for row in rows if loop and loop[0] <= row[0] < loop[1]]
        parts = Counter[str]()
        for _, values, _, sampled, hit in inside or rows:
            for v in values:
                if v < 10:
                    parts[
                        "bottleneck" if hit else "idle_unsaturated" if sampled else "idle_no_core_sample"
                    ] += 1
                elif not np.isnan(v):
                    parts["busy" if v > 90 else "partly"] += 1
        # A column holds its snapshots, or the one before it where no pause lies between.
        known = [(t, hit) for t, _, low, sampled, hit in rows if sampled or not low]
        per: dict[int, list[bool]] = defaultdict(list)
        for t, hit in known:
            per[(t - grid.start_us) // grid.width_us].append(hit)
        values_at: dict[int, tuple[float, int]] = {
            c: (100 * sum(hits) / len(hits), len(hits)) for c, hits in per.items()
        }
        times = [t for t, _ in known]
        for (a, b), paused in zip(pairwise(times), pauses(np.array(times, np.int64)).tolist(), strict=True):
            if not paused:
                first = (a - grid.start_us) // grid.width_us
                for c in range(first + 1, (b - grid.start_us) // grid.width_us):
                    values_at[c] = (values_at[first][0], 1)
        told[name] = (
            sum(low and not sampled for _, _, low, sampled, _ in rows),
            parts,
            bool(inside),
            values_at,
        )
    return told


@given(jobs())
def test_counts_are_those_of_the_rule_and_the_others_those_of_the_definition(job: Job) -> None:
    grid = columns(job)
    wanted, rule = reference(job, grid), CPUBottleneck()
    told, result = bottlenecks(job, rule, grid), rule.check(job)

    assert bottlenecks(JobElsewhere(job), rule, grid) == told
    if told is None:
        assert not wanted
        return
    counted = result.more["per_node"]
    assert (told.snapshots, told.low, told.bottlenecks) == (
        result.datapoints,
        result.details["low_gpu_utilization"],
        result.violations,
    )
    parts = {part.key: part.count for part in told.split.parts}
    assert sum(parts.values()) == told.snapshots
    assert (parts["unknown"], parts["bottleneck"]) == (told.no_core_sample, told.bottlenecks)
    assert sum(part.percent for part in told.split.parts) == pytest.approx(100 if told.snapshots else 0)
    assert told.split.parts[-1].percent == round(100 * told.bottlenecks / max(1, told.snapshots), 1)
    assert {one.node for one in told.nodes} == set(wanted)
    held = [one.bottleneck / one.samples for one in told.nodes]
    assert held == sorted(held, reverse=True)
    for one in told.nodes:
        blind, parts, inside, _ = wanted[one.node]
        assert (one.snapshots, one.bottlenecks) == tuple(
            counted[one.node][k] for k in ("datapoints", "bottlenecks")
        )
        assert one.no_core_sample == blind
        assert [getattr(one, k) for k in PARTS] == [parts[k] for k in PARTS]
        assert one.in_loop is inside
        assert sum(one.percents) == pytest.approx(100 if one.samples else 0)
        assert [100 * parts[k] / max(1, one.samples) for k in PARTS] == pytest.approx(one.percents, abs=0.1)
    cores = {
        node: {k: round(100 * v, 1) for k, v in some.items()} for node, some in result.more["cores"].items()
    }
    assert {one.node: {c.core: c.percent for c in one.cores} for one in told.cores}.items() <= cores.items()
    longest = result.more["longest"]
    assert [{k: getattr(run, k) for k in longest[0]} for run in told.runs] == longest
    if not told.bottlenecks:
        assert told.courses == ()
        return
    assert (told.courses[0].node == "") is (len(wanted) > 4)
    assert len(told.courses) <= 4
    for course in told.courses:
        above = [v for v in course.percent if v is not None and v > 50]
        assert course.above_us == len(above) * grid.width_us
        assert course.known_us == sum(v is not None for v in course.percent) * grid.width_us
        per_node = {node: found[3] for node, found in wanted.items()}
        assert course.percent == pytest.approx(_wanted_course(course, per_node, grid), abs=0.051)


def _wanted_course(
    course: BottlenecksOverTime, per_node: dict[str, Any], grid: Columns
) -> list[float | None]:
    chosen = [per_node[course.node]] if course.node else list(per_node.values())
    row: list[float | None] = []
    for c in range(grid.count):
        there = [one[c] for one in chosen if c in one]
        weight = sum(n for _, n in there)
        row.append(sum(v * n for v, n in there) / weight if there else None)
    return row


# Details.


def stuck(n: int, *, node: str = "algo-1", of: int | None = None, **more: Any) -> Job:
    """``n`` bottlenecks and then none, a snapshot every 30 s."""
    whole = of or n
    return make_job(
        gpu=[0.0] * n + [95.0] * (whole - n), cpu=[95.0] * whole, node=node, interval_s=30, **more
    )


def joined(*many: Job) -> Job:
    return make_job(extra=[panel for job in many for panel in job.panels])


def test_the_io_rule_looks_at_io_wait_by_its_own_limit() -> None:
    job = make_job(gpu=[0.0] * 4, cpu=[99.0] * 4, io_wait=[50.0, 50.1, 80.0, 0.0])

    io = found(job, IOBottleneck())

    assert (io.key, io.core_above, io.bottlenecks) == ("io", 50.0, 2)
    assert found(job, IOBottleneck(io_threshold=60.0)).bottlenecks == 1
    assert found(job).bottlenecks == 4


def test_the_limits_are_those_of_the_rule() -> None:
    job = make_job(gpu=[40.0, 40.0], cpu=[60.0, 20.0])

    told = found(job, CPUBottleneck(gpu_threshold=50.0, cpu_threshold=55.0, threshold=20.0))

    assert (told.gpu_below, told.core_above, told.limit, told.bottlenecks) == (50.0, 55.0, 20.0, 1)


def test_a_node_without_core_samples_is_named_and_not_counted() -> None:
    blind = make_panel(Metric.GPU_UTILIZATION, [0.0] * 5, node="algo-2", interval_s=30)

    told = found(stuck(4, extra=[blind]))

    assert (told.without_cores, told.snapshots) == (("algo-2",), 4)


def test_a_node_that_the_rule_does_not_judge_says_why() -> None:
    assert found(stuck(4)).nodes[0].reason == "1,001 samples needed, 4 recorded"
    assert found(stuck(4), CPUBottleneck(patience=2)).nodes[0].reason == ""


def test_a_pause_is_not_a_share_of_0() -> None:
    times = [START_US + s * SECOND_US for s in [*range(0, 60, 2), *range(360, 420, 2)]]
    gpu = make_panel(Metric.GPU_UTILIZATION, [0.0] * 60, time_us=times)
    cpu = make_panel(Metric.CPU_UTILIZATION, [99.0] * 30 + [10.0] * 30, time_us=times, prefix="cpu")

    (course,) = found(make_job(extra=[gpu, cpu]), grid=GRID).courses

    assert course.percent == (100.0, None, None, None, None, None, 0.0, None, None, None)


def test_a_course_says_from_when_to_when_it_was_above_the_limit() -> None:
    """Low from 20 s to 110 s; a snapshot every 10 s, columns of 60 s, the first of which is 67% bottlenecks."""
    gpu = make_panel(Metric.GPU_UTILIZATION, [95.0] * 2 + [0.0] * 9 + [95.0] * 13, interval_s=10)
    cpu = make_panel(Metric.CPU_UTILIZATION, [99.0] * 24, interval_s=10, prefix="cpu")
    job, grid = make_job(extra=[gpu, cpu]), replace(GRID, width_us=60 * SECOND_US, count=4)

    def told(limit: float) -> tuple[Any, ...]:
        (one,) = found(job, CPUBottleneck(threshold=limit), grid=grid).courses
        spans = (one.start_us, one.end_us, one.above_start_us, one.above_end_us)
        return one.above_us / SECOND_US, *(us and (us - START_US) / SECOND_US for us in spans)

    assert told(50.0) == (120, 20, 110, 20, 110)
    assert told(70.0) == (60, 20, 110, 60, 110)
    assert told(90.0) == (0, 20, 110, None, None)


def test_of_many_nodes_all_together_come_first_and_then_the_three_worst() -> None:
    jobs = [stuck(n, of=10, node=f"algo-{n}") for n in (1, 2, 3, 4, 5, 6)]

    told = found(joined(*jobs))

    assert [one.node for one in told.courses] == ["", "algo-6", "algo-5", "algo-4"]
    # In the first column, a minute and two snapshots of each, one of twelve is none.
    assert told.courses[0].percent[0] == round(100 * 11 / 12, 1)
    assert [one.node for one in told.cores] == ["algo-6", "algo-5", "algo-4", "algo-3"]
    assert told.more_cores == 2


def test_lists_are_bounded() -> None:
    jobs = [stuck(2, of=4, node=f"algo-{n}") for n in range(20)]

    told = found(joined(*jobs))

    assert (len(told.nodes), told.more_nodes) == (16, 4)
    assert (len(told.runs), len(told.courses), len(told.cores)) == (10, 4, 4)
    assert told.snapshots == 80


def test_cores_beyond_sixteen_are_counted() -> None:
    table = np.full((20, 20), 20.0)
    for core in range(19):
        table[: core + 1, core] = 95.0

    (one,) = found(make_job(gpu=[0.0] * 20, cpu=table)).cores

    assert (len(one.cores), one.ever, one.count, one.bottlenecks) == (16, 19, 20, 19)
    assert (one.cores[0].core, one.cores[0].percent) == ("cpu18", 100.0)


# The steps that ran.

ONE_RUN = make_job(gpu=[95.0, 95.0, 0.0, 0.0, 95.0], cpu=[99.0] * 5, interval_s=30)  # 60 to 120 s


UNNUMBERED = replace(make_steps([(50, 70)], phase="EVAL"), number=np.array([-1]))


@pytest.mark.parametrize(
    ("tables", "place", "spans"),
    [
        # Those that overlap it.
        ([make_steps([(0, 60), (60, 90), (90, 110), (115, 140), (140, 150)])], "in", [("TRAIN", 1, 3)]),
        ([make_steps([(80, 90)]), UNNUMBERED], "in", [("EVAL", None, None), ("TRAIN", 0, 0)]),
        # In no step.
        ([make_steps([(0, 10), (20, 60), (120, 130)])], "between", [("TRAIN", 1, 1), ("TRAIN", 2, 2)]),
        ([make_steps([(120, 130), (130, 140)])], "before", [("TRAIN", 0, 0)]),
        ([make_steps([(0, 10), (10, 60)])], "after", [("TRAIN", 1, 1)]),
        # Steps of another node say nothing.
        ([make_steps([(60, 120)], node="algo-9")], "", []),
    ],
)
def test_a_run_has_a_place_among_steps(
    tables: list[Steps], place: str, spans: list[tuple[str, int | None, int | None]]
) -> None:
    (run,) = found(replace(ONE_RUN, steps=joined_steps(*tables))).runs

    assert run.place == place
    assert [(one.mode, one.first, one.last) for one in run.steps] == spans


# What ran.


TENSORS = [(f"tensor{i}", "ALLREDUCE", 10.0 * i, 10.0 * i + 5) for i in range(20)]


@pytest.mark.parametrize(
    ("rows", "more", "shares"),
    [
        # Nested, parallel and repeated events count once: 0 to 60 s and 190 to 200 s.
        (
            [("load", "a", 0, 50), ("load", "b", 10, 40), ("load", "a", 40, 60), ("load", "c", 190, 200)],
            {},
            {"load": (60.0, 10.0)},
        ),
        # From 80 to 120 s: 10 of 20 s during, 5 of 20 s otherwise.
        ([("op", "a", 80, 90), ("op", "a", 115, 120)], {}, {"op": (50.0, 25.0)}),
        ([("op", "a", 10, 90)], {}, {}),
        # Lives of processes are no class; the last event of Horovod ends at 195 s: 50 of the 95 s after 100 s.
        ([("DataLoaderWorker", "w", 0, 200)], {}, {}),
        (TENSORS, {"source": EventSource.HOROVOD}, {"Horovod": (50.0, 52.6)}),
        ([("op", "a", 0, 200)], {"node": "algo-2"}, {}),
    ],
)
def test_an_event_type_counts_the_recorded_time_in_which_any_of_its_events_ran(
    rows: list[tuple[str, str, float, float]], more: dict[str, Any], shares: dict[str, tuple[float, float]]
) -> None:
    """Bottlenecks from 0 to 100 s, none from 100 to 200 s."""
    job = make_job(
        gpu=[0.0] * 10 + [95.0] * 10, cpu=[99.0] * 20, interval_s=10, events=make_events(rows, **more)
    )

    assert {one.name: (one.during, one.otherwise) for one in found(job).ran} == shares


def test_a_snapshot_holds_until_the_next_one() -> None:
    """The bottleneck at 10 s ends at 15 s, where a snapshot comes early, and not after an interval of 10 s."""
    times = [START_US + s * SECOND_US for s in (0, 10, 15, 25, 35)]
    gpu = make_panel(Metric.GPU_UTILIZATION, [0.0, 0.0, 95.0, 95.0, 95.0], time_us=times)
    cpu = make_panel(Metric.CPU_UTILIZATION, [99.0] * 5, time_us=times, prefix="cpu")
    events = make_events([("op", "a", 0, 3), ("op", "a", 15, 21), ("op", "a", 44, 45)])

    (one,) = found(make_job(extra=[gpu, cpu], events=events)).ran

    assert (one.during, one.otherwise) == (20.0, round(100 * 7 / 30, 1))


def test_the_eight_that_differ_most_are_told_in_order() -> None:
    rows = [row for i in range(10) for row in ((f"op{i}", "a", 0, 10 * (i + 1)), (f"op{i}", "a", 150, 200))]
    job = make_job(gpu=[0.0] * 10 + [95.0] * 10, cpu=[99.0] * 20, interval_s=10, events=make_events(rows))

    told = found(job)

    points = [one.during - one.otherwise for one in told.ran]
    assert points == sorted(points, reverse=True)
    assert told.more_ran == 2
    # op4 does not differ; op3 and op5 do by 10 points, and the name decides.
    assert {one.name for one in told.ran} == {f"op{i}" for i in range(10)} - {"op4", "op5"}
