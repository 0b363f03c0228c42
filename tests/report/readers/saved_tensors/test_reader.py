from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobreport.readers.base import Found
from jobreport.readers.listing import listing
from jobreport.readers.registry import read_directory
from jobreport.readers.saved_tensors import job as saved_tensors
from jobreport.readers.saved_tensors import table
from jobreport.readers.saved_tensors.reader import SavedTensors
from jobreport.readers.saved_tensors.statistics import classes, fired, statistics
from jobreport.readers.tally import Tally
from jobrules.model.learning import (
    COUNTS,
    EVALUATION,
    PREDICTION,
    STATISTICS,
    TRAINING,
    Collection,
    Learning,
    TensorRecords,
)
from tests.event_writer import (
    START_S,
    event,
    field,
    masked,
    record,
    saved,
    saved_file,
    scalar_file,
    tensor,
)

RNG = np.random.default_rng(7)
WEIGHT = RNG.normal(size=(8, 4)).astype(np.float32)
LOSS = "CrossEntropyLoss_output_0"
NAME = "Net_fc.weight"
FORWARD_PASSES = "saved_tensors.forward_passes"


def write(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read(directory: Path, files: Mapping[str, bytes]) -> Found:
    write(directory, files)
    reader = SavedTensors()
    found = listing(directory, Tally())
    assert all(reader.matches_name(file) for file in found)
    return reader.read(found)


def learning(found: Found) -> Learning:
    (one,) = found.learning
    return one


def records(found: Found) -> TensorRecords:
    one = learning(found).tensors
    assert one is not None
    return one


def rows(found: Found, name: str, collection: Collection) -> list[dict[str, float]]:
    """The columns of each row of a tensor that are known."""
    of_all = records(found)
    (place,) = (i for i, one in enumerate(of_all.tensors) if (one.name, one.collection) == (name, collection))
    columns = {column: getattr(of_all, column) for column in (*COUNTS, *STATISTICS)}
    return [
        {name: float(values[i]) for name, values in columns.items() if not math.isnan(values[i])}
        for i in np.flatnonzero(of_all.tensor == place)
    ]


def counts(found: Found) -> dict[str, int]:
    return {one.code: one.count for one in found.quality.remarks}


def scalars(found: Found) -> dict[tuple[str, str, int], dict[int, float]]:
    return {
        (one.logged_as, one.mode, one.rank): dict(zip(one.step.tolist(), one.value.tolist(), strict=True))
        for one in learning(found).scalars
    }


def test_weights_gradients_and_losses_with_constant_checksums(tmp_path: Path) -> None:
    steps = {
        step: {
            NAME: WEIGHT + step,
            f"gradient/{NAME}": WEIGHT * step,
            LOSS: np.float32(1 / (1 + step)),
            "lr": 0.5,
            "conv_output_0": WEIGHT,
        }
        for step in (0, 500, 1000)
    }
    found = read(tmp_path, {f"debug-output/{name}": content for name, content in saved(steps).items()})

    assert found.quality.files == 3
    assert counts(found) == {FORWARD_PASSES: 3, "saved_tensors.other": 3}
    assert scalars(found) == {
        (LOSS, TRAINING, 0): {step: pytest.approx(1 / (1 + step)) for step in steps},
        ("lr", TRAINING, 0): dict.fromkeys(steps, 0.5),
    }
    assert [one.name for one in learning(found).scalars] == ["loss", "lr"]
    assert learning(found).ranks == (0,)
    of_all = records(found)
    assert [(one.name, one.collection, one.shape, one.dtype) for one in of_all.tensors] == [
        (NAME, Collection.PARAMETER, (8, 4), "float32"),
        (NAME, Collection.GRADIENT, (8, 4), "float32"),
    ]
    np.testing.assert_array_equal(of_all.step, np.repeat([0, 500, 1000], 2))
    np.testing.assert_array_equal(of_all.time_us, (START_S + of_all.step) * 1e6)
    np.testing.assert_array_equal(of_all.count, 32)
    for row, step in zip(rows(found, NAME, Collection.PARAMETER), steps, strict=True):
        expected = (WEIGHT + step).astype(float)
        assert row["sum"] == pytest.approx(expected.sum())
        assert row["l1"] == pytest.approx(np.abs(expected).sum())
        assert row["l2"] == pytest.approx(np.linalg.norm(expected))
        assert (row["min"], row["max"]) == (expected.min(), expected.max())
        assert row["positive"] == (expected > 0).mean()
    assert rows(found, NAME, Collection.GRADIENT)[0]["zero"] == 32
    assert (of_all.bins.sum(axis=1) == np.where(of_all.l2 > 0, 32, 0)).all()


def test_checksums_that_were_asked_for_are_read_too(tmp_path: Path) -> None:
    message = event(3, field(1, LOSS.encode()) + field(8, tensor(np.float32(2))))
    found = read(
        tmp_path, {"events/000000000003/000000000003_worker_0.tfevents": record(message, masked(message))}
    )

    assert scalars(found) == {(LOSS, TRAINING, 0): {3: 2}}


# Statistics


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_statistics_of_the_specification(tmp_path: Path, dtype: str) -> None:
    values = np.array([0, -2, 3, 0, math.nan, math.inf])
    found = read(tmp_path, saved({0: {NAME: values}}, dtype=dtype))

    (row,) = rows(found, NAME, Collection.PARAMETER)
    assert row == {
        "count": 6,
        "nan": 1,
        "inf": 1,
        "zero": 2,
        "sum": 1,
        "l1": 5,
        "min": -2,
        "max": 3,
        "l2": pytest.approx(math.sqrt(13)),
        "positive": 0.5,
    }
    of_all = records(found)
    assert of_all.mean[0] == 0.25
    assert of_all.std[0] == pytest.approx(math.sqrt(13 / 4 - 1 / 16))


def elements(values: Any, dtype: str = "float64") -> Any:
    return np.asarray(values, dtype)


def test_bins_of_the_specification() -> None:
    _, bins = statistics(elements([0.75, 1.0, 1.5, 2.0, 0.001, 0.0]))

    assert {place - 40: int(n) for place, n in enumerate(bins) if n} == {0: 1, 1: 2, 2: 1, -9: 1}
    _, bins = statistics(elements([1e-300, -1e300]))
    assert (bins[0], bins[-1]) == (1, 1)


@pytest.mark.parametrize(
    ("count", "sampled"), [(65_536, 65_536), (65_537, 21_846), (200_000, 40_000), (3, 3), (0, 0)]
)
def test_the_sample_of_the_specification(count: int, sampled: int) -> None:
    row, bins = statistics(elements(np.ones(count)))

    assert bins.sum() == sampled
    assert row["count"] == count
    assert "max" not in row or count


def test_squares_that_are_no_doubles() -> None:
    row, _ = statistics(elements([3e200, -4e200]))
    assert row["l2"] == pytest.approx(5e200)
    row, _ = statistics(elements(np.full(3_000_000, 1e-200)))
    assert row["l2"] == pytest.approx(1e-200 * math.sqrt(3_000_000))


@pytest.mark.parametrize(
    ("module", "values", "expected"),
    [
        ("Tanh", [0.97, 0.98, -0.99, 0], 0.5),
        ("Sigmoid", [0.0126, 0.5, 0.9874, 0.0128], 0.5),
        ("ReLU", [0, 5], None),
    ],
)
def test_saturated_outputs(module: str, values: list[float], expected: float | None) -> None:
    row, _ = statistics(elements(values), module)

    assert row.get("saturated") == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[0, -1, 2], [0, 1, 0]], [False, True, True]),
        (np.eye(3).reshape(3, 1, 3), [True, True, True]),
        # Of images: channels.
        (np.arange(-95, 1).reshape(2, 3, 4, 4), [False, False, False]),
        (np.arange(-47, 49).reshape(2, 3, 4, 4), [True, True, True]),
        (np.arange(-63, 33).reshape(2, 3, 4, 4), [False, True, True]),
        (np.ones((600, 2000)) * (np.arange(2000) % 2), [False, True] * 1000),
        (5, [True]),
        (np.ones((0, 3)), [False, False, False]),
        (np.ones((3, 0)), None),
        (np.ones((2, 3, 0, 4)), None),
        (np.ones((1, 65_537)), None),
    ],
)
def test_units_are_channels_of_images_and_the_last_axis_otherwise(
    values: Any, expected: list[bool] | None
) -> None:
    found = fired(elements(values))

    assert (None if found is None else found.tolist()) == expected


