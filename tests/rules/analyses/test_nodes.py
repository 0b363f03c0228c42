"""Which nodes differ from the others, against a plain reference and by hand."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.analyses.nodes import (
    MAX_COLUMNS,
    MAX_LINES,
    MIN_POINTS,
    NodeComparison,
    node_comparison,
)
from jobrules.analyses.time_lines import columns
from jobrules.measures.quartiles import DEVIATIONS, MAD_SIGMA
from jobrules.measures.sample_weights import gaps
from jobrules.model import SECOND_US, Job, JobInMemory, Metric, Panel, Severity
from jobrules.verdict.phases import job_phases
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_job, make_panel, make_steps

SAMPLES = 400


def ranked(job: Job) -> NodeComparison:
    return node_comparison(job, columns(job), job_phases(job))


def job_of(
    means: dict[str, list[float]], *, metric: Metric = Metric.GPU_UTILIZATION, more: tuple[Panel, ...] = ()
) -> Job:
    """A node a name; a device a number, which is what it shows in all samples."""
    panels = [
        make_panel(metric, np.tile(values, (SAMPLES, 1)), node=node, interval_s=5)
        for node, values in means.items()
    ]
    return JobInMemory(name="job", panels=(*panels, *more))


def alike(n: int, value: float = 70.0) -> dict[str, list[float]]:
    return {f"n{i}": [value, value] for i in range(n)}


def test_up_to_four_nodes_are_all_drawn_and_not_ranked() -> None:
    found = ranked(job_of(alike(4)))

    assert found.drawn == ("n0", "n1", "n2", "n3")
    assert found.ranks == ()


@given(st.lists(st.floats(0, 100, width=16), min_size=5, max_size=24))
def test_the_odd_by_mean_are_those_of_the_definition(means: list[float]) -> None:
    # A sample of 10% at the end, so that no GPU counts as idle or stopped.
    values = {f"n{i}": np.append(np.full(49, value), max(value, 10.0)) for i, value in enumerate(means)}
    job = JobInMemory(
        name="job",
        panels=tuple(
            make_panel(Metric.GPU_UTILIZATION, v.tolist(), node=n, interval_s=1) for n, v in values.items()
        ),
    )

    found = ranked(job)

    exact = {node: statistics.fmean(v) for node, v in values.items()}
    middle = statistics.median(exact.values())
    mad = statistics.median(abs(v - middle) for v in exact.values())
    limit = max(MIN_POINTS[Metric.GPU_UTILIZATION], DEVIATIONS * MAD_SIGMA * mad)
    # What lies on the limit to the last digit may fall to either side.
    assert {r.node for r in found.odd} >= {n for n, v in exact.items() if abs(v - middle) > limit + 1e-9}
    assert {r.node for r in found.similar} >= {n for n, v in exact.items() if abs(v - middle) < limit - 1e-9}
    assert found.median == pytest.approx(middle)
    assert found.limit == pytest.approx(limit)
    for rank in found.ranks:
        assert rank.mean == pytest.approx(exact[rank.node])
        assert rank.against == pytest.approx(exact[rank.node] - middle, abs=1e-9)
    assert sorted(r.node for r in found.ranks) == sorted(values)


def test_the_odd_come_first_the_farthest_before_the_nearer_and_the_alike_in_natural_order() -> None:
    means = alike(12) | {"n3": [60.0, 60.0], "n7": [20.0, 20.0], "n10": [90.0, 90.0]}

    found = ranked(job_of(means))

    assert [r.node for r in found.odd] == ["n7", "n3", "n10"]
    assert [r.severity for r in found.odd] == [Severity.WARNING, Severity.WARNING, Severity.INFO]
    assert [r.node for r in found.similar] == ["n0", "n1", "n2", "n4", "n5", "n6", "n8", "n9", "n11"]
    assert found.odd[0].reasons == ("mean GPU 50.0\u00a0points below the median node",)
    assert found.odd[0].against == -50.0
    assert found.drawn == ("n7", "n3", "n10")


def test_of_alike_nodes_the_middle_and_the_lowest_are_drawn() -> None:
    found = ranked(job_of({f"n{i}": [70.0 + 0.1 * i] for i in range(7)}))

    assert found.odd == ()
    assert found.drawn == ("n3", "n0")


def test_a_gpu_that_never_worked_is_critical_unless_most_nodes_have_one() -> None:
    one = ranked(job_of(alike(6) | {"n2": [70.0, 0.0]}))
    all_nodes = ranked(job_of({f"n{i}": [70.0, 0.0] for i in range(6)}))

    assert one.odd[0].node == "n2"
    assert one.odd[0].severity is Severity.CRITICAL
    assert one.odd[0].reasons[0] == "1 of 2\u00a0GPUs never used"
    assert all_nodes.odd == ()


def test_a_gpu_that_stopped_is_told_with_the_time_of_its_last_work() -> None:
    table = np.full((SAMPLES, 8), 70.0)
    table[200:, 5] = 0.0  # last work at sample 199
    job = job_of(alike(6), more=(make_panel(Metric.GPU_UTILIZATION, table, node="x", interval_s=5),))

    (odd,) = ranked(job).odd

    assert odd.node == "x"
    assert odd.reasons[0] == "1 of 8\u00a0GPUs at 0% after 22:30:35\u00a0UTC"
    assert START_US + 199 * 5 * SECOND_US == 1_700_001_035 * SECOND_US  # 2023-11-14 22:30:35 UTC


def test_a_node_whose_samples_end_is_missing_and_not_stopped() -> None:
    half = make_panel(Metric.GPU_UTILIZATION, np.full((SAMPLES // 2, 2), 70.0), node="x", interval_s=5)

    (odd,) = ranked(job_of(alike(6), more=(half,))).odd

    assert odd.severity is Severity.INFO
    assert odd.reasons == ("no samples for 16\u00a0min 40\u00a0s",)


def test_a_gap_that_all_nodes_have_makes_none_of_them_odd() -> None:
    times = START_US + np.concatenate((np.arange(100), np.arange(300, 500))) * SECOND_US
    panels = tuple(
        make_panel(Metric.GPU_UTILIZATION, np.full(300, 50.0), node=f"n{i}", time_us=times) for i in range(6)
    )
    job = JobInMemory(name="job", panels=panels)

    assert len(gaps(job)) == 6
    assert ranked(job).odd == ()


@pytest.mark.parametrize(
    ("metric", "off", "odd"),
    [
        (Metric.CPU_UTILIZATION, 9.0, False),
        (Metric.CPU_UTILIZATION, 23.0, True),
        (Metric.IO_WAIT, 6.0, True),
        (Metric.HOST_MEMORY, 11.0, True),
    ],
)
def test_other_metrics_make_a_node_odd_from_their_own_least_number_of_points(
    metric: Metric, off: float, odd: bool
) -> None:
    others = tuple(
        make_panel(metric, [40.0 + off * (i == 2)] * SAMPLES, node=f"n{i}", interval_s=5) for i in range(6)
    )

    found = ranked(job_of(alike(6), more=others))

    words = [f"mean {metric.label} {off:.1f}\u00a0points above the median node"]
    assert [list(r.reasons) for r in found.odd] == ([words] if odd else [])


def test_a_node_with_fewer_gpus_or_another_clock_is_told() -> None:
    job = job_of(alike(6) | {"n1": [70.0]})
    late = 90 * SECOND_US
    steps = [
        make_steps(
            [(i, i + 0.5) for i in range(30)], node=f"n{i}", start_us=START_US + (late if i == 4 else 0)
        )
        for i in range(6)
    ]

    found = ranked(replace(job, steps=joined_steps(*steps)))

    assert {r.node: r.reasons for r in found.odd} == {
        "n1": ("1\u00a0GPU sampled, on most nodes 2",),
        "n4": ("clock 1\u00a0min 30\u00a0s ahead, inferred from its steps",),
    }


def test_a_node_known_from_steps_alone_has_no_mean_and_is_not_drawn() -> None:
    job = replace(job_of(alike(6)), steps=make_steps([(0, 1), (1, 2)], node="x"))

    found = ranked(job)

    assert [(r.node, r.mean, r.reasons) for r in found.odd] == [("x", None, ("no samples",))]
    assert found.drawn == ("n0",)


def test_without_gpus_the_cpu_is_ranked() -> None:
    found = ranked(job_of(alike(6) | {"n5": [10.0, 10.0]}, metric=Metric.CPU_UTILIZATION))

    assert found.label == "CPU"
    assert [r.node for r in found.odd] == ["n5"]


def test_small_lines_are_bounded_in_columns_and_in_nodes_and_lie_in_the_band() -> None:
    rng = np.random.default_rng(1)
    means = {f"n{i}": [float(v)] for i, v in enumerate(rng.uniform(69, 71, 40))}

    found = ranked(job_of(means))

    assert found.columns is not None
    assert found.columns.count <= MAX_COLUMNS
    assert [len(r.line) for r in found.ranks] == [found.columns.count] * MAX_LINES + [0] * (40 - MAX_LINES)
    for rank in found.ranks[:MAX_LINES]:
        assert all(
            a <= v <= b
            for a, v, b in zip(found.low, rank.line, found.high, strict=True)
            if a is not None and v is not None and b is not None
        )


def test_the_start_is_told_by_the_samples_before_the_first_step() -> None:
    cpu = np.repeat([10.0, 90.0], SAMPLES // 2)
    panels = (
        make_panel(Metric.CPU_UTILIZATION, cpu, interval_s=1),
        make_panel(Metric.NETWORK_RECEIVE, cpu * 1e6, interval_s=1),
        make_panel(Metric.CPU_UTILIZATION, np.full(SAMPLES, 30.0), interval_s=1, node="algo-2"),
    )
    half = SAMPLES // 2
    job = JobInMemory(name="job", panels=panels, steps=make_steps([(half, half + 1), (half + 1, half + 2)]))

    found = ranked(job).start_up

    assert found is not None
    assert (found.cpu, found.io_wait, found.received) == (20.0, None, 10e6)
    assert ranked(JobInMemory(name="job", panels=panels)).start_up is None


def test_nothing_at_all_is_no_error() -> None:
    assert ranked(JobInMemory(name="job")).drawn == ()


def test_falls_of_the_use_in_the_loop_are_counted_with_their_length() -> None:
    values = np.full(1000, 80.0)
    values[:50] = 0  # before the loop
    values[300:320], values[600:640] = 4.0, 9.9
    values[700:702], values[800:809] = 0.0, 0.0  # too few samples, too short
    job = make_job(gpu=values, steps=make_steps([(25, 480)]))

    use = node_comparison(job, columns(job), job_phases(job)).use

    assert use
    assert (use.label, use.falls, use.fall_us) == ("GPU", 2, 15 * SECOND_US)
    assert use.mean == pytest.approx(values.mean(), abs=0.001)
    phases = {one.phase: one.mean for one in use.phases}
    assert phases["before"] == 0
    # From the first sample in use to the last.
    assert phases["loop"] == pytest.approx(values[50:].mean(), abs=0.1)


def test_a_use_that_falls_all_the_time_has_no_falls() -> None:
    rhythm = np.tile(np.repeat([90.0, 0.0], [40, 12]), 30)
    half = np.repeat([90.0, 0.0], [600, 400])

    for values in (rhythm, half, np.zeros(1000)):
        job = make_job(gpu=values, steps=make_steps([(0, len(values) / 2)]))
        use = node_comparison(job, columns(job), job_phases(job)).use
        assert use
        assert (use.falls, use.fall_us) == (0, 0)
