from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.measures import framework_time
from jobrules.measures.framework_time import breakdown_of, self_us, summed, weights_by_lane
from jobrules.measures.intervals import Intervals, union
from jobrules.model import Events, EventSource, Lane
from tests.jobs import START_US

#: (lane, name, start, end, process, thread), microseconds after the start.
Row = tuple[Lane, str, int, int, int, int]


def lane_of(
    phase: str, *, node: str = "algo-1", worker: str = "33", source: EventSource = EventSource.PYTHON
) -> Lane:
    return Lane(node=node, rank=worker, event_type=phase, source=source)


def breakdown(events: Events, weight_us: np.ndarray | None = None) -> dict[str, object]:
    """The block, from each node by itself."""
    nodes = sorted({lane.node for lane in events.lanes}, reverse=True)
    sums = []
    for node in nodes:
        mine = events.in_lanes(lambda lane, node=node: lane.node == node)  # type: ignore[misc]
        sums.append(summed(events.of_node(node), None if weight_us is None else weight_us[mine]))
    return breakdown_of(sums)


CPU, GPU = lane_of("cpu_functions"), lane_of("gpu_functions-dev:0")


def table(rows: Sequence[Row]) -> Events:
    rows = sorted(rows, key=lambda row: (row[2], row[3]))
    lanes = list(dict.fromkeys(row[0] for row in rows))
    names = list(dict.fromkeys(row[1] for row in rows))
    return Events(
        lanes=tuple(lanes),
        names=tuple(names),
        lane=np.array([lanes.index(row[0]) for row in rows], np.int32),
        name=np.array([names.index(row[1]) for row in rows], np.int32),
        start_us=np.array([row[2] for row in rows], np.int64) + START_US,
        end_us=np.array([row[3] for row in rows], np.int64) + START_US,
        step=np.full(len(rows), -1, np.int64),
        pid=np.array([row[4] for row in rows], np.int64),
        thread=np.array([row[5] for row in rows], np.int64),
    )


def thread(*rows: tuple[str, int, int], lane: Lane = CPU) -> Events:
    return table([(lane, name, start, end, 1, 1) for name, start, end in rows])


def owners(events: Events) -> list[set[int]]:
    """Of each event the microseconds that belong to it: each to the last started one open in its thread."""
    owned: list[set[int]] = [set() for _ in range(len(events))]
    threads = defaultdict(list)
    for i in range(len(events)):
        key = events.lanes[events.lane[i]], int(events.pid[i]), int(events.thread[i])
        threads[key].append((int(events.start_us[i]), int(events.end_us[i]), i))
    for rows in threads.values():
        for t in range(min(start for start, *_ in rows), max(end for _, end, _ in rows)):
            is_open = [(start, -end, i) for start, end, i in rows if start <= t < end]
            if is_open:
                owned[max(is_open)[2]].add(t)
    return owned


def own_us(events: Events) -> list[int]:
    own: list[int] = self_us(events, events.duration_us).tolist()
    return own


LANES = (
    *[CPU] * 6,
    GPU,
    lane_of("cpu_functions", node="algo-2"),
    lane_of("cpu_functions", worker="34"),
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(LANES),
        st.sampled_from("abc"),
        st.integers(0, 15),
        st.integers(0, 12),
        st.sampled_from([1, 1, 1, 2]),
        st.sampled_from([-1, -1, -1, 7]),
    ).map(lambda row: (row[0], row[1], row[2], row[2] + row[3], row[4], row[5])),
    max_size=25,
)
MOMENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=6)


@st.composite
def nested_rows(draw: st.DrawFn) -> list[Row]:
    """Events of some threads, each within the one before it or after its end."""
    rows: list[Row] = []

    def fill(lane: Lane, pid: int, start: int, end: int, depth: int) -> None:
        cuts = sorted(draw(st.lists(st.integers(start, end), max_size=4)))
        for a, b in zip(cuts[::2], cuts[1::2], strict=False):
            rows.append((lane, draw(st.sampled_from("abc")), a, b, pid, 1))
            if depth:
                fill(lane, pid, a, b, depth - 1)

    for lane in draw(st.lists(st.sampled_from(LANES), max_size=3, unique=True)):
        fill(lane, draw(st.integers(1, 2)), 0, 40, 3)
    return rows


