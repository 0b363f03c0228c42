from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.analyses.close_ups import MAX_BARS, MAX_SAMPLES, CloseUp
from jobrules.analyses.close_ups import close_ups as all_moments
from jobrules.model import SECOND_US, Events, EventSource, Job, JobInMemory, Metric, Panel
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.io_bottleneck import IOBottleneck
from tests.copies import replace
from tests.elsewhere import JobElsewhere
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps

MINUTE_US = 60 * SECOND_US


def moments(job: Job) -> tuple[CloseUp, ...]:
    return all_moments(job, CPUBottleneck(), IOBottleneck())


def by_key(job: Job) -> dict[str, CloseUp]:
    return {one.key: one for one in moments(job)}


def span_s(moment: CloseUp) -> tuple[float, float]:
    return (moment.start_us - START_US) / SECOND_US, (moment.end_us - START_US) / SECOND_US


STEPS = make_steps([(2.0 * i, 2.0 * i + 1.5) for i in range(100)])


def test_the_first_ten_and_the_last_thirty_steps_of_the_first_worker_are_chosen() -> None:
    other = make_steps([(500.0 + i, 501.0 + i) for i in range(50)], rank="4", phase="EVAL")
    chosen = by_key(make_job(steps=joined_steps(make_steps([(3.0, 400.0)], rank="10"), other, STEPS)))

    assert list(chosen) == ["first-steps", "last-steps"]
    # Worker 4 comes before 10 and 33 in natural order.
    assert span_s(chosen["first-steps"]) == (500.0, 510.0)
    assert span_s(chosen["last-steps"]) == (520.0, 550.0)
    assert [chosen[key].steps for key in chosen] == [10, 30]
    assert chosen["last-steps"].names[0] == "EVAL 20"


def test_of_several_nodes_the_one_whose_events_come_first_is_shown() -> None:
    spans = {"a": (5, 8), "b": (4, 9), "c": (4, 7)}
    events = [make_events([("Work", "work", *span)], node=node) for node, span in spans.items()]
    job = JobInMemory(name="job", events=Events.joined(events))

    (first,) = moments(JobElsewhere(job))

    assert (first.key, first.node, span_s(first)) == ("first-events", "c", (4.0, 7.0))
    assert moments(job) == (first,)


def test_a_stretch_that_nearly_repeats_another_is_left_out() -> None:
    few = make_steps([(2.0 * i, 2.0 * i + 1.5) for i in range(10)])
    some = make_steps([(2.0 * i, 2.0 * i + 1.5) for i in range(12)])

    assert list(by_key(make_job(steps=few))) == ["first-steps"]
    assert list(by_key(make_job(steps=some))) == ["first-steps", "last-steps"]


def test_the_longest_step_is_named_with_its_whole_duration() -> None:
    spans = [(0.0, 1.0), (1.0, 4.0), (4.0, 5.0)]

    (moment,) = moments(make_job(steps=make_steps(spans)))

    assert (moment.longest_step, moment.longest_us) == ("TRAIN 1", 3 * SECOND_US)


