"""What jobrecord wrote of a training: each damaged line costs itself, and ranks and restarts are one training."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.readers import series
from jobreport.readers.base import SourceFile
from jobreport.readers.learning import rows
from jobreport.readers.learning.reader import TrainingLogs
from jobreport.readers.learning.rows import Rows
from jobreport.readers.registry import read_directory
from jobrules.model.learning import Collection, Learning, Training
from tests.report.readers.samples import write

if TYPE_CHECKING:
    from pathlib import Path

START_US = 1_741_514_400_000_000
HEAD = {"jobrecord": 1, "kind": "head", "time_us": START_US, "node": "n", "rank": 0, "world": 1, "pid": 7}
TENSORS = [
    {"n": "0.weight", "c": "gradient", "shape": [2, 4], "dtype": "torch.float32", "m": "Linear", "order": 1},
    {"n": "0.weight", "c": "parameter", "shape": [2, 4], "dtype": "torch.float32", "order": 0},
]
NAMES = {"kind": "names", "first": 0, "tensors": TENSORS}


def scalar(step: int, mode: Any = "TRAIN", **values: Any) -> dict[str, Any]:
    time_us = START_US + step * 1_000_000
    return {"kind": "scalar", "step": step, "mode": mode, "time_us": time_us, "values": values}


def record(step: int, ids: list[int], **columns: Any) -> dict[str, Any]:
    time_us = START_US + step * 1_000_000
    known = {"kind": "record", "step": step, "mode": "TRAIN", "time_us": time_us, "cost_us": 10, "id": ids}
    return known | {"count": [8] * len(ids), "nan": [0] * len(ids), "inf": [0] * len(ids)} | columns


def text(*lines: Any) -> str:
    return "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines)


def read(
    folder: Path, files: dict[str, str | bytes], **options: Any
) -> tuple[Learning, list[tuple[str, int]]]:
    """The training in files, and the remarks on them."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    found = read_directory(folder, Options(strict=True, **options))
    assert found.job.learning
    remarks = [one for source in found.quality.sources for one in source.remarks]
    return found.job.learning, sorted((one.code, one.count) for one in (*remarks, *found.quality.remarks))


def logged(folder: Path, *lines: Any) -> tuple[Learning, list[tuple[str, int]]]:
    return read(folder, {"jobrecord/training-00000.jsonl": text(HEAD, *lines)})


def values(found: Learning, name: str = "loss") -> dict[int, float]:
    series = found.series(name)
    assert series
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


def test_all_kinds_of_lines_are_read(tmp_path: Path) -> None:
    found, remarks = logged(
        tmp_path,
        NAMES,
        record(5, [1, 0], l2=[2.0, 1.0], sum=[4.0, None], hist_first=[-3, None], hist=[[1, 2], None]),
        scalar(5, loss=2, lr=0.1),
        scalar(5, "EVAL", loss="inf", accuracy=0.5),
        {"kind": "classes", "step": 5, "mode": "EVAL", "labels": [3, 1], "predicted": [2, 2], "pairs": [[0, 0, 2], [0, 1, 1], [1, 1, 1]]},
        {"kind": "event", "step": 6, "time_us": START_US, "name": "overflow", "text": "scale 1"},
        {"kind": "trees", "step": 6, "importance": {"a": 1, "b": 2}, "depths": [3, 4], "max_depth": 6},
        {"kind": "end", "step": 6, "time_us": START_US, "reason": "finished"},
    )  # fmt: skip

    assert remarks == []
    assert [(one.name, one.mode, one.rank, len(one)) for one in found.scalars] == [
        ("loss", "TRAIN", 0, 1),
        ("lr", "TRAIN", 0, 1),
        ("val_accuracy", "EVAL", 0, 1),
        ("val_loss", "EVAL", 0, 1),
    ]
    assert values(found, "val_loss") == {5: np.inf}
    tensors = found.tensors
    assert tensors
    assert [(one.collection, one.shape, one.dtype, one.module) for one in tensors.tensors] == [
        (Collection.PARAMETER, (2, 4), "float32", ""),
        (Collection.GRADIENT, (2, 4), "float32", "Linear"),
    ]
    assert (tensors.tensor.tolist(), tensors.l2.tolist(), tensors.step.tolist()) == ([0, 1], [2, 1], [5, 5])
    assert (tensors.sum[0], bool(np.isnan([tensors.sum[1], *tensors.ratio]).all())) == (4, True)
    assert (tensors.bins[0, 37:40].tolist(), tensors.bins.sum()) == ([1, 2, 0], 3)
    assert [(one.recall.tolist(), one.complete) for one in found.classes] == [([2 / 3, 1], True)]
    assert [(one.name, one.step, one.text) for one in found.events] == [("overflow", 6, "scale 1")]
    assert found.trees
    assert (found.trees.importance, found.trees.depths) == ((("b", 2.0), ("a", 1.0)), (3, 4))
    assert (found.node, found.ranks, found.world_size, found.cost_us) == ("n", (0,), 1, 10)
    assert {Training.LOSS, Training.VALIDATION, Training.GRADIENT, Training.CLASSES} <= found.has