def test_a_dead_unit_fired_in_none_of_the_last_ten_records(tmp_path: Path) -> None:
    outputs = [np.array([[1, 0]], "f4"), *[np.array([[-1, 2]], "f4")] * 10]
    found = read(
        tmp_path, saved({step: {"features.relu_1_output_0": one} for step, one in enumerate(outputs)})
    )

    assert [row["dead"] for row in rows(found, "features.relu_1", Collection.OUTPUT)] == [
        0.5,
        *[0.0] * 9,
        0.5,
    ]
    assert records(found).tensors[0].module == "ReLU"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("relu_output_0", "ReLU"),
        ("block.0.act_relu2_output_0", "ReLU"),
        ("mlp.Tanh_output_0", "Tanh"),
        ("net.sigmoid_output_1", "Sigmoid"),
        # What they are is not known.
        ("features.1_output_0", None),
        ("prelu_output_0", None),
        ("leaky_relu_output_0", None),
        ("hardtanh_output_0", None),
        ("relu_input_0", None),
    ],
)
def test_modules_are_known_by_their_names_alone(tmp_path: Path, name: str, module: str | None) -> None:
    found = read(tmp_path, saved({0: {name: np.array([0.5, 2], "f4"), "x": 1.0}}))

    tensors = learning(found).tensors
    assert [one.module for one in (tensors.tensors if tensors else ())] == ([module] if module else [])