def union_of(spans: Sequence[tuple[int, int]]) -> Intervals:
    spots = np.array(spans, np.int64).reshape(-1, 2)
    return union(START_US + spots[:, 0], START_US + spots[:, 0] + spots[:, 1])


def test_of_two_that_start_together_the_shorter_one_is_inside() -> None:
    assert own_us(thread(("inner", 0, 4), ("outer", 0, 10))) == [4, 6]


def test_of_two_equal_ones_the_later_row_is_inside() -> None:
    assert own_us(thread(("a", 0, 4), ("b", 0, 4))) == [0, 4]


def test_what_overlaps_in_part_takes_the_time_from_its_start_on() -> None:
    assert own_us(thread(("a", 0, 10), ("b", 5, 15), ("c", 12, 13))) == [5, 9, 1]
    assert own_us(thread(("a", 0, 20), ("b", 5, 10), ("c", 8, 15))) == [10, 3, 7]


def test_threads_processes_and_lanes_do_not_take_time_from_each_other() -> None:
    rows: list[Row] = [(CPU, "a", 0, 10, 1, 1), (CPU, "b", 2, 3, 1, 2), (CPU, "c", 2, 3, 2, 1)]

    assert own_us(table([*rows, (GPU, "d", 2, 3, 1, 1)])) == [10, 1, 1, 1]


@given(ROWS)
def test_self_time_agrees_with_a_walk_through_the_microseconds(rows: list[Row]) -> None:
    events = table(rows)

    assert own_us(events) == [len(owned) for owned in owners(events)]


@given(nested_rows())
def test_self_time_of_nested_events_agrees_with_the_walk(rows: list[Row]) -> None:
    events = table(rows)

    assert own_us(events) == [len(owned) for owned in owners(events)]


def test_nested_threads_are_not_walked_event_by_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(framework_time, "_uncovered")
    events = thread(("a", 0, 30), ("b", 0, 10), ("c", 10, 30), ("d", 10, 10), ("e", 12, 30), ("f", 40, 41))

    assert dict(zip([events.names[i] for i in events.name], own_us(events), strict=True)) == {
        "a": 0,
        "b": 10,
        "c": 2,
        "d": 0,
        "e": 18,
        "f": 1,
    }