@pytest.mark.parametrize(
    ("line", "code", "count"),
    [
        ('{"kind":"scalar","step":9,"val', "learning.line", 1),
        ("[]", "learning.line", 1),
        ("", "learning.line", 1),
        ('{"kind":"unheard of"}', "learning.line", 1),
        (scalar(-1, loss=1), "learning.line", 1),
        (scalar(3, "test", loss=1), "learning.line", 1),
        (scalar(3, loss=[1]), "learning.line", 1),
        (scalar(3, loss="high"), "learning.value", 1),
        (record(1, [0, 1], l2=[1.0]), "learning.line", 1),
        (record(1, [0], hist_first=[23], hist=[[1, 1]]), "learning.line", 1),
        (record(1, [0], hist_first=[None], hist=[[1, 1]]), "learning.line", 1),
        (record(1, [0], hist_first=[0]), "learning.line", 1),
        (record(1, [0, 17], l2=[1.0, 2.0]), "learning.unnamed", 1),
        (record(1, [0, 1]) | {"mode": "EVAL"}, "learning.other_mode", 2),
        ('{"kind":"scalar","step":9,"mode":"TRAIN","values":{"lr":NaN}}', "learning.bare", 1),
        ("[" * 100_000, "learning.line", 1),
        ({"kind": "classes", "step": 1, "mode": "EVAL", "labels": [1], "predicted": [1, 2], "pairs": []}, "learning.line", 1),
        ({"kind": "classes", "step": 1, "mode": "EVAL", "labels": [1], "predicted": [1], "pairs": [[0, 1, 1]]}, "learning.line", 1),
    ],
)  # fmt: skip
def test_a_damaged_line_costs_itself(tmp_path: Path, line: Any, code: str, count: int) -> None:
    found, remarks = logged(tmp_path, NAMES, scalar(1, loss=2), line, scalar(2, loss=1))

    assert values(found) == {1: 2, 2: 1}
    assert remarks == [(code, count)]


@pytest.mark.parametrize("first", [{"kind": "scalar"}, HEAD | {"jobrecord": 2}, "x", ""])
def test_a_log_of_another_kind_is_skipped(tmp_path: Path, first: Any) -> None:
    write(tmp_path, {"jobrecord/training-00000.jsonl": text(first, scalar(1, loss=1))})
    with pytest.raises(NothingReadableError, match=r"not what jobrecord writes|empty"):
        read_directory(tmp_path)


def test_numbers_that_json_does_not_have_are_read(tmp_path: Path) -> None:
    line = '{"kind":"scalar","step":1,"mode":"TRAIN","values":{"loss":NaN, "a":-Infinity,"b":1,"c: NaN":2}}'
    rows = '{"kind":"record","step":1,"id":[0],"l2":[NaN],"count":[8]}'
    found, remarks = logged(tmp_path, NAMES, line, rows)
    got = {one.name: one.value[0] for one in found.scalars}
    assert (np.isnan(got["loss"]), got["a"], got["b"]) == (True, -np.inf, 1)
    assert found.tensors
    assert (np.isnan(found.tensors.l2[0]), remarks) == (True, [("learning.bare", 2)])