# Reductions


@pytest.mark.parametrize(
    ("reductions", "expected"),
    [
        # Norms that a hook saved are those of vectors: of the unit matrix 2 and 1.414.
        ({"l1": 2.0, "l2": math.sqrt(2)}, {"l1": 2, "l2": math.sqrt(2)}),
        ({"min": -1.0, "max": 3.0, "sum": 5.0, "abs_sum": 7.0}, {"min": -1, "max": 3, "sum": 5, "l1": 7}),
        ({"mean": 0.5, "abs_mean": 1.0}, {"sum": 2, "l1": 4}),
        # Of 1, 3, 5, 7: 16/4 = 4, and the squares are 84; hooks divide the spread by one element less.
        ({"mean": 4.0, "std": math.sqrt(20 / 3)}, {"sum": 16, "l2": math.sqrt(84)}),
        ({"mean": 4.0, "variance": 20 / 3}, {"sum": 16, "l2": math.sqrt(84)}),
        ({"sum": 16.0, "variance": 20 / 3}, {"sum": 16, "l2": math.sqrt(84)}),
        ({"std": 2.0}, {}),
        ({"mean": 1.0, "std": 2.0, "l2": 9.0}, {"sum": 4, "l2": 9}),
        # What is no number of ours.
        ({"mean": 1e308, "std": 1e200}, {}),
        ({"mean": 0.0, "variance": -1.0}, {"sum": 0, "l2": 0}),
    ],
)
def test_reductions_that_are_columns(
    tmp_path: Path, reductions: dict[str, float], expected: dict[str, float]
) -> None:
    names = {f"smdebug/reductions/{name}/gradient/{NAME}": value for name, value in reductions.items()}
    as_tensors = {name: np.array(value) for name, value in names.items()}
    shapes = {f"gradient/{NAME}": (2, 2)}
    kinds: dict[str, dict[str, Any]] = (
        {"tensors": as_tensors}
        if max(reductions.values()) > 1e38
        else {"tensors": as_tensors, "scalars": names}
    )
    for kind, arrays in kinds.items():
        found = read(tmp_path / kind, saved({7: arrays}, shapes=shapes))
        (row,) = rows(found, NAME, Collection.GRADIENT)
        assert row == {"count": 4, "nan": 0, "inf": 0} | {
            key: pytest.approx(one) for key, one in expected.items()
        }
        assert records(found).tensors[0].shape == (2, 2)
        assert not len(records(found).bins)


def test_without_a_shape_means_and_spreads_are_left_out(tmp_path: Path) -> None:
    names = {f"smdebug/reductions/{name}/{NAME}": 2.0 for name in ("mean", "std", "l2", "prod", "abs_max")}
    found = read(tmp_path, saved({7: names}))

    assert rows(found, NAME, Collection.PARAMETER) == [{"l2": 2, "nan": 0, "inf": 0}]
    assert counts(found)["saved_tensors.other"] == 2


def test_reductions_that_are_not_finite_are_of_elements_that_are_not(tmp_path: Path) -> None:
    def named(name: str, value: float) -> dict[str, float]:
        return {f"smdebug/reductions/{name}/{NAME}": value}

    steps = {
        0: named("max", math.nan),
        1: named("max", math.inf),
        2: named("l2", math.inf),
        3: named("max", 1.0),
    }
    found = read(tmp_path, saved(steps))

    # Squares of finite numbers may be infinite.
    assert rows(found, NAME, Collection.PARAMETER) == [
        {"nan": 1, "inf": 0},
        {"nan": 0, "inf": 1},
        {},
        {"nan": 0, "inf": 0, "max": 1},
    ]
    assert counts(found)["saved_tensors.not_finite"] == 2