@given(ROWS, MOMENTS, MOMENTS)
def test_weights_are_what_an_event_overlaps_the_moments_of_its_node(
    rows: list[Row], first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    events = table(rows)
    spans = {"algo-1": first, "algo-2": second}

    moments_of = {node: union_of(some) for node, some in spans.items()}

    weights = weights_by_lane(events, lambda lane: moments_of[lane.node])

    for i, weight in enumerate(weights.tolist()):
        moments = {t for a, n in spans[events.lanes[events.lane[i]].node] for t in range(a, a + n)}
        inside = range(int(events.start_us[i]) - START_US, int(events.end_us[i]) - START_US)
        assert weight == len(moments.intersection(inside))


def test_lanes_without_moments_weigh_nothing() -> None:
    events = table([(CPU, "a", 0, 10, 1, 1), (GPU, "b", 0, 10, 1, 1)])
    weights = weights_by_lane(events, lambda lane: union_of([(2, 3)]) if lane is GPU else None)

    assert weights.tolist() == [0, 3]
    assert weights_by_lane(Events(), lambda _: union_of([(2, 3)])).tolist() == []


@given(nested_rows(), MOMENTS)
def test_self_time_within_moments_agrees_with_the_walk(rows: list[Row], spans: list[tuple[int, int]]) -> None:
    events = table(rows)
    moments = {START_US + t for a, n in spans for t in range(a, a + n)}
    expected = {"CPU": defaultdict(int), "GPU": defaultdict(int)}  # type: ignore[var-annotated]
    for i, owned in enumerate(owners(events)):
        part = "GPU" if events.lanes[events.lane[i]] == GPU else "CPU"
        expected[part][events.names[events.name[i]]] += len(owned & moments)

    both = union_of(spans)
    found = breakdown(events, weights_by_lane(events, lambda _: both))

    for part, times in expected.items():
        whole = sum(times.values())
        above = {name: us for name, us in times.items() if 50 * us > whole}
        assert found.get(f"{part}_self_total", {}) == above


def test_self_time_of_a_tangled_thread_is_spread_evenly_over_the_weight() -> None:
    events = thread(("a", 0, 10), ("b", 5, 15))

    found = breakdown(events, np.array([6, 2]))

    assert found["CPU_self_total"] == {"a": 3, "b": 2}


# The block


PHASES = (
    "cpu_functions",
    "my-CPU",
    "gpu_functions-dev:0",
    "GPU with cpu",
    "Step:ModeKeys.TRAIN",
    "Step:ModeKeys.EVAL",
    "Forward-SubModuleInternal",
    "Backward-SubModuleInternal",
    "DataLoaderIter",
    "DataLoaderWorker",
    "Forward",
)
BLOCK_ROWS = st.lists(
    st.tuples(
        st.builds(
            lane_of,
            st.sampled_from(PHASES),
            node=st.sampled_from(["algo-1", "algo-2"]),
            source=st.sampled_from(
                [*[EventSource.PYTHON] * 4, EventSource.HOROVOD, EventSource.SMDATAPARALLEL]
            ),
        ),
        st.sampled_from(["a", "b", "c", "d"]),
        st.integers(0, 500),
        st.sampled_from([0, 1, 2, 50, 98, 100]),
        st.integers(1, 3),
        st.integers(0, 3),
    ).map(lambda row: (row[0], row[1], row[2], row[2] + row[3], row[4], row[5])),
    max_size=30,
)


def percent(times: dict[str, int]) -> dict[str, float]:
    return {name: us / sum(times.values()) * 100 for name, us in times.items()}


def cut(times: dict[str, int]) -> dict[str, int]:
    return {name: us for name, us in times.items() if us * 50 > sum(times.values())}


def reference(events: Events, weights: Sequence[int]) -> dict[str, object]:
    """The block event by event, without self times."""
    times: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for i, us in enumerate(weights):
        lane, name = events.lanes[events.lane[i]], events.names[events.name[i]]
        if us == 0:
            continue
        if lane.source == "horovod":
            times["horovod"][name] += us
        elif lane.source == "smdataparallel":
            times["general"][lane.event_type] += us
        elif "cpu" in lane.event_type.lower():
            times["cpu lanes"][lane.event_type] += us
            times["CPU"][name] += us
        elif "gpu" in lane.event_type.lower():
            times["gpu lanes"][lane.event_type] += us
            times["GPU"][name] += us
        elif "Step" in lane.event_type:
            times["steps"][lane.event_type] += us
        elif lane.event_type in {"Forward-SubModuleInternal", "Backward-SubModuleInternal"}:
            times[lane.event_type.partition("-")[0]][""] += us
        elif lane.event_type == "DataLoaderWorker":
            times["lifetimes"][lane.event_type] += us
        else:
            times["general"][lane.event_type] += us
    block: dict[str, object] = {
        "ratio": percent({**times.pop("gpu lanes", {}), **times.pop("cpu lanes", {})}),
        "phase": percent(times["steps"]),
        "phase_time": times.pop("steps"),
    }
    forward, backward = times.pop("Forward", {}), times.pop("Backward", {})
    if forward and backward:
        block["forward_backward"] = percent({"Forward pass": forward[""], "Backward pass": backward[""]})
    for key, some in times.items():
        block[key] = some if key == "lifetimes" else percent(some if key == "general" else cut(some))
        if key in {"CPU", "GPU"}:
            block[f"{key}_total"] = cut(some)
        if key in {"general", "horovod"}:
            block[f"{key}_time"] = some if key == "general" else cut(some)
    return block


def agree(found: dict[str, object], expected: dict[str, object]) -> None:
    found = {key: value for key, value in found.items() if not key.endswith(("_self_total", "_operators"))}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value)


@given(BLOCK_ROWS, st.data())
def test_the_block_agrees_with_a_plain_count(rows: list[Row], data: st.DataObject) -> None:
    events = table(rows)
    weights = data.draw(
        st.lists(st.sampled_from([0, 1, 49, 50, 1000]), min_size=len(rows), max_size=len(rows))
    )

    agree(breakdown(events), reference(events, events.duration_us.tolist()))
    agree(breakdown(events, np.array(weights, np.int64)), reference(events, weights))


def test_nothing_recorded_gives_the_keys_that_are_always_there() -> None:
    assert breakdown(Events()) == {"ratio": {}, "phase": {}, "phase_time": {}}
