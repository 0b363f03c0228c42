from __future__ import annotations

from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.measures.data_loading import Loading
from jobrules.model import (
    SECOND_US,
    Events,
    EventSource,
    Job,
    Lane,
    Metric,
    Status,
)
from jobrules.rules.dataloader import Dataloader
from tests.copies import replace
from tests.jobs import make_events, make_job
from tests.rules.loading_jobs import MULTI, SINGLE, Row, cores, events_of, fetch, job_of, loader, worker


def reference(job: Job, rule: Dataloader) -> tuple[list[int], int, int]:
    """(loaders in each second, windows judged, windows in violation) of the only node, second by second."""
    events = job.events
    found: dict[int, int] = {}
    first, last = job.span_us
    for second in range(first // SECOND_US, last // SECOND_US + 1):
        processes = set()
        settings = set()
        for i in range(len(events)):
            begin, end = int(events.start_us[i]), int(events.end_us[i])
            inside = begin // SECOND_US == second
            if not inside and not (begin < (second + 1) * SECOND_US and end > second * SECOND_US):
                continue
            lane, name = events.lanes[events.lane[i]], events.names[events.name[i]]
            if lane.event_type == "DataLoaderWorker":
                pid = int(events.pid[i])
                processes.add((pid, None) if pid >= 0 else (pid, lane))
            if lane.event_type == "DataLoaderIter":
                before = [
                    one
                    for one in events.loaders
                    if one.rank == lane.rank and name.startswith(one.iterator) and one.start_us <= begin
                ]
                number = max(before, key=lambda one: one.start_us).num_workers if before else None
                if number is None and "SingleProcess" in name:
                    number = 0
                if number is not None:
                    settings.add((lane, max(1, number)))
        loaders = len(processes) or sum(number for _, number in settings)
        if loaders:
            found[second] = loaders
    panel = job.panel("algo-1", Metric.CPU_UTILIZATION)
    assert panel
    judged = violating = 0
    start = first // SECOND_US // 60 * 60
    for k in range((last // SECOND_US - start) // 60 + 1):
        so_far = [n for second, n in found.items() if second < start + 60 * (k + 1)]
        if len(so_far) <= 10 or not any(start + 60 * k <= second < start + 60 * (k + 1) for second in found):
            continue
        judged += 1
        middle = int(median(so_far))
        n = len(panel.devices)
        violating += middle < n * rule.min_threshold / 100 or middle > n * rule.max_threshold / 100
    return list(found.values()), judged, violating


TIMES = st.integers(0, 2000).map(lambda tenths: tenths / 10)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["fetch", "single", "worker"]),
        TIMES,
        st.sampled_from([0, 0.05, 0.9, 3, 40, 130]),
        st.integers(-1, 4),
    ),
    min_size=1,
    max_size=25,
)
LOADERS = st.lists(
    st.tuples(
        st.sampled_from([MULTI, SINGLE]),
        st.sampled_from([None, 0, 1, 3]),
        TIMES,
        st.sampled_from(["33", "34"]),
    ),
    max_size=5,
    unique_by=lambda one: (one[0], one[2], one[3]),
)


@given(ROWS, ROWS, LOADERS, st.integers(1, 6), st.sampled_from([(70, 200), (50, 100), (0, 25), (100, 100)]))
def test_seconds_and_windows_agree_with_the_definition(
    one: list[tuple[str, float, float, int]],
    other: list[tuple[str, float, float, int]],
    loaders: list[tuple[str, int | None, float, str]],
    n_cores: int,
    limits: tuple[float, float],
) -> None:
    def rows(drawn: list[tuple[str, float, float, int]]) -> list[Row]:
        kinds = {"fetch": MULTI, "single": SINGLE}
        return [
            worker(start, start + length, pid)
            if kind == "worker"
            else fetch(start, start + length, kinds[kind], pid)
            for kind, start, length, pid in drawn
        ]

    set_up = [
        loader(number, kind=kind, start_s=start, process=process) for kind, number, start, process in loaders
    ]
    joined = Events.joined([events_of(rows(one), set_up), events_of(rows(other), process="34")])
    rule = Dataloader(min_threshold=limits[0], max_threshold=limits[1])
    job = job_of(joined, n_cores)

    result = rule.check(job)

    seconds, judged, violating = reference(job, rule)
    assert (result.evaluated, result.violating) == (judged, violating)
    assert (result.violations, result.triggered) == (violating, min(1, violating))
    assert result.details["seconds"] == len(seconds)
    assert result.details["dataloaders"] == (int(median(seconds)) if seconds else 0)
    assert result.details["dataloaders_mean"] == pytest.approx(np.mean(seconds) if seconds else 0)
    assert result.datapoints == len(joined)


