"""What is plotted of a training: few columns, whatever was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET

from jobrules.analyses.learning.columns import StepColumns
from jobrules.analyses.learning.layers import MAX_ROWS, NOT_FINITE, NOT_RECORDED, ZERO, LayerMap
from jobrules.analyses.learning.plots import LearningPlots, learning_plots
from jobrules.model.learning import (
    LOSS,
    VAL_LOSS,
    Collection,
    Learning,
    LearningEvent,
    Scalars,
    Tensor,
    TensorRecords,
    Trees,
    block_of,
)
from tests.copies import replace
from tests.learning_data import counted, matrix, scalars, tensors

NAN, INF = float("nan"), float("inf")


def plots(*series: Scalars, **known: Any) -> LearningPlots:
    found = learning_plots(Learning(scalars=series, **known))
    assert found is not None
    return found


def gradients(records: TensorRecords) -> LayerMap:
    found = plots(tensors=records).gradients
    assert isinstance(found, LayerMap)
    return found


def test_nothing_is_plotted_of_a_job_without_a_training() -> None:
    assert learning_plots(None) is None


def test_of_an_empty_record_there_is_only_how_it_was_recorded() -> None:
    found = plots()

    assert (found.columns, found.courses, found.scalars, found.best) == (None, (), (), None)
    assert (found.gradients, found.updates, found.activations, found.classes, found.trees) == (UNSET,) * 5
    assert not found.has_loss


@pytest.mark.parametrize(
    ("steps", "most", "expected"),
    [
        (range(600), 200, (0, 3, 200)),
        (range(10), 200, (0, 1, 10)),
        ([7], 200, (7, 1, 1)),
        # No column is narrower than the distance in which most steps lie.
        ([*range(10), *range(100, 1100, 100)], 200, (0, 100, 11)),
        (range(0, 1_000_001, 500), 100, (0, 10_001, 100)),
    ],
)
def test_columns_hold_equally_many_steps(
    steps: Sequence[int], most: int, expected: tuple[int, int, int]
) -> None:
    found = StepColumns.of(np.array([*steps]), most)

    assert (found.start, found.width, found.count) == expected
    assert set(found.column(np.array([*steps]))) <= set(range(found.count))


def test_a_column_has_the_lowest_the_median_and_the_highest_of_its_values() -> None:
    values = np.random.default_rng(1).normal(size=1000).round(6)

    (course,) = plots(scalars(values.tolist())).courses

    for column in range(200):
        own = sorted(values[5 * column : 5 * column + 5])
        found = course.low[column], course.median[column], course.high[column]
        assert found == tuple(float(f"{own[i]:.4g}") for i in (0, 2, 4))


def test_values_that_are_not_finite_are_counted_and_their_columns_are_known() -> None:
    found = plots(scalars([2.0, NAN, 1.0, INF]))

    (course,), (row,) = found.courses, found.scalars
    assert course.median == (2.0, None, 1.0, None)
    assert course.not_finite == (1, 3)
    assert (row.values, row.not_finite, row.not_finite_from) == (4, 2, 1)
    assert (row.first, row.last, row.low, row.high) == (2.0, 1.0, 1.0, 2.0)


def test_of_several_ranks_and_modes_training_of_the_lowest_rank_is_drawn() -> None:
    series = [scalars([3.0], mode="EVAL"), scalars([2.0], rank=1), scalars([1.0])]

    found = plots(*series)

    assert [one.median for one in found.courses] == [(1.0,)]
    assert [(one.mode, one.first) for one in found.scalars] == [("TRAIN", 1.0), ("EVAL", 3.0)]


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ([0.9, NAN, 0.4, 0.5], (29, 0.4)),
        # Of 8 evaluations a single low one is chance.
        ([0.9, 0.8, 0.1, 0.8, 0.7, 0.5, 0.6, 0.7], (59, 0.6)),
        ([NAN], None),
    ],
)
def test_the_best_validation_loss_is_that_of_the_rules(
    losses: list[float], best: tuple[int, float] | None
) -> None:
    steps = range(9, 10 * len(losses), 10)

    assert plots(scalars([1.0] * 100), scalars(losses, VAL_LOSS, steps=steps)).best == best


def test_the_loss_after_steps_is_the_median_of_the_last_tenth() -> None:
    values = np.random.default_rng(2).random(1300)

    found = plots(scalars(values.tolist())).loss_after

    assert [one.steps for one in found] == [10, 20, 50, 100, 200, 500, 1000]
    assert found[-1].loss == float(f"{np.median(values[901:1001]):.4g}")
    # Of steps 91 to 100, and of less than 10 values before.
    assert found[3].pieces == tuple(float(f"{one:.4g}") for one in values[91:101])
    assert found[2].pieces == ()


def test_events_and_spikes_are_counted_and_kept_by_their_columns() -> None:
    events = tuple(LearningEvent(step=step, time_us=0, name="overflow") for step in (3, 3, 4, 5000))
    learning = Learning(scalars=(scalars([1.0] * 400),), events=events)

    found = learning_plots(learning, [100], 7)

    assert found is not None
    assert (found.marks, found.events) == ({"overflow": (1, 2), "spike": (50,)}, {"overflow": 4, "spike": 7})


def test_gradients_have_a_hundredth_of_six_decades_as_their_level() -> None:
    rows = {
        matrix("a"): [{"rms": 10.0}, {"rms": 10.0}, {"rms": 10.0}],
        matrix("b"): [{"rms": 1e-2}, {"rms": 0.0}, {"rms": 1e-2, "nan": 1.0}],
        matrix("c"): [{"rms": 1e-9}, {"rms": NAN, "nan": 100.0}],
    }

    found = gradients(tensors(rows))

    assert found.top == 10.0
    assert [list(one.levels) for one in found.rows] == [
        [100, 100, 100],
        [50, ZERO, NOT_FINITE],
        [0, NOT_FINITE, NOT_RECORDED],
    ]
    assert [one.name for one in found.extremes] == ["c", "b", "a"]
    assert (found.extremes[1].records, found.extremes[1].zeros) == (3, 1)


def test_biases_are_left_out_where_there_are_matrices() -> None:
    bias = Tensor(name="bias", collection=Collection.GRADIENT, shape=(10,))

    assert [
        one.name for one in gradients(tensors({matrix("weight"): [{"rms": 1.0}], bias: [{"rms": 1.0}]})).rows
    ] == ["weight"]
    assert [one.name for one in gradients(tensors({bias: [{"rms": 1.0}]})).rows] == ["bias"]


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("b.7.attn.weight", "b.7"),
        ("0.weight", "0"),
        ("layer-12.tensor-3", "layer-12"),
        ("head.weight", "head.weight"),
        ("w1", "w1"),
        ("", ""),
    ],
)
def test_the_block_of_a_tensor_ends_with_its_first_number(name: str, block: str) -> None:
    assert block_of(name) == block


def test_many_tensors_are_rows_of_blocks_and_many_blocks_of_neighbors() -> None:
    few = {
        matrix(f"b.{i}.{part}"): [{"rms": size}]
        for i in range(30)
        for part, size in (("q", 1), ("k", 3), ("v", 2))
    }
    many = {matrix(f"b.{i}.w"): [{"rms": 1.0}] for i in range(150)}

    blocks, neighbors = gradients(tensors(few)), gradients(tensors(many))

    assert [(one.name, one.tensors) for one in blocks.rows] == [(f"b.{i}", 3) for i in range(30)]
    # The median of 1, 3, and 2 of the largest median, which is 2.
    assert {one.levels for one in blocks.rows} == {bytes([100])}
    assert len(neighbors.rows) == 50 <= MAX_ROWS
    assert sum(one.tensors for one in neighbors.rows) == 150
    assert [one.name for one in neighbors.rows[:2]] == ["b.0", "b.3"]
    assert (len(neighbors.extremes), neighbors.tensors) == (40, 150)


def test_updates_are_spreads_with_zeros() -> None:
    weight = matrix("w", Collection.UPDATE)
    found = plots(
        tensors=tensors({weight: [{"ratio": one} for one in (0.0, 1e-3, 2e-3, 3e-3, 4e-3, NAN)]})
    ).updates

    assert found
    (one,) = found
    assert (one.records, one.zeros) == (5, 1)
    assert (one.low, one.p25, one.median, one.p75, one.high) == (0.0, 1e-3, 2e-3, 3e-3, 4e-3)


def test_activations_are_shares_of_dead_or_saturated_units() -> None:
    rows = {
        Tensor(name="relu", collection=Collection.OUTPUT): [{"dead": 0.25}, {"dead": 1.0}],
        Tensor(name="tanh", collection=Collection.OUTPUT): [{"saturated": 0.0}, {"saturated": 0.5}],
        Tensor(name="gelu", collection=Collection.OUTPUT): [{"rms": 1.0}, {"rms": 1.0}],
    }

    found = plots(tensors=tensors(rows)).activations

    assert isinstance(found, LayerMap)
    assert [(one.name, one.kind, [*one.levels]) for one in found.rows] == [
        ("relu", "dead", [25, 100]),
        ("tanh", "saturated", [0, 50]),
    ]


def test_activations_that_are_nan_are_not_dead() -> None:
    rows = {
        Tensor(name="relu", collection=Collection.OUTPUT): [{"dead": 0.25}, {"dead": 1.0, "nan": 3.0}],
    }

    found = plots(tensors=tensors(rows)).activations

    assert isinstance(found, LayerMap)
    assert [*found.rows[0].levels] == [25, NOT_FINITE]
    assert [(one.records, one.median) for one in found.extremes] == [(1, 0.25)]


def test_classes_are_those_of_lowest_recall_and_pairs_of_largest_share() -> None:
    found = plots(classes=(counted([100, 50, 10], [(0, 0, 66), (0, 1, 34), (1, 1, 50), (2, 0, 10)]),)).classes

    assert found
    assert (found.labels, found.right) == (160, 0.725)
    assert [(one.number, one.recall) for one in found.rows] == [(2, 0.0), (0, 0.66), (1, 1.0)]
    # Class 2 has fewer than 20 labels.
    assert found.pairs == ((0, 1, 34, 0.34),)


def test_classes_are_those_of_the_evaluation_that_rules_judge() -> None:
    one = counted([100, 50], [(0, 0, 100), (1, 1, 50)], step=200)
    training = replace(one, step=900, mode="TRAIN")
    found = plots(classes=(replace(one, step=100), one, one, training)).classes

    assert found
    assert (found.step, found.labels, found.evaluations) == (200, 300, 2)


def test_trees_are_shares_of_gain_and_counts_of_depths() -> None:
    found = plots(trees=Trees(importance=(("a", 3.0), ("b", 1.0)), depths=(2, 3, 3), max_depth=3)).trees

    assert found
    assert found.features == (("a", 0.75), ("b", 0.25))
    assert found.depths == ((2, 1), (3, 2))


def test_numbers_of_any_size_are_plotted() -> None:
    found = plots(
        scalars([1e308, -1e308, 0.0, 1e-320], LOSS, steps=[0, 2**40, 2**60, 2**60 + 1], timed=False)
    )

    assert found.columns is not None
    assert found.columns.count <= 200
    assert found.scalars[0].low == -1e308