@given(st.data())
def test_the_worst_minute_is_that_of_a_plain_count(data: st.DataObject) -> None:
    n = data.draw(st.integers(20, 60))
    levels = st.lists(st.sampled_from([0.0, 5.0, 50.0, 95.0]), min_size=n, max_size=n)
    flags = st.lists(st.booleans(), min_size=n, max_size=n)
    gpu, core, wait = (np.array(data.draw(levels)) for _ in range(3))
    there = {"cpu": np.array(data.draw(flags)), "io": np.array(data.draw(flags))}
    given_cores = {"cpu": (Metric.CPU_UTILIZATION, core), "io": (Metric.IO_WAIT, wait)}
    panels = []
    for kind, (metric, values) in given_cores.items():
        there[kind][0] = True
        kept = np.flatnonzero(there[kind])
        whole = make_panel(metric, values, interval_s=7, prefix="cpu")
        panels.append(
            replace(
                whole, time_us=whole.time_us[kept], snapshot=whole.snapshot[kept], values=whole.values[kept]
            )
        )
    limits = {
        "cpu": (data.draw(st.sampled_from([3.0, 10.0])), data.draw(st.sampled_from([40.0, 90.0]))),
        "io": (data.draw(st.sampled_from([3.0, 10.0])), data.draw(st.sampled_from([50.0, 90.0]))),
    }
    rules = (
        CPUBottleneck(gpu_threshold=limits["cpu"][0], cpu_threshold=limits["cpu"][1]),
        IOBottleneck(gpu_threshold=limits["io"][0], io_threshold=limits["io"][1]),
    )
    worked = np.flatnonzero(gpu > 0)
    first, last = (int(worked[0]), int(worked[-1])) if len(worked) else (0, n - 1)

    job = make_job(gpu=gpu, interval_s=7)
    (found,) = all_moments(replace(job, panels=(*panels, *job.panels)), *rules) or (None,)

    def minute_of(i: int) -> int:
        return (START_US + i * 7 * SECOND_US) // MINUTE_US

    hits: dict[int, list[set[str]]] = {}
    sums: dict[int, list[float]] = {}
    for i in range(first, last):
        sums.setdefault(minute_of(i), []).append(gpu[i])
        kinds = {
            kind
            for kind, (low, high) in limits.items()
            if there[kind][i] and gpu[i] < low and given_cores[kind][1][i] > high
        }
        if kinds:
            hits.setdefault(minute_of(i), []).append(kinds)
    if not sums:
        assert found is None
        return
    usual = sum(gpu[first:last]) / (last - first)
    if hits:
        best = max(hits, key=lambda minute: (len(hits[minute]), -minute))
    else:
        fullest = max(len(values) for values in sums.values())
        full = {
            m: round(sum(values) / len(values), 6) for m, values in sums.items() if 2 * len(values) >= fullest
        }
        best = min(full, key=lambda minute: (full[minute], minute))
        if full[best] > round(usual, 3) - 5:
            assert found is None
            return
    ends = [START_US + i * 7 * SECOND_US for i in (first, last)]
    span = max(best * MINUTE_US, ends[0]), min((best + 1) * MINUTE_US, ends[1])
    if span[0] == span[1]:
        assert found is None
        return
    assert found is not None
    assert found.worst is not None
    assert (found.start_us, found.end_us, found.worst.hits) == (*span, len(hits.get(best, ())))
    assert found.worst.usual == pytest.approx(usual, abs=1e-3)
    assert not found.worst.in_loop
    counted = {
        one.kind: (one.snapshots, one.gpu_threshold, one.core_threshold) for one in found.worst.bottlenecks
    }
    assert counted == {
        kind: (count, *limits[kind])
        for kind in limits
        if (count := sum(kind in kinds for kinds in hits.get(best, ())))
    }
    if hits:
        inside = [i for i in range(first, last) if minute_of(i) == best]
        assert found.worst.snapshots == sum(bool(there["cpu"][i] or there["io"][i]) for i in inside)


def test_the_worst_minute_lies_in_the_training_loop_and_on_the_worst_node() -> None:
    def node(name: str, low_from: int, low_to: int) -> list[Panel]:
        seconds = np.arange(300)
        gpu = np.where((seconds < 60) | ((seconds >= low_from) & (seconds < low_to)), 0.0, 90.0)
        return [
            make_panel(Metric.CPU_UTILIZATION, np.full(300, 99.0), node=name, interval_s=1),
            make_panel(Metric.GPU_UTILIZATION, gpu, node=name, interval_s=1),
        ]

    steps = make_steps([(70.0 + i, 70.9 + i) for i in range(200)], node="a")
    job = JobInMemory(name="job", panels=(*node("a", 130, 140), *node("b", 190, 210)), steps=steps)

    worst = by_key(job)["worst-minute"]

    assert by_key(JobElsewhere(job))["worst-minute"] == worst
    assert worst.worst
    assert worst.worst.in_loop
    assert (worst.node, span_s(worst)) == ("b", (180.0, 240.0))
    assert (worst.worst.hits, worst.worst.snapshots) == (20, 60)
    assert worst.lanes == ()