def test_two_processes_for_eight_cores_are_too_few() -> None:
    rows = [worker(0, 59, 101), worker(0, 59, 102), *(fetch(i, i + 0.1) for i in range(59))]
    events = events_of(rows, [loader(2, pin_memory=False)])
    job = make_job(events=events, gpu=[50.0] * 300, interval_s=1, extra=[cores(8)])

    result = Dataloader().check(job)

    assert (result.status, result.triggered, result.violations, result.datapoints) == (
        Status.TRIGGERED,
        1,
        1,
        61,
    )
    assert result.headline == "2\u00a0loader processes for 8\u00a0cores: too few"
    details = result.details
    assert (details["cores"], details["dataloaders"], details["num_workers"]) == (8, 2, 2)
    assert details["pin_memory"] is False
    assert "prefetch" not in details


def test_fetch_times_do_not_hold_the_lives_of_workers() -> None:
    lengths = [0.1, 0.2, 0.3, 0.4, 0.5]
    rows = [fetch(5 * i, 5 * i + length) for i, length in enumerate(lengths)]
    rows += [worker(0, 60, 101), worker(0, 60, 102), worker(60, 200, 103)]
    rows += [("DataLoaderIterInitialize", f"{MULTI}.__init__", 0.0, 0.5, 33)]

    details = Dataloader().check(job_of(events_of(rows))).details

    times = details["dataloading_time"]
    assert (times["p25"], times["p50"], times["p95"]) == pytest.approx((0.2, 0.3, 0.48))
    assert (len(times["probs"]), len(times["binedges"]), sum(times["probs"])) == (100, 101, 5)
    assert (times["binedges"][0], times["binedges"][-1]) == (0.1, 0.5)
    assert details["worker_lifetime"] == {"n": 3, "p50": 60.0, "max": 140.0, "outliers": 1}
    assert details["initialization"] == {"n": 1, "p50": 0.5, "max": 0.5, "outliers": 0}
    assert details["batch_time"] == {"n": 4, "p50": 5.0, "max": 5.0, "outliers": 0}


@pytest.mark.parametrize("length", [0.0, 0.25])
def test_equal_fetch_times_have_no_negative_axis(length: float) -> None:
    rows = [fetch(i, i + length) for i in range(20)]

    times = Dataloader().check(job_of(events_of(rows, [loader(2)]))).details["dataloading_time"]

    assert sum(times["probs"]) == 20
    assert min(times["binedges"]) >= 0
    assert times["binedges"][0] < times["binedges"][-1]


def test_loaders_are_listed_by_class_and_setting_with_their_fetches() -> None:
    rows = [fetch(i, i + 0.1) for i in range(20)] + [fetch(30 + i, 30.1 + i, SINGLE) for i in range(4)]
    set_up = [
        loader(2, pin_memory=True),
        loader(0, kind=SINGLE, start_s=29, pin_memory=False),
        loader(3, start_s=15, pin_memory=True),
        loader(2, start_s=40, pin_memory=True),
    ]

    details = Dataloader().check(job_of(events_of(rows, set_up))).details

    assert details["loaders"] == [
        {"iterator": MULTI, "num_workers": 2, "pin_memory": True, "fetches": 15},
        {"iterator": MULTI, "num_workers": 3, "pin_memory": True, "fetches": 5},
        {"iterator": SINGLE, "num_workers": 0, "pin_memory": False, "fetches": 4},
    ]
    assert (details["num_workers"], details["pin_memory"]) == (2, True)


