from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobrules.measures.snapshots import MOST_CELLS, Series, anchors, node_panels
from jobrules.model import Metric


def walked(times: list[int], tolerance: int) -> list[int]:
    found: list[int] = []
    for t in times:
        if not found or t - found[-1] > tolerance:
            found.append(t)
    return found


def series(
    times: Sequence[int] | np.ndarray,
    values: list[float],
    *,
    metric: Metric = Metric.GPU_UTILIZATION,
    device: str = "gpu0",
) -> Series:
    return Series(
        metric=metric, device=device, time_us=np.array(times, np.int64), values=np.array(values, np.float64)
    )


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(0, 50))
def test_a_snapshot_begins_where_the_anchor_is_too_far_away(times: list[int], tolerance: int) -> None:
    times.sort()

    assert anchors(np.array(times, np.int64), tolerance).tolist() == walked(times, tolerance)


@given(st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=40, unique=True), min_size=1, max_size=4))
def test_snapshots_are_those_of_all_series_together(times: list[list[int]]) -> None:
    given_series = [series(sorted(ts), [1.0] * len(ts), device=f"gpu{i}") for i, ts in enumerate(times)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobrules.measures.snapshots._BLOCK", 5)
        (panel,) = node_panels("n", given_series, 20).panels

    assert panel.time_us.tolist() == walked(sorted(t for ts in times for t in ts), 20)


def test_other_sources_have_other_tolerances() -> None:
    times = [0, 400_000, 1_000_000]

    assert len(node_panels("n", [series(times, [1, 2, 3])], 500_000).panels[0].time_us) == 2


def test_a_node_without_series_has_no_panels() -> None:
    assert node_panels("n", []).panels == ()


SECOND = 1_000_000


def late(devices: int, many: int) -> list[range]:
    """Times of devices that each come half a second later, at moments that all share."""
    return [range(i * SECOND // 2, many * SECOND // 2, SECOND // 2) for i in range(devices)]


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(
            [range(0, 3600 * SECOND, s * SECOND) for s in (1, 60)], id="two sensors of unlike periods"
        ),
        pytest.param(late(600, 700), id="devices that come late"),
        pytest.param([range(0, 1000 * SECOND, SECOND)] * 90 + [[0]] * 600, id="most have one sample"),
        pytest.param(
            [range(i * SECOND, 5_000 * SECOND, 1000 * SECOND) for i in range(MOST_CELLS)],
            id="each has its own moments",
        ),
        pytest.param(
            [range(i * 2 * SECOND // 700, 20 * SECOND, 2 * SECOND) for i in range(700)], id="read in turn"
        ),
    ],
)
def test_no_sampler_leaves_so_few_samples_that_one_is_left_out(times: list[Sequence[int]]) -> None:
    given_series = [series(ts, [1.0] * len(ts), device=f"cpu{i}") for i, ts in enumerate(times)]

    made = node_panels("n", given_series)

    assert np.count_nonzero(~np.isnan(made.panels[0].values)) == sum(map(len, times))
    assert made.sparse == made.surplus == 0


def test_many_devices_at_moments_of_their_own_do_not_fill_memory() -> None:
    often = [range(0, 90 * SECOND, SECOND // 2)] * 3
    lone = [[(1000 + i) * SECOND, (50_000 + i) * SECOND] for i in range(2000)]
    times: list[Sequence[int]] = [*lone[:1500], *often, *lone[1500:]]
    given_series = [series(ts, [1.0] * len(ts), device=f"cpu{i}") for i, ts in enumerate(times)]

    made = node_panels("n", given_series)

    (panel,) = made.panels
    kept = int(np.count_nonzero(~np.isnan(panel.values)))
    # Those with most samples, and of the others the first.
    assert panel.devices == tuple(f"cpu{i}" for i in (*range(MOST_CELLS - 3), 1500, 1501, 1502))
    assert panel.values.size <= MOST_CELLS * kept
    assert kept + made.sparse == sum(map(len, times))


CLOCK = st.integers(0, 40).map(lambda i: i * 7_000)


@given(
    st.dictionaries(
        st.tuples(
            st.sampled_from([Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION]),
            st.sampled_from(["d0", "d1", "d2"]),
        ),
        st.lists(CLOCK, min_size=1, max_size=20),
        min_size=1,
    )
)
def test_panels_hold_what_a_plain_loop_finds(times: dict[tuple[Metric, str], list[int]]) -> None:
    given_series = [
        series(sorted(ts), [float(i) for i in range(len(ts))], metric=metric, device=device)
        for (metric, device), ts in times.items()
    ]
    starts = walked(sorted({t for ts in times.values() for t in ts}), 20_000)
    expected: dict[tuple[Metric, str], dict[int, float]] = {}
    for one in given_series:
        for t, value in zip(one.time_us.tolist(), one.values.tolist(), strict=True):
            number = max(i for i, start in enumerate(starts) if start <= t)
            expected.setdefault((one.metric, one.device), {}).setdefault(number, value)

    made = node_panels("n", given_series)

    found = {
        (p.metric, device): {
            n: v for n, v in zip(p.snapshot.tolist(), p.values[:, i].tolist(), strict=True) if not np.isnan(v)
        }
        for p in made.panels
        for i, device in enumerate(p.devices)
    }
    assert found == expected
    assert made.surplus == sum(map(len, times.values())) - sum(map(len, expected.values()))
    for p in made.panels:
        assert (np.diff(p.time_us) > 0).all()
        assert (np.diff(p.snapshot) > 0).all()
        assert not np.isnan(p.values).all(axis=1).any()
        assert p.values.flags.f_contiguous
