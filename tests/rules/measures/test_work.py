"""When the work of a job begins and ends, against a plain search of every sample."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.measures.work import Work
from jobrules.model import SECOND_US, Job, Metric
from tests.elsewhere import JobElsewhere
from tests.jobs import START_US, joined_steps, make_job, make_panel, make_steps
from tests.rules.verdict.random_jobs import plain_work_us, random_job


def work_s(job: Job) -> tuple[float, float]:
    """Begin and end of the work in seconds after the usual start."""
    work = Work.of(job)
    assert work is not None
    return (work.begin_us - START_US) / SECOND_US, (work.end_us - START_US) / SECOND_US


@given(
    st.lists(st.sampled_from([0.0, 1.0, 3.0, 20.0, 90.0]), min_size=2, max_size=60),
    st.sampled_from([1, 7, 20, 90]),
    st.sampled_from([1, 3, 100]),
)
def test_work_of_one_gpu_is_that_of_a_plain_search(values: list[float], interval_s: int, block: int) -> None:
    job = make_job(gpu=values, interval_s=interval_s)
    times = [START_US + i * interval_s * SECOND_US for i in range(len(values))]

    with patch("jobrules.measures.work._BLOCK", block):
        found = Work.of(job)

    assert (found and found.gpu_us) == plain_work_us(times, values)


@given(st.integers(0, 2**32 - 1))
def test_work_of_a_job_spans_its_gpus_and_its_steps(seed: int) -> None:
    job = random_job(seed)
    used = []
    for panel in job.panels_of(Metric.GPU_UTILIZATION):
        for column in range(len(panel.devices)):
            times, values = (series.tolist() for series in panel.series(column))
            if span := plain_work_us(times, values):
                inside = [v for t, v in zip(times, values, strict=True) if span[0] <= t <= span[1]]
                used.append((sum(inside) / len(inside), span))
    most = max((mean for mean, _ in used), default=0.0)
    spans = [span for mean, span in used if mean >= most / 4 * (1 - 1e-12)]
    if len(job.steps):
        steps = (int(min(job.steps.start_us)), int(max(job.steps.end_us)))
        first, last = job.samples_us or steps
        if not spans or (steps[0] <= last and first <= steps[1]):
            spans.append(steps)

    work = Work.of(job)

    expected = (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None
    assert (work and (work.begin_us, work.end_us)) == expected
    assert Work.of(JobElsewhere(job)) == work


@pytest.mark.parametrize("glance", [1.0, 30.0, 100.0])
def test_a_single_sample_long_before_and_after_is_no_work(glance: float) -> None:
    gpu = [0.0] * 30 + [glance] + [0.0] * 29 + [90.0] * 300 + [0.0] * 40 + [glance] + [0.0] * 20

    assert work_s(make_job(gpu=gpu, interval_s=6)) == (360, 6 * 359)


def test_work_that_begins_slowly_begins_where_it_is_in_use() -> None:
    # A sample of 1% just before the work lies in a minute that is in use, but is no use itself.
    gpu = [0.0] * 100 + [1.0] * 3 + [90.0] * 200

    assert work_s(make_job(gpu=gpu, interval_s=1)) == (103, 302)


def test_a_gpu_that_is_hardly_used_at_all_works_from_first_to_last_use() -> None:
    gpu = [0.0] * 50 + [2.0] * 100 + [0.0] * 50

    assert work_s(make_job(gpu=gpu, interval_s=1)) == (50, 149)


def test_pauses_of_minutes_do_not_end_the_work() -> None:
    gpu = [0.0] * 60 + ([90.0] * 60 + [0.0] * 240) * 5 + [90.0] * 60

    assert work_s(make_job(gpu=gpu, interval_s=1)) == (60, len(gpu) - 1)


def test_steps_and_gpus_count_together_and_say_which_of_them() -> None:
    gpu = [0.0] * 100 + [90.0] * 200 + [0.0] * 100
    cases = (((150, 160), "gpu", (100, 299)), ((50, 350), "steps", (50, 350)), ((50, 160), "both", (50, 299)))
    for steps, basis, expected in cases:
        job = make_job(gpu=gpu, interval_s=1, steps=make_steps([steps]))
        work = Work.of(job)
        assert work is not None
        assert (work.basis, work_s(job), work.whole) == (basis, expected, False)
    assert Work.of(make_job(gpu=[0.0] * 10)) is None
    whole = Work.of(make_job(gpu=[90.0] * 10))
    assert whole is not None
    assert whole.whole


def test_each_node_works_on_its_own_clock() -> None:
    gpu = [0.0] * 100 + [90.0] * 400 + [0.0] * 20
    spans = [(100.0 + i, 100.6 + i) for i in range(300)]
    late = START_US + 90 * SECOND_US
    panels = [
        make_panel(Metric.GPU_UTILIZATION, gpu, node=node, interval_s=1, start_us=start_us)
        for node, start_us in (("a", START_US), ("b", late), ("c", START_US))
    ]
    steps = joined_steps(
        *(make_steps(spans, node=node) for node in "ac"), make_steps(spans, node="b", start_us=late)
    )
    job = make_job(extra=panels, steps=steps)

    work = Work.of(job)

    assert work is not None
    assert work_s(job) == (100, 499)
    assert [work.span_us(node)[0] - START_US for node in "abc"] == [100e6, 190e6, 100e6]
    held = {panel.node: np.flatnonzero(work.holds(panel.time_us, panel.node)) for panel in panels}
    assert {node: (int(rows[0]), int(rows[-1])) for node, rows in held.items()} == dict.fromkeys(
        "abc", (100, 499)
    )


@pytest.mark.parametrize(
    ("loading_s", "again", "start_s"), [(100, False, 100), (100, True, 3), (400, False, 3)]
)
def test_waiting_for_io_that_ends_before_lasting_gpu_use_is_start_up(
    loading_s: int, again: bool, start_s: int
) -> None:
    """A container's image is loaded while something looks at the GPU; the work comes in bursts that are little more."""
    second = np.arange(1800)
    gpu = np.where(second % 10 < 3, 60.0, 0.0)
    loading = second < loading_s
    gpu[loading] = np.where(second[loading] % 4 == 3, 22.0, 0.0)
    io_wait = np.where(loading | (again & (gpu == 0) & (second > 900)), 85.0, 0.5)
    job = make_job(gpu=gpu, io_wait=np.column_stack([io_wait, io_wait * 0]), interval_s=1)

    work = Work.of(job)

    assert work
    assert (work.begin_us - START_US) / SECOND_US == pytest.approx(start_s, abs=2)
