"""What ended a job of several processes: as loader processes, torchrun, and torch.multiprocessing tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.record.recordings import PYTHON, record
from tests.record.reports import report

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.slow

LOADER = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, i):
        if i == 60: raise ValueError("bad sample 60")
        return torch.zeros(3)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def train():
    for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2):
        model(batch).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    train()
"""
SPAWN = """
import time, torch.multiprocessing as mp
def work(rank):
    if rank == 1: raise KeyError("first")
    time.sleep(60)
if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""
RANKS = """
import os, sys, time, torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for i in range(200):
        model(torch.zeros(2, 3)).sum().backward()
        optimizer.step()
        time.sleep(0.02)
        if i == 120 and dist.get_rank() == 1:
            if sys.argv[1] == "kill":
                os.kill(os.getpid(), 9)
            raise RuntimeError("rank one failed")
main()
"""
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
CASES = {
    "loader process": (LOADER, [], [], ("exception", "", "ValueError", "bad sample 60", 6, 15)),
    "spawn": (SPAWN, [], [], ("exception", "1", "KeyError", "'first'", 4, None)),
    "torchrun": (RANKS, TORCHRUN, ["raise"], ("exception", "1", "RuntimeError", "rank one failed", 16, 121)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_process_that_failed_first_is_named(name: str, tmp_path: Path) -> None:
    script, launcher, arguments, expected = CASES[name]
    (tmp_path / "train.py").write_text(script)
    out = tmp_path / "job"
    record(out, "--quiet", command=[PYTHON, *launcher, "train.py", *arguments], cwd=tmp_path)

    ended = report(out)["ended"]

    known = ended["how"], *(ended["error"][name] for name in ("rank", "type", "message", "line", "step"))
    assert (*known, ended["error"]["file"]) == (*expected, "train.py")


def test_a_rank_that_was_killed_is_named(tmp_path: Path) -> None:
    """What the others say of the lost connection is not what ended the job."""
    (tmp_path / "train.py").write_text(RANKS)
    out = tmp_path / "job"
    record(out, "--quiet", command=[PYTHON, *TORCHRUN, "train.py", "kill"], cwd=tmp_path)

    ended = report(out)["ended"]

    assert (ended["how"], ended["rank"], ended["signal"], "error" in ended) == ("signal", "1", 9, False)
    assert 40 < ended["step"] <= 122