def test_samples_are_raw_where_few_and_keep_every_peak_where_many() -> None:
    values = np.random.default_rng(5).uniform(10, 60, 3000).round(1)
    values[1234], values[2345] = 99.5, 0.5
    few, many = (
        make_job(gpu=values[:count], interval_s=0.25, steps=make_steps([(0.0, count * 0.25)]))
        for count in (400, 3000)
    )

    raw, reduced = (moments(job)[0] for job in (few, many))

    times, percents = raw.curves[0].points(raw)
    assert times.tolist() == [START_US + 250_000 * i for i in range(400)]
    assert percents == pytest.approx(values[:400])
    times, percents = reduced.curves[0].points(reduced)
    rows = ((times - START_US) // 250_000).astype(int)
    assert len(times) <= MAX_SAMPLES
    assert percents == pytest.approx(values[rows])
    for part in range(200):
        inside = (rows >= 15 * part) & (rows < 15 * part + 15)
        column = values[15 * part : 15 * part + 15]
        assert (percents[inside].min(), percents[inside].max()) == pytest.approx((column.min(), column.max()))
    assert reduced.curves[0].samples == 3000
    assert reduced.curves[0].mean == pytest.approx(values.mean(), abs=1e-3)


def test_a_pause_of_the_sampler_breaks_the_curve() -> None:
    times = [START_US + s * SECOND_US for s in (*range(10), *range(200, 210))]
    job = replace(make_job(), panels=(make_panel(Metric.GPU_UTILIZATION, [50.0] * 20, time_us=times),))

    moment = moments(replace(job, steps=make_steps([(0.0, 209.5)])))[0]

    assert [(a - START_US, b - START_US) for a, b in moment.unmeasured_us] == [
        (9 * SECOND_US, 200 * SECOND_US)
    ]
    at, percents = moment.curves[0].points(moment)
    assert np.flatnonzero(np.isnan(percents)).tolist() == [10]
    assert at[10] == START_US + 9 * SECOND_US


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 300)), min_size=1, max_size=60))
def test_bars_are_the_events_with_those_in_one_cell_joined(spans: list[tuple[int, int]]) -> None:
    # A stretch of 4 000 ms, so that a cell is 8 ms.
    rows = [("work", f"n{length % 2}", start / 1000, (start + length) / 1000) for start, length in spans]
    job = make_job(events=make_events(rows), steps=make_steps([(0.0, 4.0)]))

    (moment,) = moments(job)

    expected = []
    cells: dict[int, list[tuple[int, int]]] = {}
    for start, length in spans:
        if max(start + length - 0.001, start) // 8 > start // 8:
            expected.append((start, length, length % 2, 1))
        else:
            cells.setdefault(start // 8, []).append((start, length))
    for joined in cells.values():
        first = min(start for start, _ in joined)
        kinds = {length % 2 for _, length in joined}
        length = max(start + length for start, length in joined) - first
        expected.append((first, length, kinds.pop() if len(kinds) == 1 else -1, len(joined)))
    table = moment.table[moment.table[:, 0] == 1]
    names = {name: i for i, name in enumerate(moment.names)}
    number = {names.get("n0", -2): 0, names.get("n1", -2): 1, -1: -1}
    found = [
        ((start - START_US) // 1000, length // 1000, number[name], events)
        for _, start, length, name, events in table.tolist()
    ]
    assert sorted(found) == sorted(expected)
    covered = {ms for start, length in spans for ms in range(start, start + length)}
    lane = moment.lanes[1]
    assert (lane.events, lane.total_us, lane.covered_us) == (
        len(spans),
        1000 * sum(length for _, length in spans),
        1000 * len(covered),
    )
    assert (moment.cell_us > 0) == (len(expected) < len(spans))


def test_bars_stay_few_and_stand_for_every_event() -> None:
    rng = np.random.default_rng(3)
    starts = np.sort(rng.uniform(0, 100, 60_000))
    rows = [
        (f"lane{i % 20}", "x", s, s + 0.0001 + 0.3 * (i % 50 == 0)) for i, s in enumerate(starts.tolist())
    ]
    job = make_job(events=make_events(rows), steps=make_steps([(0.0, 101.0)]))

    (moment,) = moments(job)

    assert len(moment.table) <= MAX_BARS
    assert moment.cell_us > 101_000
    assert (len(moment.lanes), moment.lanes_left) == (13, 8)
    for i, lane in enumerate(moment.lanes):
        assert moment.table[moment.table[:, 0] == i, 4].sum() == lane.events
    begin, length = moment.table[:, 1], moment.table[:, 2]
    assert (begin >= moment.start_us).all()
    assert (begin + length <= moment.end_us).all()


def test_lanes_are_those_of_the_worker_whose_steps_are_shown_then_those_with_most_time() -> None:
    def of(worker: str, count: int, lasted: float) -> Events:
        return make_events([(f"p{i}", "x", 0.0, lasted - 0.01 * i) for i in range(count)], rank=worker)

    job = make_job(events=Events.joined([of("1", 4, 1.0), of("2", 9, 3.0), of("7", 2, 2.0)]))
    job = replace(job, steps=make_steps([(0.0, 5.0)], rank="1"))

    (moment,) = moments(job)

    assert [lane.rank for lane in moment.lanes] == ["1"] * 5 + ["2"] * 8
    assert [lane.event_type for lane in moment.lanes[:3]] == ["Steps", "p0", "p1"]
    assert moment.lanes_left == 3


def test_every_worker_whose_rows_are_shown_has_its_steps_above_them() -> None:
    def of(worker: str, count: int) -> Events:
        return make_events([(f"p{i}", "x", 0.0, 2.0 - 0.1 * i) for i in range(count)], rank=worker)

    tables = [make_steps([(0.0, 2.0), (2.0, 3.0)], rank=worker) for worker in ("1", "2", "10")]
    job = make_job(events=Events.joined([of("1", 2), of("10", 1)]), steps=joined_steps(*tables))
    crowd = make_job(
        events=Events.joined([of(str(i), 1) for i in range(30)]),
        steps=joined_steps(*(make_steps([(0.0, 3.0)], rank=str(i)) for i in range(30))),
    )

    (moment,) = moments(job)

    told = [(lane.rank, lane.event_type) for lane in moment.lanes]
    assert told == [("1", "Steps"), ("1", "p0"), ("1", "p1"), ("10", "Steps"), ("10", "p0")]
    table = moment.table
    for i in (0, 3):
        rows = table[table[:, 0] == i]
        assert [moment.names[name] for name in rows[:, 3].tolist()] == ["TRAIN 0", "TRAIN 1"]
        assert ((rows[:, 1] - START_US) // SECOND_US).tolist() == [0, 2]
    assert (moment.steps, moment.lanes_left) == (2, 0)
    (many,) = moments(crowd)
    assert (len(many.lanes), many.lanes_left) == (16, 22)


def test_horovods_tensors_share_a_lane_and_lives_of_loaders_are_only_counted() -> None:
    tensors = [(f"gradient{i}", "ALLREDUCE", 1.0, 2.0) for i in range(5)]
    python = [
        ("DataLoaderWorker", "life", 0.0, 9.0),
        ("DataLoaderIter", "next", 1.0, 2.0),
        ("Step:ModeKeys.TRAIN", "step", 0.0, 9.0),
    ]
    events = Events.joined([make_events(python), make_events(tensors, source=EventSource.HOROVOD)])

    (moment,) = moments(make_job(events=events, steps=make_steps([(0.0, 9.0)])))

    whole = moment.end_us - moment.start_us
    assert [lane.percent for lane in moment.lanes] == [
        round(100 * lane.covered_us / whole, 1) for lane in moment.lanes
    ]
    told = [(lane.event_type, lane.kind, lane.events, lane.covered_us) for lane in moment.lanes]
    assert told == [
        ("Steps", "steps", 1, 9 * SECOND_US),
        ("Horovod", "work", 5, SECOND_US),
        ("DataLoaderIter", "waiting", 1, SECOND_US),
    ]
    assert (moment.lanes_left, moment.lifetimes) == (0, 1)


@pytest.mark.parametrize(
    ("event_type", "kind"),
    [
        ("AllReduce", "communication"),
        ("all_gather", "communication"),
        ("Barrier", "communication"),
        ("Reduce", "work"),
    ],
)
def test_what_ranks_wait_for_one_another_in_is_communication(event_type: str, kind: str) -> None:
    events = make_events([(event_type, "x", 1.0, 2.0)])

    (moment,) = moments(make_job(events=events, steps=make_steps([(0.0, 9.0)])))

    assert [(lane.event_type, lane.kind) for lane in moment.lanes[1:]] == [(event_type, kind)]


def test_events_are_cut_at_the_stretch_and_those_of_other_nodes_left_out() -> None:
    inside = [("work", "x", -5.0, 1.0), ("work", "x", 4.0, 99.0), ("work", "x", 50.0, 60.0)]
    events = Events.joined([make_events(inside), make_events([("work", "x", 2.0, 3.0)], node="other")])

    moment = by_key(make_job(events=events, steps=make_steps([(0.0, 5.0)])))["first-steps"]

    bars = moment.table[moment.table[:, 0] == 1, 1:3]
    assert ((bars - [START_US, 0]) // SECOND_US).tolist() == [[0, 1], [4, 1]]


def test_without_steps_the_first_minute_of_events_is_chosen() -> None:
    events = make_events([("a", "x", 0.0, 1.0), ("a", "x", 100.0, 101.0)])
    short = make_events([("a", "x", 0.0, 1.0)])

    (long,) = moments(make_job(events=events))
    (whole,) = moments(make_job(events=short))

    assert (long.key, span_s(long), span_s(whole)) == ("first-events", (0.0, 60.0), (0.0, 1.0))
    assert [lane.events for lane in long.lanes] == [1]


def test_samples_alone_give_the_worst_minute_and_nothing_gives_none() -> None:
    samples = make_job(gpu=[50.0] * 200 + [20.0] * 100, interval_s=1)

    (moment,) = moments(samples)

    assert moment.worst
    assert (moment.key, moment.lanes, moment.bars, moment.worst.hits) == ("worst-minute", (), b"", 0)
    assert span_s(moment) == (240.0, 299.0)
    assert moments(make_job(cpu=[99.0] * 100)) == ()
    assert moments(make_job()) == ()
    assert moments(make_job(gpu=[5.0])) == ()


def test_steps_that_last_no_time_give_no_stretch() -> None:
    assert moments(make_job(steps=make_steps([(1.0, 1.0)]))) == ()


def test_a_stretch_of_hours_keeps_its_places() -> None:
    steps = make_steps([(0.0, 7200.0)])

    (moment,) = moments(make_job(steps=steps, events=make_events([("a", "x", 3600.0, 3601.0)])))

    assert moment.tick_us > 1
    start, length = moment.table[1, 1:3].tolist()
    assert start == pytest.approx(START_US + 3600 * SECOND_US, abs=moment.tick_us)
    assert length == pytest.approx(SECOND_US, abs=2 * moment.tick_us)