def test_a_tensor_itself_says_more_than_its_reductions(tmp_path: Path) -> None:
    arrays = {f"smdebug/reductions/l2/{NAME}": 99.0, NAME: np.array([3, 4], "f4")}
    found = read(tmp_path, saved({0: arrays}))

    assert [row["l2"] for row in rows(found, NAME, Collection.PARAMETER)] == [5]


# Modes, workers, and names


def test_modes_stand_in_the_index_or_in_events(tmp_path: Path) -> None:
    modes = {0: "TRAIN", 1: "ModeKeys.EVAL", 2: "ModeKeys.PREDICT", 3: "ModeKeys.GLOBAL"}
    steps = {step: {LOSS: np.float32(step), NAME: np.ones(2000, "f4")} for step in modes}
    by_index = saved(steps, modes=modes)
    by_events = {
        f"events/{step:012}/{step:012}_worker_0.tfevents": saved_file(step, arrays, str(step + 1))
        for step, arrays in steps.items()
    }
    for name, files in (("index", by_index), ("events", by_events)):
        found = read(tmp_path / name, files)
        assert scalars(found) == {
            (LOSS, TRAINING, 0): {0: 0, 3: 3},
            (LOSS, EVALUATION, 0): {1: 1},
            (LOSS, PREDICTION, 0): {2: 2},
        }
        # Without a mode, nothing says that it is no training.
        assert records(found).step.tolist() == [0, 3]
        assert counts(found) == {"saved_tensors.evaluation": 2, FORWARD_PASSES: 4}


def test_tensors_are_those_of_the_first_worker(tmp_path: Path) -> None:
    steps = {0: {LOSS: np.float32(1), NAME: WEIGHT}}
    files = saved(steps, worker="rank-2") | saved(steps, worker="rank-10")
    found = read(tmp_path, files)

    assert set(scalars(found)) == {(LOSS, TRAINING, 2), (LOSS, TRAINING, 10)}
    assert len(records(found)) == 1
    assert learning(found).ranks == (2, 10)
    assert counts(found) == {"saved_tensors.worker": 1, FORWARD_PASSES: 1}


def test_compressed_files_are_read_too(tmp_path: Path) -> None:
    files = saved({0: {LOSS: np.float32(1), NAME: np.ones(3000, "f4")}}, modes={0: "EVAL"})
    found = read(tmp_path, {f"{name}.gz": gzip.compress(content) for name, content in files.items()})

    assert scalars(found) == {(LOSS, EVALUATION, 0): {0: 1}}


def test_a_compressed_tensor_that_is_cut_is_counted(tmp_path: Path) -> None:
    files = saved({0: {LOSS: np.float32(1), NAME: RNG.normal(size=30_000).astype("f4")}})
    name = next(one for one in files if one.startswith("events"))
    whole = gzip.compress(files.pop(name))
    for damaged in (whole[:50_000], whole[:50_000] + b"\xff" * 100 + whole[50_100:], whole[:-5]):
        found = read(tmp_path, files | {f"{name}.gz": damaged})
        assert scalars(found) == {(LOSS, TRAINING, 0): {0: 1}}
        assert {"file.cut", "events.damaged"} & set(counts(found))


def test_jobs_side_by_side_are_read_each(tmp_path: Path) -> None:
    files = saved({0: {LOSS: np.float32(1)}})
    found = read(
        tmp_path, {f"{job}/{name}": content for job in ("a", "b") for name, content in files.items()}
    )

    assert len(found.learning) == 2


def test_collections_name_what_names_do_not(tmp_path: Path) -> None:
    arrays = {"criterion_output_0": np.float32(2), "scale": np.ones(3, "f4"), "other": np.ones(3, "f4")}
    collections = {"losses": ["criterion_output_0"], "weights": ["scale"], "relu_input": [".*relu_input"]}
    found = read(tmp_path, saved({0: arrays}, collections=collections))

    assert scalars(found) == {("criterion_output_0", TRAINING, 0): {0: 2}}
    assert [(one.name, one.collection) for one in records(found).tensors] == [("scale", Collection.PARAMETER)]
    assert counts(found)["saved_tensors.other"] == 1


