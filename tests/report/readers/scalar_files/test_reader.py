"""Numbers of a training in plain files: known by their content, and read without times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from jobreport.errors import NothingReadableError, UsageError
from jobreport.options import Options
from jobreport.readers.registry import read_directory
from tests.paths import CORPUS, SAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from jobreport.readers.registry import Reading

LIGHTNING = (
    "epoch,step,train_loss,val_loss,lr-Adam\n0,9,1.5,,0.1\n0,19,1.25,,0.1\n0,19,,2.0,\n1,29,nan,,0.1\n"
)


def read(folder: Path, files: dict[str, str], **options: Any) -> Reading:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return read_directory(folder, Options(strict=True, **options))


def series(reading: Reading) -> dict[str, tuple[list[int], list[float]]]:
    """Steps and values by name."""
    assert reading.job.learning
    return {one.name: (one.step.tolist(), one.value.tolist()) for one in reading.job.learning.scalars}


def remarks(reading: Reading) -> list[tuple[str, int]]:
    found = [one for source in reading.quality.sources for one in source.remarks]
    return sorted((one.code, one.count) for one in (*found, *reading.quality.remarks))


def state(steps: range, loss: float = 1.0, **more: Any) -> str:
    history = [
        {"epoch": 0.1, "learning_rate": 1e-4, "loss": loss / (step + 1), "step": step} for step in steps
    ]
    history += [{"eval_loss": 0.5, "eval_runtime": 3.0, "eval_samples_per_second": 9.0, "step": steps[-1]}]
    history += [{"train_runtime": 60.0, "train_loss": 0.7, "total_flos": 1e9, "step": steps[-1]}]
    return json.dumps({"epoch": 1.0, "global_step": steps[-1], "log_history": history} | more)


def test_blank_cells_are_no_values(tmp_path: Path) -> None:
    reading = read(tmp_path, {"lightning_logs/version_0/metrics.csv": LIGHTNING})
    found = series(reading)
    assert found["val_loss"] == ([19], [2.0])
    assert found["lr"] == ([9, 19, 29], [0.1] * 3)
    assert (found["loss"][0], np.isnan(found["loss"][1]).tolist()) == ([9, 19, 29], [False, False, True])
    assert remarks(reading) == []


@pytest.mark.parametrize(
    ("content", "expected", "left"),
    [
        ("Step;Loss\n1;2\n2;1,5\n", ([1], [2.0]), [("learning.value", 1)]),
        ("iteration\tloss\n1\t2\n2\t1\n", ([1, 2], [2.0, 1.0]), []),
        ('step,"loss"\r\n1,"2"\r\n2,1\r\n', ([1, 2], [2.0, 1.0]), []),
        ("\ufeffstep,loss\n1,2\n,3\nx,4\n1.5,5\n-1,6\n3\n4,1,1\n5,1", ([1, 5], [2.0, 1.0]), [("learning.row", 6)]),
        ("epoch, accuracy , loss\n0,N/A,2\n", ([0], [2.0]), [("learning.epochs", 1)]),
        # Steps of an epoch, and of the whole training.
        ("epoch,step,loss\n0,0,5\n0,9,4\n1,0,3\n1,9,2\n1,0,1\n", ([0, 9, 18, 27], [5.0, 4.0, 1.0, 2.0]), [("learning.again", 1), ("learning.counted_on", 1)]),
        ("step,global_step,loss\n0,7,2\n0,8,1\n", ([7, 8], [2.0, 1.0]), []),
        # Rows of two parts of the data.
        ("step,split,loss\n1,train,2\n1,Val,9\n2,train,1\n", ([1, 2], [2.0, 1.0]), []),
        ("epoch,step,loss\n0,9e11,5\n1,0,4\n2,9e11,3\n3,0,2\n", ([9 * 10**11, 9 * 10**11 + 1, 10**12, 10**12], [5.0, 4.0, 3.0, 2.0]), [("learning.counted_on", 1)]),
        ("step,loss\n1,2\n5,3\n3,4\n5,5\n", ([1, 3, 5], [2.0, 4.0, 5.0]), [("learning.again", 1)]),
        ("step,loss\n1,inf\n2,1e999\n", ([1, 2], [np.inf, np.inf]), []),
    ],
)  # fmt: skip
def test_rows_are_read_or_counted(tmp_path: Path, content: str, expected: Any, left: Any) -> None:
    reading = read(tmp_path, {"training.log": content})
    assert (series(reading)["loss"], remarks(reading)) == (expected, left)


def test_seconds_since_the_epoch_are_times(tmp_path: Path) -> None:
    reading = read(tmp_path, {"a.csv": "timestamp,step,loss\n1741514400.5,1,2\nlater,2,1\n"})
    assert reading.job.learning
    assert reading.job.learning.scalars[0].time_us.tolist() == [1_741_514_400_500_000, 0]
    assert reading.job.span_us == (1_741_514_400_500_000,) * 2


def test_a_table_that_goes_on_is_joined_and_one_that_begins_again_replaces_it(tmp_path: Path) -> None:
    tables = {f"version_{i}/metrics.csv": f"step,loss\n{rows}" for i, rows in enumerate(("0,9\n", "0,5\n5,4\n7,3\n", "5,2\n6,1\n"))}  # fmt: skip
    reading = read(tmp_path, tables)
    assert series(reading) == {"loss": ([0, 5, 6, 7], [5.0, 2.0, 1.0, 3.0])}
    assert remarks(reading) == [("learning.again", 1), ("learning.other_run", 1)]


def test_of_two_candidates_the_one_with_more_values_is_used(tmp_path: Path) -> None:
    tables = {
        "a.csv": "step,loss\n1,1\n2,2\n3,3\n",
        "b.csv": "step,train/loss,x\n1,7\n4,8\n",
        "c.csv": "step,loss,y\n1,2,3\n",
    }
    tables["b.csv"] = "step,train/loss,x\n1,7,0\n4,8,0\n"
    reading = read(tmp_path / "a", tables)
    assert {name: steps for name, (steps, _) in series(reading).items()} == {
        "loss": [1, 2, 3], "train/loss": [1, 4], "loss (CSV 3)": [1], "x": [1, 4], "y": [1],
    }  # fmt: skip
    assert remarks(reading) == [("learning.candidate", 1), ("learning.candidate", 1)]

    reading = read(tmp_path / "a", {}, scalar={"loss": "train/loss"})
    assert series(reading)["loss"] == ([1, 4], [7.0, 8.0])
    assert {"loss (CSV)", "loss (CSV 3)"} < series(reading).keys()


@pytest.mark.parametrize(
    ("given", "says"), [({"loss": "absent"}, "Logged: loss"), ({"los": "loss"}, "not one of")]
)
def test_a_choice_that_is_not_there_is_refused(tmp_path: Path, given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(tmp_path, {"a.csv": "step,loss\n1,1\n"}, scalar=given)


def test_the_same_values_of_two_sources_are_one_series(tmp_path: Path) -> None:
    tables = {"a.csv": "step,loss\n1,1\n2,2\n", "trainer_state.json": json.dumps({"global_step": 2, "log_history": [{"step": 2, "loss": 2.0000001}, {"step": 3, "loss": 3}]})}  # fmt: skip
    reading = read(tmp_path, tables)
    assert (series(reading), remarks(reading)) == ({"loss": ([1, 2, 3], [1.0, 2.0, 3.0])}, [])


def test_the_state_of_a_trainer_has_no_times_and_no_summary(tmp_path: Path) -> None:
    files = {"out/trainer_state.json": state(range(0, 30, 10)), "out/checkpoint-9/trainer_state.json": state(range(0, 20, 10))}  # fmt: skip
    reading = read(tmp_path, files)
    found = series(reading)
    assert (found["loss"][0], found["val_loss"], found["lr"][0]) == ([0, 10, 20], ([20], [0.5]), [0, 10, 20])
    assert found.keys() == {"loss", "val_loss", "lr"}
    assert (remarks(reading), reading.job.span_us) == ([], (0, 0))

    reading = read(tmp_path, {"other/trainer_state.json": state(range(0, 60, 10), loss=9)})
    assert (len(series(reading)["loss"][0]), remarks(reading)) == (6, [("learning.other_run", 2)])


@pytest.mark.parametrize("damage", ["cut", '"log_history": 1', '"log_history": [1, {"step": "x"}]', "NaN"])
def test_a_damaged_state_is_counted(tmp_path: Path, damage: str) -> None:
    text = state(range(3))
    text = {"cut": text[:-9], "NaN": text.replace('"loss": 1.0', '"loss": NaN')}.get(
        damage, f'{{"global_step": 3, {damage}}}'
    )
    reading = read(tmp_path, {"a.csv": "step,loss\n1,1\n2,1\n3,1\n4,1\n", "trainer_state.json": text})
    assert len(remarks(reading)) >= 1


def test_an_acceleration_is_no_accuracy(tmp_path: Path) -> None:
    with pytest.raises(NothingReadableError):
        read(tmp_path, {"walk.csv": "step,acc_x,acc_y\n1,2,3\n2,2,3\n"})


@pytest.mark.parametrize("more", ["", ",epoch"])
def test_rows_in_any_order_are_those_of_a_data_set(tmp_path: Path, more: str) -> None:
    rows = "".join(f"{i * 37 % 50},{i}{more and ',1'}\n" for i in range(50))
    (tmp_path / "claims.csv").write_text(f"iteration,loss{more}\n{rows}")
    if more:
        assert series(read(tmp_path, {}))
    else:
        with pytest.raises(NothingReadableError):
            read(tmp_path, {})


def test_where_no_loss_is_known_a_remark_says_how_to_choose_it(tmp_path: Path) -> None:
    table = {"results.csv": "step,train/box_loss,val/box_loss\n1,2,3\n2,2,3\n"}
    assert remarks(read(tmp_path, table)) == [("learning.no_loss", 2)]
    assert remarks(read(tmp_path, {}, scalar={"loss": "train/box_loss"})) == []


def test_states_of_two_trainings_are_not_mixed(tmp_path: Path) -> None:
    files = {"first/trainer_state.json": state(range(1, 20, 3)), "second/trainer_state.json": state(range(10, 90, 10), loss=9)}  # fmt: skip
    reading = read(tmp_path, files)
    assert (series(reading)["loss"][0][0], remarks(reading)) == (10, [("learning.other_run", 1)])


def test_a_log_of_a_gpu_with_a_loss_stays_a_log(tmp_path: Path) -> None:
    rows = "".join(f"2025-03-09 10:00:{i:02},0,{i},50 %\n" for i in range(20))
    reading = read(tmp_path, {"gpu.csv": "timestamp,index,loss step,utilization.gpu [%]\n" + rows})
    assert (reading.job.gpu_count, reading.job.learning) == (1, None)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_files_of_other_readers_are_left_alone(sample: Path) -> None:
    assert read_directory(sample, Options(strict=True)).job.learning is None


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("hf-trainer_state-aigoncharov.json", {"loss": 30, "lr": 30, "grad_norm": 30, "eval_g0_loss": 31}),
        ("keras-csvlogger-4hmetcakmak.csv", {"loss": 24, "val_loss": 24, "accuracy": 24, "val_accuracy": 24}),
        ("ultralytics-results-07yatin.csv", {"train/box_loss": 50, "val/box_loss": 50}),
    ],
)
def test_real_files_are_read(file: str, names: dict[str, int]) -> None:
    path = CORPUS / "more" / "csv-trackers" / file
    if not path.is_file():
        pytest.skip(f"no real file at {path}")
    found = {name: len(steps) for name, (steps, _) in series(read_directory(path)).items()}
    assert found | names == found