def test_the_worst_node_is_reported_and_every_node_listed() -> None:
    rows = [fetch(i, i + 0.1) for i in range(20)]
    events = Events.joined(
        [
            events_of(rows, [loader(8)]),
            events_of(rows, [loader(2, node="algo-2")], node="algo-2"),
            events_of([fetch(i, i + 0.3) for i in range(20)], [loader(1, node="algo-3")], node="algo-3"),
            events_of(rows[:5], [loader(1, node="algo-4")], node="algo-4"),
        ]
    )
    nodes = {"algo-1": 8, "algo-2": 64, "algo-3": 4, "algo-4": 99}
    job = make_job(events=events, extra=[cores(n, node=node) for node, n in nodes.items()])

    result = Dataloader().check(job)

    assert (result.details["node"], result.details["cores"], result.details["dataloaders"]) == (
        "algo-2",
        64,
        2,
    )
    # The times are of the fetches of all nodes, as those of SageMaker Debugger.
    assert sum(result.details["dataloading_time"]["probs"]) == 3 * 20 + 5
    assert result.details["dataloading_time"]["p95"] == pytest.approx(0.3)
    assert {name: block["dataloaders"] for name, block in result.details["per_node"].items()} == {
        "algo-1": 8,
        "algo-2": 2,
        "algo-3": 1,
        "algo-4": 1,
    }
    assert [d.status for d in result.devices] == [
        Status.PASSED,
        Status.TRIGGERED,
        Status.TRIGGERED,
        Status.NOT_EVALUATED,
    ]
    assert (result.evaluated, result.violating, result.violations) == (3, 2, 1)


def pipeline(threads: list[int], *, names: tuple[str, ...] = ("dataset::GetNext",)) -> Events:
    rows = [("DataIterator", name, i, i + 0.5) for name in names for i in range(20) for _ in threads]
    table = make_events(rows, source=EventSource.MODEL, pid=-1)
    return replace(table, thread=np.resize(np.array(threads, np.int64), len(table)))


def test_the_pipeline_of_tensorflow_counts_threads() -> None:
    result = Dataloader().check(job_of(pipeline([7, 8, 9])))

    assert (result.status, result.headline) == (
        Status.PASSED,
        "3\u00a0loader threads for 4\u00a0cores: within 70 to 200% of the cores",
    )
    assert (result.details["prefetch"], result.details["experimental"]) == (False, True)
    assert result.datapoints == 60


def test_a_pipeline_without_threads_is_not_judged() -> None:
    result = Dataloader().check(job_of(pipeline([-1])))

    assert (result.status, str(result.reason)) == (
        Status.NOT_EVALUATED,
        "threads of the data pipeline not recorded",
    )
    assert result.details["dataloading_time"]["p50"] == pytest.approx(0.5)


def test_a_pipeline_tells_its_outermost_calls_and_whether_it_fetched_ahead() -> None:
    inner = pipeline([7])
    outer = make_events(
        [("DataIterator", "IteratorGetNextOp::DoCompute", i, i + 2) for i in range(20)],
        source=EventSource.MODEL,
    )
    ahead = make_events([("Dataset", "tensorflow::data::Prefetch::Next", 0, 1)], source=EventSource.MODEL)

    result = Dataloader().check(job_of(Events.joined([inner, outer, ahead])))

    assert result.details["dataloading_time"]["p50"] == pytest.approx(2.0)
    assert result.details["prefetch"] is True
    assert result.datapoints == 40


def test_events_of_other_nodes_are_left_alone() -> None:
    events = events_of([worker(0, 30, 101)])

    assert Loading.of(events, "algo-2") is None
    assert (
        Loading.of(Events(lanes=(Lane(node="a", rank="", event_type="x", source=EventSource.OTHER),)), "a")
        is None
    )


def test_a_life_of_a_century_costs_no_memory() -> None:
    # A damaged time may stretch one life over 3 billion seconds.
    loading = Loading.of(events_of([worker(0, 3e9, 101), worker(5, 9, 102)]), "algo-1")

    assert loading
    assert loading.busy.loaders.tolist() == [1, 2, 1]
    assert int((loading.busy.stop_s - loading.busy.start_s).sum()) == 3_000_000_000