def test_a_weight_is_known_by_its_gradient(tmp_path: Path) -> None:
    found = read(
        tmp_path, saved({0: {"Net_scale": np.ones(3, "f4"), "gradient/Net_scale": np.ones(3, "f4")}})
    )

    assert {one.collection for one in records(found).tensors} == {Collection.PARAMETER, Collection.GRADIENT}


# Classes


def batch(labels: list[int], predictions: list[int]) -> dict[str, Any]:
    return {"labels": np.array(labels, "i8"), "predictions": np.eye(4, dtype="f4")[predictions]}


def test_classes_of_each_evaluation(tmp_path: Path) -> None:
    steps = {
        # Neither of training nor of an evaluation.
        5: batch([1], [1]),
        0: batch([3], [3]),
        1: batch([0, 1], [0, 0]),
        2: batch([1, -100], [1, 2]),
        3: {LOSS: np.float32(1)},
        4: batch([2, 2], [2, 3]),
    }
    modes = {0: "TRAIN", 1: "EVAL", 2: "EVAL", 3: "TRAIN", 4: "EVAL", 5: "PREDICT"}
    found = read(tmp_path, saved(steps, modes=modes))

    first, second = learning(found).classes
    assert (first.step, first.mode, second.step) == (2, EVALUATION, 4)
    assert first.labels.tolist() == [1, 2]
    assert first.predicted.tolist() == [2, 1]
    assert sorted(map(tuple, first.pairs.tolist())) == [(0, 0, 1), (1, 0, 1), (1, 1, 1)]
    assert first.recall.tolist() == [1, 0.5]
    assert second.labels.tolist() == [0, 0, 2, 0]
    assert first.complete
    assert learning(found).class_count == 4


def test_without_an_evaluation_classes_are_those_of_the_second_half(tmp_path: Path) -> None:
    found = read(tmp_path, saved({step: batch([step % 4], [0]) for step in range(4)}))

    (one,) = learning(found).classes
    assert (one.step, one.mode, one.labels.tolist(), one.predicted.tolist()) == (
        *(3, TRAINING),
        *([0, 0, 1, 1], [2, 0, 0, 0]),
    )


def test_many_pairs_are_cut_and_said_to_be(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(1100), 2)
    found = read(tmp_path, saved({0: {"labels": labels, "predictions": labels[::-1].copy()}}))

    (one,) = learning(found).classes
    assert (len(one.pairs), one.complete, int(one.labels.sum())) == (1000, False, 2200)


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, 2], "int64", [1, 2]),
        ([[1], [2]], "float32", [1, 2]),
        ([[0.1, 0.9], [0.8, 0.2]], "float32", [1, 0]),
        ([[[0.1, 0.9], [0.8, 0.2]]], "float32", [1, 0]),
        ([[1, 2], [3, 4]], "int64", [1, 2, 3, 4]),
        ([0.5, 1], "float32", None),
        ([math.nan], "float32", None),
    ],
)
def test_classes_of_labels_and_predictions(values: Any, dtype: str, expected: list[int] | None) -> None:
    found = classes(elements(values, dtype))

    assert (None if found is None else found.tolist()) == expected


# Limits and damage


def test_over_the_limit_steps_with_tensors_are_evenly_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {step: {NAME: np.ones(1000, "f4"), LOSS: np.float32(1)} for step in range(12)}
    files = saved(steps)
    size = sum(len(content) for name, content in files.items() if name.startswith("events"))
    monkeypatch.setattr(saved_tensors, "_MAX_BYTES", size / 3)
    found = read(tmp_path, files)

    assert records(found).step.tolist() == [0, 3, 6, 9]
    assert len(scalars(found)[LOSS, TRAINING, 0]) == 12
    assert counts(found) == {"saved_tensors.thinned": 8, FORWARD_PASSES: 12}


def test_many_rows_are_thinned_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_MAX_ROWS", 5)
    found = read(tmp_path, saved({step: {NAME: np.ones(2, "f4")} for step in range(20)}))

    assert records(found).step.tolist() == [0, 4, 8, 12, 16]
    assert counts(found)["saved_tensors.thinned"] == 15


def test_tensors_that_are_large_or_many_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_tensors, "_MAX_TENSOR", 10_000)
    monkeypatch.setattr(table, "_MAX_TENSORS", 2)
    arrays = {f"n{i}.weight": np.ones(size, "f4") for i, size in enumerate([10, 5000, 2000, 10])}
    found = read(tmp_path, saved({0: arrays}))

    assert [one.name for one in records(found).tensors] == ["n0.weight", "n2.weight"]
    assert counts(found) == {"saved_tensors.large": 1, "saved_tensors.many": 1, FORWARD_PASSES: 1}