def test_a_file_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    whole = text(HEAD, *(scalar(i, loss=i) for i in range(2000))).encode()
    packed = gzip.compress(whole)

    found, remarks = read(tmp_path / "a", {"jobrecord/training-00000.jsonl": whole[:-10]})
    assert (len(values(found)), remarks) == (1999, [("learning.line", 1)])
    found, remarks = read(tmp_path / "b", {"jobrecord/training-00000.jsonl.gz": packed[: len(packed) // 2]})
    assert 100 < len(values(found)) < 1999
    assert ("file.cut", 1) in remarks


def test_steps_that_are_repeated_count_once(tmp_path: Path) -> None:
    steps = [*range(10), *range(5, 12)]
    lines = [scalar(step, loss=i) for i, step in enumerate(steps)]
    found, _ = logged(tmp_path, *lines, scalar(12, loss=1), scalar(12, loss=2))
    series = found.series("loss")
    assert series
    assert series.value.tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 1, 2]


def test_a_job_that_was_started_again_goes_on(tmp_path: Path) -> None:
    again = HEAD | {"time_us": START_US + 10**9, "pid": 9}
    first = text(
        HEAD,
        NAMES,
        *(scalar(i, loss=1) for i in range(10)),
        record(0, [0], l2=[1.0]),
        record(8, [0], l2=[1.0]),
    )
    second = text(again, NAMES, *(scalar(i, loss=2) for i in range(6, 14)), record(8, [0], l2=[3.0]))  # fmt: skip
    files: dict[str, str | bytes] = {
        "jobrecord/training-00000.jsonl": first,
        "jobrecord/training-00000-2.jsonl": second,
        "copy/jobrecord/training-00000.jsonl": first,
    }

    found, remarks = read(tmp_path, files)

    assert values(found) == dict.fromkeys(range(6), 1) | dict.fromkeys(range(6, 14), 2)
    assert found.tensors
    assert (found.tensors.step.tolist(), found.tensors.l2.tolist()) == ([0, 8], [1, 3])
    assert remarks == [("learning.again", 4), ("learning.copy", 1), ("learning.rows_again", 1)]


def test_a_start_from_before_another_is_a_training_of_its_own(tmp_path: Path) -> None:
    again = HEAD | {"time_us": START_US + 10**9, "pid": 9}
    found, remarks = read(
        tmp_path,
        {
            "jobrecord/training-00000.jsonl": text(HEAD, *(scalar(i, loss=1) for i in range(5, 10))),
            "jobrecord/training-00000-2.jsonl": text(again, *(scalar(i, loss=2) for i in range(3))),
        },
    )
    assert values(found) == dict.fromkeys(range(3), 2)
    assert remarks == [("learning.not_continued", 1)]


def test_of_too_many_rows_evenly_distributed_records_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_BATCH", 7)
    monkeypatch.setattr(Rows.__init__, "__defaults__", (100,))
    lines = [record(step, [0, 1], l2=[step, step]) for step in range(0, 3300, 10)]
    found, remarks = logged(tmp_path, NAMES, *lines)
    assert found.tensors
    assert found.tensors.step.tolist() == [step for step in range(0, 3300, 80) for _ in range(2)]
    assert remarks == [("learning.thinned", 660 - len(found.tensors))]


def test_of_too_many_values_those_that_are_not_finite_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MAX_VALUES", 100)
    found, remarks = logged(tmp_path, *(scalar(i, loss="nan" if i in (77, 903) else i) for i in range(1000)))
    kept = found.series("loss")
    assert kept
    assert {77, 903} < {*kept.step.tolist()}
    assert {*np.diff(kept.step[kept.finite]).tolist()} == {16, 17}
    assert 50 < len(kept) <= 100
    assert remarks == [("learning.thinned_values", 1000 - len(kept))]


def sharded(rank: int, world: int = 2, **known: Any) -> dict[str, Any]:
    return HEAD | {"rank": rank, "world": world, "sharding": "fsdp2", "pid": rank} | known


def of_ranks(*texts: str) -> dict[str, str | bytes]:
    return {f"jobrecord/training-{rank:05}.jsonl": one for rank, one in enumerate(texts)}


UPDATE = {"kind": "names", "first": 2, "tensors": [{"n": "0.weight", "c": "update", "shape": [2, 4]}]}
SHARDS = [
    text(sharded(rank), NAMES, UPDATE,
         record(0, [0, 1, 2], count=[count] * 3, l2=[l2, weight, 0.0], ratio=[None, None, ratio],
                sum=[1, 1, 1], min=[low, 0, 0], max=[low + 2, 0, 0], zero=[1, 0, 0], positive=[share, 0, 0],
                hist_first=[first, 0, 0], hist=[[count - 1], [], []]))
    for rank, (count, l2, weight, ratio, low, share, first) in enumerate(
        [(2, 3.0, 10.0, 0.1, -5.0, 1.0, -40), (6, 4.0, 0.0, None, -7.0, 0.2, 23)]
    )
]  # fmt: skip


def test_shards_are_joined(tmp_path: Path) -> None:
    """The vector of the specification, and all other columns."""
    found, remarks = read(tmp_path, of_ranks(*SHARDS))
    assert found.tensors
    rows = {found.tensors.tensors[code].collection: i for i, code in enumerate(found.tensors.tensor.tolist())}
    i = rows[Collection.GRADIENT]

    def columns(*names: str) -> list[float]:
        return [float(getattr(found.tensors, name)[i]) for name in names]

    assert columns("l2", "count", "sum", "zero", "min", "max") == [5, 8, 2, 2, -7, -3]
    assert columns("positive") == [pytest.approx((1 * 1 + 0.2 * 5) / 6)]
    assert (found.tensors.bins[i, [0, 63]].tolist(), found.tensors.bins[i].sum()) == ([1, 5], 6)
    assert found.tensors.ratio[rows[Collection.UPDATE]] == pytest.approx(0.1)
    assert (found.ranks, remarks) == ((0, 1), [])


def test_a_norm_over_missing_shards_is_not_given(tmp_path: Path) -> None:
    found, remarks = read(
        tmp_path,
        of_ranks(SHARDS[0]) | {"jobrecord/training-00001.jsonl": text(sharded(1), scalar(1, loss=1))},
    )
    assert (found.tensors, remarks) == (None, [("learning.incomplete", 3)])

    found, remarks = read(
        tmp_path, of_ranks(text(sharded(0, 3), NAMES, record(0, [0], l2=[1.0])) + text(scalar(1, loss=1)))
    )
    assert found.tensors  # the whole tensor is on this rank
    assert (found.ranks, found.world_size) == ((0, 1), 3)


def test_replicas_are_compared_and_count_once(tmp_path: Path) -> None:
    ranks = [
        text(sharded(rank, sharding="ddp"), NAMES, *(record(step, [0, 1], l2=[l2, l2]) for step in (0, 1)))
        for rank, l2 in enumerate((1.0, 1.0005, 1.01))
    ]
    found, _ = read(tmp_path, of_ranks(*ranks))
    assert found.tensors
    assert found.tensors.l2.tolist() == [1, 1, 1, 1]
    assert [(one.step, one.tensor, one.low, one.high, one.low_rank, one.high_rank) for one in found.replicas] == [
        (0, "0.weight", 1.0, 1.01, 0, 2),
        (1, "0.weight", 1.0, 1.01, 0, 2),
    ]  # fmt: skip


def test_a_file_that_is_cut_anywhere_gives_what_comes_before(tmp_path: Path) -> None:
    whole = text(HEAD, NAMES, record(0, [0], l2=[1.0]), *(scalar(i, loss=i) for i in range(3))).encode()
    place = tmp_path / "training-00000.jsonl"
    reader = TrainingLogs()
    for size in range(len(whole)):
        place.write_bytes(whole[:size])
        file = SourceFile(name="jobrecord/training-00000.jsonl", place=str(place), size=size)
        found = reader.read([file])
        # Without its end, a line is as whole as with it.
        read = whole[: size + 1].count(b"\n")
        assert [len(one.scalars[0]) for one in found.learning if one.scalars] == [read - 3] * (read > 3)
        is_whole = read and (whole + b"\n")[size - 1 : size + 1].count(b"\n") == 1
        assert len(found.quality.remarks) == (not is_whole)


def test_a_line_that_is_too_long_costs_itself(tmp_path: Path) -> None:
    """One is longer than the limit, and one has more numbers than any record."""
    numbers = f'{{"kind":"record","step":1,"id":[{"0," * 5_000_000}0]}}'
    found, remarks = logged(tmp_path, scalar(1, loss=1), "x" * (70 << 20), numbers, scalar(2, loss=2))
    assert (values(found), remarks) == ({1: 1, 2: 2}, [("learning.line", 2)])


def test_groups_that_have_all_shards_each_count_once(tmp_path: Path) -> None:
    ranks = [
        text(sharded(rank, 4), NAMES, record(0, [0], count=[4], l2=[l2], sum=[1], hist_first=[0], hist=[[4]]))
        for rank, l2 in enumerate((3.0, 4.0, 3.0, 4.0))
    ]
    tensors = read(tmp_path, of_ranks(*ranks))[0].tensors
    assert tensors
    assert (tensors.l2[0], tensors.count[0], tensors.sum[0], tensors.bins.sum()) == (
        pytest.approx(5),
        8,
        2,
        8,
    )


def test_stages_of_a_pipeline_have_tensors_of_their_own(tmp_path: Path) -> None:
    ranks = []
    for rank in range(2):
        named = NAMES | {"tensors": [TENSORS[0] | {"n": f"{rank}.weight"}]}
        ranks.append(text(sharded(rank, sharding="other"), named, record(0, [0], l2=[rank + 1.0])))
    found, _ = read(tmp_path, of_ranks(*ranks))
    assert found.tensors
    assert (found.tensors.l2.tolist(), found.replicas) == ([1, 2], ())
    assert [one.name for one in found.tensors.tensors] == ["0.weight", "1.weight"]


def test_what_all_ranks_count_of_an_evaluation_is_added(tmp_path: Path) -> None:
    line = {"kind": "classes", "step": 5, "mode": "EVAL", "labels": [3, 1], "predicted": [2, 2]}
    one = line | {"pairs": [[0, 0, 2], [0, 1, 1], [1, 1, 1]]}
    other = line | {"labels": [0, 0, 4], "predicted": [0, 1, 3], "pairs": [[2, 2, 3], [2, 1, 1]]}
    files = of_ranks(text(sharded(0), one, one), text(sharded(1), other))

    first, second = read(tmp_path, files)[0].classes

    assert (first.labels.tolist(), first.predicted.tolist()) == ([3, 1, 4], [2, 3, 3])
    assert (first.recall.tolist(), first.complete) == ([2 / 3, 1, 3 / 4], True)
    assert second.labels.tolist() == [3, 1]


def test_what_is_known_later_is_in_a_later_head(tmp_path: Path) -> None:
    later = HEAD | {"rank": 3, "optimizer": "AdamW", "every": 100, "not_recorded": ["a: b"], "classes": 10}
    found, remarks = logged(tmp_path, scalar(1, loss=1), later)
    assert (found.optimizer, found.every, found.class_count, found.not_recorded) == (
        "AdamW",
        100,
        10,
        ("a: b",),
    )
    assert (found.ranks, remarks) == ((0,), [])
