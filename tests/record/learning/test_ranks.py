"""Several ranks: replicas, and shards that join exactly. Each runs as a process of its own, with gloo."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.record.learning.trained import head, rows, steps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BEGIN = """
import json, os, sys, torch, jobrecord
import torch.distributed as dist
from torch import nn
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 1))
jobrecord.start()
"""
TRAIN = """
norms, local = [], []
for step in range(STEPS):
    optimizer.zero_grad()
    torch.manual_seed(100 * step + rank)
    loss = model(torch.randn(4, 8)).square().mean() * (1 + 9 * rank)
    loss.backward()
    norms.append(full(model).norm().item())
    jobrecord.log(loss=loss)
    optimizer.step()
jobrecord.stop()
if rank == 0:
    print(json.dumps(norms))
dist.destroy_process_group()
"""
DDP = """
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
STEPS = 11
jobrecord.learn(model, optimizer, every=1, budget=1)
full = lambda model: model.module[0].weight.grad
"""
FSDP2 = """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for one in (model[0], model[2], model):
    fully_shard(one, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
STEPS = 2
jobrecord.learn(model, optimizer, budget=1)
full = lambda model: model[0].weight.grad.full_tensor()
"""
FSDP1 = """
from torch.distributed.fsdp import FullyShardedDataParallel
model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
STEPS = 2
jobrecord.learn(model, optimizer, budget=1)
def full(model):
    square = sum(one.grad.square().sum() for one in model.parameters() if one.grad is not None)
    dist.all_reduce(square)
    return square.sqrt()
"""
#: Each shard is on both ranks.
HYBRID = FSDP2.replace("(dist.get_world_size(),)", '(2, 1), mesh_dim_names=("copies", "shards")')


def run(out: Path, code: str) -> Any:
    """Run two ranks. Returns what the first one printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"JOBRECORD_DIR": str(out), "JOBRECORD_NODE": "n", "JOBRECORD_RUN": "r", "WORLD_SIZE": "2"}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BEGIN + code + TRAIN],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        ended = [one.communicate(timeout=120) for one in processes]
    finally:
        for one in processes:
            one.kill()
    assert [one.returncode for one in processes] == [0, 0], [text[-2000:] for _, text in ended]
    return json.loads(ended[0][0])


def names(out: Path) -> list[str]:
    return sorted(one.name for one in (out / "jobrecord").glob("training-*"))


def test_replicas_have_the_joined_gradient_and_one_of_them_writes_it(tmp_path: Path) -> None:
    norms = run(tmp_path, DDP)

    first, second = names(tmp_path)
    gradients = rows(tmp_path, "gradient")
    assert [gradients["0.weight", step]["l2"] for step in range(11)] == pytest.approx(norms, rel=1e-3)
    assert (head(tmp_path)["sharding"], head(tmp_path)["world"]) == ("ddp", 2)
    # The other rank has the norms of its weights in each tenth record, and nothing else.
    assert [steps(tmp_path, one, second) for one in ("parameter", "gradient", "update", "output")] == [
        [0, 10],
        [],
        [],
        [],
    ]
    ours, theirs = (rows(tmp_path, "parameter", name) for name in (first, second))
    assert all(ours[key]["l2"] == row["l2"] for key, row in theirs.items())


def test_shards_join_to_the_whole(tmp_path: Path) -> None:
    norms = run(tmp_path, FSDP2)

    every = [rows(tmp_path, "gradient", name) for name in names(tmp_path)]
    for step, norm in enumerate(norms):
        shards = [of_rank["0.weight", step] for of_rank in every]
        assert sum(one["l2"] ** 2 for one in shards) ** 0.5 == pytest.approx(norm, rel=1e-3)
        assert [one["count"] for one in shards] == [32, 24]
        assert {tuple(one["shape"]) for one in shards} == {(7, 8)}
    # The weight of one row is on one rank.
    assert [of_rank["2.bias", 0]["count"] for of_rank in every] == [1, 0]
    assert [of_rank["2.bias", 0]["min"] for of_rank in every][1] is None
    assert head(tmp_path)["sharding"] == "fsdp2"
    assert head(tmp_path)["parameters"] == 71
    assert all(
        of_rank["0.weight", 1]["ratio"] > 0
        for of_rank in (rows(tmp_path, "update", one) for one in names(tmp_path))
    )


@pytest.mark.slow
def test_parts_of_the_older_sharding_join_to_the_whole(tmp_path: Path) -> None:
    norms = run(tmp_path, FSDP1)

    every = [rows(tmp_path, "gradient", name) for name in names(tmp_path)]
    for step, norm in enumerate(norms):
        parts = [row for of_rank in every for (_, at), row in of_rank.items() if at == step]
        assert sum(one["l2"] ** 2 for one in parts) ** 0.5 == pytest.approx(norm, rel=1e-3)
        assert sum(one["count"] for one in parts) == 71
    assert {name for of_rank in every for name, _ in of_rank} == {
        "0.weight", "0.bias", "2.weight", "2.bias"
    }  # fmt: skip
    # A shape of a part would be taken for that of the whole.
    assert all(row["shape"] == [] for of_rank in every for row in of_rank.values())
    assert (head(tmp_path)["sharding"], head(tmp_path)["parameters"]) == ("fsdp1", None)


@pytest.mark.slow
def test_of_copies_of_a_shard_one_is_recorded(tmp_path: Path) -> None:
    norms = run(tmp_path, HYBRID)

    first, second = names(tmp_path)
    found = rows(tmp_path, "gradient", first)
    assert [found["0.weight", step]["l2"] for step in range(2)] == pytest.approx(norms, rel=1e-3)
    assert (steps(tmp_path, "gradient", second), steps(tmp_path, "output", second)) == ([], [0, 1])
