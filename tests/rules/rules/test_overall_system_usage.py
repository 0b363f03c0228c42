from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobrules import OverallSystemUsage
from jobrules.model import SECOND_US, Metric
from tests.jobs import START_US, make_job, make_panel, make_steps

CELL = st.one_of(st.none(), st.integers(0, 100))


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 90), st.lists(CELL, min_size=3, max_size=3)),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, 2000),
    st.integers(1, 2000),
)
def test_figures_agree_with_a_walk_over_the_samples(
    ticks: list[tuple[str, int, list[int | None]]], loop_start: int, loop_s: int
) -> None:
    """Two nodes, missing samples and gaps; the loop is that of the node's own steps, else of all it covers."""
    rows: dict[str, list[tuple[int, list[int | None]]]] = {"a": [], "b": []}
    time_us = START_US
    for node, gap_s, cells in ticks:
        time_us += gap_s * SECOND_US
        rows[node].append((time_us, cells))
    rows = {node: [(t, c) for t, c in row if any(v is not None for v in c)] for node, row in rows.items()}
    panels = [
        make_panel(
            Metric.CPU_UTILIZATION,
            [[np.nan if v is None else v for v in cells] for _, cells in row],
            node=node,
            time_us=[t for t, _ in row],
        )
        for node, row in rows.items()
        if row
    ]
    if not panels:
        return
    steps = make_steps([(loop_start, loop_start + loop_s)], node="a")

    result = OverallSystemUsage().check(make_job(extra=panels, steps=steps))

    loop = START_US + loop_start * SECOND_US, START_US + (loop_start + loop_s) * SECOND_US
    for node, row in rows.items():
        inside = [(t, c) for t, c in row if loop[0] <= t < loop[1]]
        if node == "b" and not (row and row[0][0] <= loop[0] and loop[1] <= row[-1][0]):
            inside = []
        for found, kept in (
            (result.details["CPU"], row),
            (result.more["TrainingLoop"]["CPU"], inside),
        ):
            means = []
            for _, cells in kept:
                measured = [v for v in cells if v is not None]
                means.append(sum(measured) / len(measured))
            assert (node in found) == bool(means)
            if means:
                assert found[node]["n"] == len(means)
                assert found[node]["max"] == np.round(max(means), 2)
                assert found[node]["min"] == np.round(min(means), 2)
                assert abs(found[node]["mean"] - sum(means) / len(means)) <= 0.00501
                for name, q in (("p99", 0.99), ("p95", 0.95), ("p90", 0.9), ("p50", 0.5)):
                    assert abs(found[node][name] - np.quantile(means, q)) <= 0.00501, name


def test_ties_are_rounded_to_even() -> None:
    """12.345 is no tie to Python: the nearest float is a little larger."""
    result = OverallSystemUsage().check(make_job(cpu=[[12.34, 12.35], [12.35, 12.36], [0.25, 0.0]]))

    found = result.details["CPU"]["algo-1"]
    assert (found["max"], found["p50"], found["min"]) == (12.36, 12.34, 0.12)


def test_what_was_not_sampled_is_empty_and_not_zero() -> None:
    result = OverallSystemUsage().check(make_job(cpu=[10.0, 20.0]))

    assert result.details["GPU"] == {}
    assert result.details["Network"] == {}
    assert list(result.details) == ["Network", "GPU", "CPU", "CPU memory", "GPU memory", "I/O"]


def test_network_is_receive_plus_transmit_of_the_same_snapshot() -> None:
    receive = make_panel(Metric.NETWORK_RECEIVE, [100.0, 200.0, 300.0])
    transmit = make_panel(Metric.NETWORK_TRANSMIT, [1.0, 2.0])

    result = OverallSystemUsage().check(make_job(extra=[receive, transmit]))

    assert result.details["Network"]["algo-1"]["max"] == 202.0
    assert result.details["Network"]["algo-1"]["n"] == 2
    assert result.more["Network receive"]["algo-1"]["max"] == 300.0


def test_nodes_differ_and_the_longer_one_counts() -> None:
    other = make_panel(Metric.CPU_UTILIZATION, [90.0] * 5, node="algo-2")

    result = OverallSystemUsage().check(make_job(cpu=[10.0] * 3, extra=[other]))

    assert result.details["CPU"]["algo-1"]["max"] == 10.0
    assert result.details["CPU"]["algo-2"]["max"] == 90.0
    assert (result.datapoints, result.datapoints_per_series["algo-1/CPU"]) == (5, 3)
