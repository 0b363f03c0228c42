"""What jobrecord records of real trainings is read: one rank, replicas, and shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobreport.options import Options
from jobreport.readers.registry import read_directory
from jobrules.model.learning import Collection

if TYPE_CHECKING:
    from pathlib import Path

    from jobrules.model.learning import Learning, TensorRecords
    from jobrules.model.types import FloatArray

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.slow

from tests.record.learning.test_ranks import DDP, FSDP2, run  # noqa: E402 - needs PyTorch


def read(folder: Path) -> tuple[Learning, TensorRecords]:
    reading = read_directory(folder, Options(strict=True))
    remarks = [one for source in reading.quality.sources for one in source.remarks]
    assert [one.code for one in remarks if one.code.startswith("learning")] == []
    learning = reading.job.learning
    assert learning
    assert learning.tensors
    return learning, learning.tensors


def column(tensors: TensorRecords, name: str, collection: Collection, tensor: str) -> FloatArray:
    """Values of a tensor, in the order of the steps."""
    known = [one.name == tensor and one.collection is collection for one in tensors.tensors]
    values: FloatArray = getattr(tensors, name)
    return values[[known[code] for code in tensors.tensor]]


def test_shards_have_the_norm_of_the_whole_gradient(tmp_path: Path) -> None:
    norms = run(tmp_path, FSDP2)
    learning, tensors = read(tmp_path)
    found = column(tensors, "l2", Collection.GRADIENT, "0.weight")
    assert found.tolist() == pytest.approx(norms, rel=1e-3)
    assert column(tensors, "count", Collection.PARAMETER, "0.weight").tolist() == [56, 56]
    assert (column(tensors, "ratio", Collection.UPDATE, "0.weight") > 0).all()
    assert column(tensors, "count", Collection.GRADIENT, "2.bias").tolist() == [1, 1]
    assert (learning.ranks, learning.world_size, learning.sharding) == ((0, 1), 2, "fsdp2")
    assert [one.rank for one in learning.scalars if one.name == "loss"] == [0, 1]

    (tmp_path / "jobrecord" / "training-00001.jsonl").unlink()
    alone = read_directory(tmp_path).job.learning
    assert alone
    assert alone.tensors
    assert not len(column(alone.tensors, "l2", Collection.GRADIENT, "0.weight"))
    assert (alone.ranks, alone.world_size) == ((0,), 2)


def test_replicas_are_equal_and_count_once(tmp_path: Path) -> None:
    norms = run(tmp_path, DDP)
    learning, tensors = read(tmp_path)
    assert column(tensors, "l2", Collection.GRADIENT, "0.weight").tolist() == pytest.approx(norms, rel=1e-3)
    assert (learning.replicas, learning.ranks, learning.sharding) == ((), (0, 1), "ddp")