@pytest.mark.parametrize(
    "message",
    [
        field(1, 99) + field(4, b"\0" * 8),
        field(1, 1) + field(2, field(2, field(1, 3))) + field(4, b"\0" * 8),
        field(1, 1) + field(2, field(2, field(1, 1 << 62)) * 20) + field(4, b"\0" * 8),
        field(1, 1) + field(4, b"\0" * 9),
        field(1, 3) + field(7, b"\x01" * 9000),
        b"\xff",
    ],
)
def test_tensors_that_are_none_are_counted(tmp_path: Path, message: bytes) -> None:
    found = read(tmp_path, saved({0: {NAME: message, LOSS: np.float32(1)}}))

    assert counts(found)["saved_tensors.unreadable"] == 1
    assert scalars(found) == {(LOSS, TRAINING, 0): {0: 1}}


def test_files_cut_at_any_byte_give_what_is_before_it(tmp_path: Path) -> None:
    arrays = {LOSS: np.float32(1), NAME: np.ones((2, 2), "f4"), "big.weight": np.ones(1500, "f4")}
    files = saved({0: arrays})
    ((name, content),) = ((name, one) for name, one in files.items() if name.startswith("events"))
    ends = np.cumsum([len(saved_file(0, {key: one})) for key, one in arrays.items()])
    # Of the large tensor, its name and its type, and some of its elements.
    for cut in (*range(1, int(ends[1]) + 60), *range(int(ends[1]) + 60, len(content), 499)):
        found = read(tmp_path, files | {name: content[:cut]})
        complete = int((ends <= cut).sum())
        assert found.quality.rows == complete
        assert ("events.cut" in counts(found)) is (cut not in ends)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("index/000000000/000000000000_worker_0.json", b"{", "file.not_json"),
        ("index/000000000/000000000000_worker_0.json", b"[1]", "saved_tensors.index"),
        ("index/000000000/000000000000_worker_0.json", b'{"meta": {}} {"meta": 3}', "saved_tensors.index"),
        ("index/000000000/000000000000_worker_0.json", b"[" * 100_000, "file.not_json"),
        ("collections/000000000/worker_0_collections.json", b"{]", "file.not_json"),
        ("collections/000000000/worker_0_collections.json", b"", "file.empty"),
        ("events/000000000001/000000000001_worker_0.tfevents", b"not an event file", "events.unknown"),
        ("events/000000000001/000000000001_worker_0.tfevents", b"", "file.empty"),
    ],
)
def test_damaged_files_are_counted(tmp_path: Path, name: str, content: bytes, code: str) -> None:
    found = read(tmp_path, saved({0: {LOSS: np.float32(1)}}) | {name: content})

    assert counts(found)[code] == 1
    assert scalars(found) == {(LOSS, TRAINING, 0): {0: 1}}


def test_an_index_without_anything_is_no_job(tmp_path: Path) -> None:
    files = {name: one for name, one in saved({0: {LOSS: np.float32(1)}}).items() if "events" not in name}
    found = read(tmp_path, files)

    assert not found.learning
    assert found.quality.files == 0


def test_in_a_job_losses_have_the_names_of_all_sources(tmp_path: Path) -> None:
    steps = {step: {"loss_fn_output_0": np.float32(step), NAME: WEIGHT} for step in range(3)}
    files = saved(steps, modes={2: "ModeKeys.EVAL"}, collections={"losses": ["loss_fn_output_0"]})
    files |= {
        "tb/train/events.out.tfevents.1.host.1.0": scalar_file("epoch_accuracy", {0: 0.5}),
        "tb/validation/events.out.tfevents.1.host.1.0": scalar_file("epoch_accuracy", {0: 0.4}),
        "training_job_end.ts": b"",
    }
    write(tmp_path, files)
    reading = read_directory(tmp_path)

    found = reading.job.learning
    assert found
    assert {(one.name, one.mode): len(one) for one in found.scalars} == {
        ("loss", TRAINING): 2,
        ("val_loss", EVALUATION): 1,
        ("accuracy", TRAINING): 1,
        ("val_accuracy", EVALUATION): 1,
    }
    assert found.tensors
    assert set(found.sources) == {"SageMaker Debugger", "TensorBoard"}
    assert reading.job.finished
    assert [one.code for one in reading.quality.remarks] == []
