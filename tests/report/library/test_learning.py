"""What was recorded of a training as frames, and in the merged trace."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from jobreport import JobReportError, open_job
from jobreport.library import learning as frames
from jobreport.library.job import JobFrames
from jobreport.timeline.trace import write_trace
from jobrules.model.learning import ClassCounts, Collection, Learning, Scalars, TensorRecords
from tests.copies import replace
from tests.event_writer import saved
from tests.jobs import START_US, make_job
from tests.learning_data import START_US as LOGGED_US
from tests.learning_data import counted, learning_job, matrix, scalars, tensors
from tests.report.library.frames import opened
from tests.report.library.test_tables import types
from tests.report.readers.learning.test_reader import SHARDS, of_ranks
from tests.report.readers.saved_tensors.test_reader import write
from tests.report.timeline.test_trace import checked

GRADIENT, UPDATE, PARAMETER = Collection.GRADIENT, Collection.UPDATE, Collection.PARAMETER
NAN, INF = float("nan"), float("inf")


def trained(*series: Scalars, **known: Any) -> JobFrames:
    """A job of which nothing but its training was recorded."""
    return opened(learning=Learning(scalars=series, **known))


def bins(**counts: int) -> np.ndarray:
    """Counts by exponent: ``e0``, ``m1`` for -1."""
    found = np.zeros(64, np.int32)
    for name, count in counts.items():
        found[40 + int(name[1:]) * (-1 if name[0] == "m" else 1)] = count
    return found


def two_layers() -> TensorRecords:
    """Gradients and updates of two layers, the first of which has a histogram."""
    known: dict[str, Any] = {"rms": 1.0, "bins": bins(m1=1, e0=3)}
    return tensors(
        {
            matrix("first.weight"): [known | {"nan": 1.0, "zero": 5.0, "sum": 0.0}, known | {"rms": 2.0}],
            matrix("second.weight"): [known | {"rms": 3.0}, known | {"rms": 4.0, "bins": bins()}],
            matrix("first.weight", UPDATE): [known | {"ratio": 1e-3}, known | {"ratio": 2e-3}],
        },
        steps=[10, 20],
    )


# Arrays


def saved_job(tmp_path: Path) -> JobFrames:
    large = np.arange(6000, dtype=np.float64).reshape(2, 3000)
    steps: dict[int, dict[str, Any]] = {
        0: {"fc.weight": large, "loss": np.float32(0.5)},
        500: {"gradient/fc.weight": large + 1},
    }
    files = saved(steps) | saved({500: {"fc.bias": np.arange(3)}}, worker="worker_1")
    write(tmp_path / "job", {f"debug-output/{name}": content for name, content in files.items()})
    return open_job(tmp_path / "job")


def test_an_array_is_read_as_it_was_saved(tmp_path: Path) -> None:
    job = saved_job(tmp_path)

    found = job.vendor_tensor("fc.weight", 0)

    assert found.dtype == np.float64
    assert found.tolist() == np.arange(6000.0).reshape(2, 3000).tolist()
    assert job.vendor_tensor("gradient/fc.weight", 500)[1, 0] == 3001
    assert job.vendor_tensor("fc.bias", 500).tolist() == [0, 1, 2]
    assert job.vendor_tensor("loss", 0).item() == 0.5


def test_an_array_that_is_not_there_is_an_error_with_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = saved_job(tmp_path)

    with pytest.raises(KeyError, match=r"fc.weights; did you mean fc.weight\?"):
        job.vendor_tensor("fc.weights", 0)
    with pytest.raises(KeyError, match="no saved step 7; there are 0 to 500"):
        job.vendor_tensor("fc.weight", 7)
    monkeypatch.setattr("jobreport.readers.saved_tensors.arrays._MAX_ARRAY", 1 << 10)
    with pytest.raises(ValueError, match="more than 1,024"):
        job.vendor_tensor("fc.weight", 0)
    with pytest.raises(JobReportError, match="No tensors saved by SageMaker Debugger"):
        trained(scalars([1.0])).vendor_tensor("fc.weight", 0)
    report = trained(scalars([1.0])).report(tmp_path / "out", formats=["json"])
    with pytest.raises(JobReportError, match="A report holds no arrays"):
        open_job(str(report.path)).vendor_tensor("fc.weight", 0)


# Scalars


def test_a_loss_that_is_nan_has_a_row() -> None:
    found = trained(scalars([2.0, NAN])).scalars("loss")

    assert found["step"].tolist() == [0, 1]
    assert found["value"][0] == 2.0
    assert np.isnan(found["value"][1])
    assert found.attrs["nonfinite"] == 1
    assert found["time_us"].tolist() == [LOGGED_US, LOGGED_US + 10**6]
    assert found["time"][1] - found["time"][0] == found["since_start"][1] == pd.Timedelta("1s")
    assert types(found) == dict(frames.SCALARS)


def test_scalars_are_chosen() -> None:
    job = trained(
        scalars([1.0, 2.0], logged_as="Loss/train"),
        scalars([3.0, 4.0], rank=1),
        scalars([5.0], "val_loss", mode="EVAL"),
        scalars([6.0], "custom", timed=False),
    )

    assert job.modes == ("TRAIN", "EVAL")
    assert job.scalars()["value"].tolist() == [1, 2, 5, 6]
    assert job.scalars(rank=None)["rank"].tolist() == [0, 0, 1, 1, 0, 0]
    assert job.scalars(re.compile("loss"), mode="EVAL")["name"].tolist() == ["val_loss"]
    assert job.scalars("Loss/train", raw=True)["logged_as"].tolist() == ["Loss/train"] * 2
    assert job.scalars(start="1s")["value"].tolist() == [2]
    assert job.window("1s").scalars("loss")["value"].tolist() == [2]
    untimed = job.scalars("custom")
    assert untimed[["time_us", "time", "since_start"]].isna().all(axis=None)
    assert untimed["value"].tolist() == [6]
    with pytest.raises(KeyError, match="did you mean val_loss"):
        job.scalars("val_los")


def test_the_loss_of_evaluations_is_another_series_though_both_are_logged_as_loss() -> None:
    job = trained(scalars([1.0]), scalars([2.0], "val_loss", mode="EVAL", logged_as="loss"))

    assert job.scalars("loss")["value"].tolist() == [1]
    assert job.scalars(re.compile("^loss"))["value"].tolist() == [1]
    assert job.scalars("val_loss", raw=True)["logged_as"].tolist() == ["loss"]


# Tensors


def test_statistics_are_of_finite_elements() -> None:
    found = trained(tensors=two_layers()).tensors(collection="gradient", step=10)

    assert types(found) == dict(frames.TENSORS)
    assert found["name"].tolist() == ["first.weight", "second.weight"]
    assert found["shape"].tolist() == [(10, 10)] * 2
    first = found.iloc[0]
    assert (first["count"], first["finite"], first["nan"], first["zero_share"]) == (100, 99, 1, 0.05)
    assert (first["rms"], first["mean"], first["std"]) == (1, 0, 1)
    assert first["l2"] == pytest.approx(np.sqrt(99))
    assert np.isnan(first["ratio"])


def test_a_statistic_has_a_column_for_each_tensor() -> None:
    job = trained(tensors=two_layers())

    wide = job.tensors(collection="gradient", statistic="rms")

    assert wide.index.tolist() == [10, 20]
    assert wide.index.name == "step"
    assert list(wide) == ["first.weight", "second.weight"]
    assert wide.to_numpy().tolist() == [[1, 3], [2, 4]]
    assert job.tensors(collection="update", statistic="ratio").median().tolist() == [1.5e-3]
    with pytest.raises(ValueError, match="one collection"):
        job.tensors(statistic="rms")
    with pytest.raises(KeyError, match="rms"):
        job.tensors(statistic="rmss")


def test_steps_of_records_are_chosen() -> None:
    job = trained(tensors=two_layers())

    assert job.tensors(step=slice(15, None))["step"].unique().tolist() == [20]
    with pytest.raises(KeyError, match="no recorded step 99; there are 10 to 20"):
        job.tensors(step=99)
    assert job.collections.to_dict("records") == [
        {"name": "gradient", "tensors": 2, "records": 4, "first_step": 10, "last_step": 20},
        {"name": "update", "tensors": 1, "records": 2, "first_step": 10, "last_step": 20},
    ]


def test_a_histogram_has_a_row_for_each_bin_with_elements() -> None:
    job = trained(tensors=two_layers())

    found = job.histograms("first.weight", collection="gradient", step=10)

    assert types(found) == dict(frames.HISTOGRAMS)
    columns = ["exponent", "low", "high", "count", "share"]
    assert found[columns].to_numpy().tolist() == [[-1, 0.25, 0.5, 1, 0.25], [0, 0.5, 1, 3, 0.75]]
    assert job.histograms("second.weight", collection="gradient")["step"].tolist() == [10, 10]


def test_quantiles_are_even_on_a_logarithmic_scale_within_a_bin() -> None:
    job = trained(tensors=two_layers())

    found = job.quantiles("first.weight", (0, 0.25, 0.5, 1), collection="gradient")

    assert found.attrs["from"] == "sampled histogram"
    assert found["p50"].tolist() == [pytest.approx(0.5 * 2 ** (1 / 3))] * 2
    assert found[["p0", "p25", "p100"]].iloc[0].tolist() == [0.25, 0.5, 1]
    empty = job.quantiles("second.weight", collection="gradient", step=20)
    assert empty["p50"].isna().tolist() == [True]
    with pytest.raises(ValueError, match="0 to 1"):
        job.quantiles(q=(5,))


def test_quantiles_are_those_of_the_elements_within_a_bin() -> None:
    rng = np.random.default_rng(5)
    elements = np.abs(rng.normal(size=5000)) * 1e-3
    counts: Any = np.histogram(elements, 2.0 ** np.arange(-41, 24))[0].astype(np.int32)
    job = trained(tensors=tensors({matrix("w"): [{"bins": counts}]}))

    for q in (0.05, 0.5, 0.95):
        found = job.quantiles("w", (q,)).iloc[0, 2]
        assert found == pytest.approx(np.quantile(elements, q), rel=0.15)


# Classes


def test_classes_have_recall_and_precision() -> None:
    job = trained(classes=(counted([4, 6, 0], [(0, 0, 3), (0, 1, 1), (1, 1, 6)]),))

    found = job.classes()

    assert types(found) == dict(frames.CLASSES)
    assert found["correct"].tolist() == [3, 6, 0]
    assert found["recall"].tolist()[:2] == [0.75, 1]
    assert np.isnan(found["recall"][2])
    assert found["precision"].tolist()[:2] == [1, pytest.approx(6 / 7)]
    assert np.isnan(found["precision"][2])


def test_pairs_that_were_not_recorded_are_unknown() -> None:
    some = replace(counted([4, 6], [(1, 1, 6)]), complete=False, predicted=np.array([3, 7]))

    found = trained(classes=(some,)).classes()

    assert found["correct"].isna().tolist() == [True, False]
    assert found[["recall", "precision"]].isna().to_numpy().tolist() == [[True, True], [False, False]]


def test_a_confusion_is_square_and_of_the_last_evaluation() -> None:
    first, last = counted([2, 1, 0], [(0, 1, 2)], step=50), counted([2, 1, 0], [(0, 0, 2), (1, 2, 1)])
    job = trained(classes=(first, replace(last, complete=False)))

    found = job.confusion()

    assert found.to_numpy().tolist() == [[2, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert (found.index.name, found.columns.name) == ("label", "predicted")
    assert (found.attrs["step"], found.attrs["complete"]) == (100, False)
    assert job.confusion(50).iloc[0, 1] == 2
    assert job.classes(slice(0, 60))["step"].unique().tolist() == [50]
    with pytest.raises(KeyError, match="there are 50 to 100"):
        job.confusion(7)


def test_a_frame_that_would_not_fit_is_refused() -> None:
    none = np.zeros(100_000, np.int64)
    counts = ClassCounts(step=0, mode="EVAL", labels=none, predicted=none, pairs=np.empty((0, 3), np.int64))

    with pytest.raises(ValueError, match="too large"):
        trained(classes=(counts,)).confusion()


# Files, and other tables


def test_shards_of_ranks_are_one_tensor(tmp_path: Path) -> None:
    """The vector of the specification: ranks with the norms 3 and 4."""
    for name, text in of_ranks(*SHARDS).items():
        assert isinstance(text, str)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    with open_job(tmp_path) as job:
        assert job.tensors(collection="gradient", statistic="l2").to_numpy().tolist() == [[5]]
        assert job.collections["name"].tolist() == ["parameter", "gradient", "update"]
        assert job.start == pd.Timestamp(LOGGED_US, unit="us", tz="UTC")
        assert len(job.export(tmp_path / "out", "csv", ["scalars", "tensors", "classes"])) == 3
    assert "(2, 4)" in (tmp_path / "out" / "tensors.csv").read_text()


def test_the_loss_lies_next_to_what_the_machine_did() -> None:
    series = scalars([2.0, 1.0])
    series = replace(series, time_us=START_US + np.array([1, 9]) * 10**6)
    job = opened(make_job(gpu=[10] * 10 + [90] * 10), learning=Learning(scalars=(series,)))

    use = job.samples("gpu_utilization", every="5s", wide=True).reset_index()
    found = pd.merge_asof(job.scalars("loss"), use, on="time")

    assert found["algo-1/gpu0/gpu_utilization"].tolist() == [10, 90]


# Nothing recorded


@pytest.mark.parametrize(
    ("job", "reasons"),
    [
        (opened(make_job(gpu=[1, 2])), {"nothing of the training itself was recorded"}),
        (trained(), {"no scalars were recorded", "no tensors were recorded", "no histograms were recorded",
                     "no labels and predictions were recorded"}),
    ],
    ids=["machine", "training"],
)  # fmt: skip
def test_what_was_not_recorded_is_an_empty_frame_with_the_reason(job: JobFrames, reasons: set[str]) -> None:
    found = {
        "scalars": job.scalars("loss"),
        "tensors": job.tensors("w", step=3),
        "histograms": job.histograms("w"),
        "classes": job.classes(),
    }

    assert {name: types(one) for name, one in found.items()} == {
        name: dict(getattr(frames, name.upper())) for name in found
    }
    empty = [
        *found.values(),
        job.collections,
        job.quantiles("w"),
        job.confusion(),
        job.tensors(statistic="rms"),
    ]
    assert all(len(one) == 0 for one in empty)
    assert {one.attrs["reason"] for one in empty} == reasons
    assert job.modes == ()


def test_columns_stay() -> None:
    assert " ".join(frames.SCALARS) == "time time_us since_start step mode rank name value source"
    assert " ".join(frames.TENSORS) == (
        "time time_us since_start step name collection shape count finite nan inf zero_share mean std min max rms l1 l2 "
        "positive ratio dead saturated"
    )
    assert " ".join(frames.CLASSES) == "step mode label labels predicted correct recall precision"
    assert " ".join(frames.LEARNING) == "kind name mode steps first_step largest"


# Two jobs


def test_the_first_step_that_differs_is_found() -> None:
    steps = np.arange(60)
    loss = 1 / (1 + steps)
    other = np.where(steps < 40, loss * (1 + 1e-7), loss * 1.01)
    known: Any = {"tensors": two_layers()}
    jobs = [
        trained(scalars(loss.tolist()), scalars([1.0], "lr"), **known),
        trained(scalars(other.tolist()), **known),
    ]

    found = jobs[0].compare(jobs[1]).learning

    assert found.iloc[0].to_dict() == {
        "kind": "scalar", "name": "loss", "mode": "TRAIN", "steps": 60, "first_step": 40, "largest": pytest.approx(0.01),
    }  # fmt: skip
    assert found[["kind", "name"]].to_numpy().tolist()[1:] == [
        ["gradient rms", "first.weight"], ["gradient rms", "second.weight"],
        ["update rms", "first.weight"], ["update ratio", "first.weight"],
    ]  # fmt: skip
    assert found["first_step"].isna().tolist() == [False, True, True, True, True]
    assert found["largest"].tolist()[1:] == [0, 0, 0, 0]
    assert jobs[0].compare(jobs[1], tolerance=0.1).learning["first_step"].isna().all()


@pytest.mark.parametrize(
    ("one", "other", "first", "largest"),
    [
        ([1.0, NAN], [1.0, NAN], None, 0),
        ([1.0, 2.0], [1.0, NAN], 1, INF),
        ([0.0, 1.0], [1.0, 1.0], 0, INF),
        ([INF, 1.0], [INF, 0.5], 1, 0.5),
    ],
)
def test_what_is_no_number_differs_from_what_is_one(
    one: list[float], other: list[float], first: int | None, largest: float
) -> None:
    ((*_, found_first, found_largest),) = frames.differences(
        trained(scalars(one)), trained(scalars(other)), 1e-6
    )

    assert (found_first, found_largest) == (first, largest)


def test_of_a_step_that_was_logged_twice_the_last_value_counts() -> None:
    one, other = trained(scalars([1, 9, 2], steps=[0, 1, 1])), trained(scalars([1, 2], steps=[0, 1]))

    ((*_, steps, first, largest),) = frames.differences(one, other, 1e-6)

    assert (steps, first, largest) == (2, None, 0)


# In the merged trace


def test_scalars_are_counters_and_marks_where_there_is_no_number(tmp_path: Path) -> None:
    job = learning_job(
        scalars([2.0, NAN, 1.9, -INF]), scalars([0.1], "lr"), scalars([3.0], mode="EVAL"), scalars([7.0], rank=1),
        scalars([8.0], "untimed", timed=False), node="algo-1",
    )  # fmt: skip

    summary = write_trace(job, tmp_path / "trace.json", learning=True)

    data = (tmp_path / "trace.json").read_bytes()
    rows = [(row["name"], row["ph"], row["ts"], row.get("args")) for row in checked(data)]
    assert rows == [
        ("loss", "C", 0, {"value": 2}),
        ("learning rate", "C", 0, {"value": 0.1}),
        ("loss (EVAL)", "C", 0, {"value": 3}),
        ("loss is NaN", "i", 10**6, None),
        ("loss", "C", 2 * 10**6, {"value": 1.9}),
        ("loss is infinite", "i", 3 * 10**6, None),
    ]
    assert summary.counters == 4
    assert summary.left_out == ("1\N{NO-BREAK SPACE}logged value without a time",)
    names = [row["args"]["name"] for row in json.loads(data)["traceEvents"] if row["name"] == "process_name"]
    assert names == ["training"]
    assert write_trace(job, tmp_path / "trace.json").counters == 0


def test_scalars_are_on_the_node_that_logged_them(tmp_path: Path) -> None:
    series = scalars([1.0, 2.0, 3.0])
    series = replace(series, time_us=START_US + np.array([0, 1, 10**4]) * 10**6)
    nodes = [make_job(gpu=[50] * 20, node=node) for node in ("algo-1", "algo-2")]
    job = replace(
        nodes[0],
        panels=nodes[0].panels + nodes[1].panels,
        learning=Learning(scalars=(series,), node="algo-2"),
    )

    summary = write_trace(job, tmp_path / "trace.json", metrics=(), learning=True)

    rows = checked((tmp_path / "trace.json").read_bytes())
    assert [(row["pid"], row["ts"]) for row in rows] == [(2_000_001, 0), (2_000_001, 10**6)]
    assert summary.left_out == ("1\N{NO-BREAK SPACE}logged value of another time",)
    soon = replace(series, time_us=START_US + np.array([-5, 1, 60]) * 10**6)
    later = replace(job, learning=Learning(scalars=(soon,), node="algo-2"))
    assert write_trace(later, tmp_path / "soon.json", learning=True).left_out == ()
    rows = checked((tmp_path / "soon.json").read_bytes())
    assert [row["ts"] for row in rows if row["name"] == "loss"] == [0, 6 * 10**6, 65 * 10**6]
