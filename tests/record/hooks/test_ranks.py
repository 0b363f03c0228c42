"""Ranks that train in step, untouched: the report names the one that the others wait for."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.record.hooks.written import events
from tests.record.recordings import PYTHON, record
from tests.record.reports import report

SCRIPT = """
import sys, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.06)
        return gradient

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 480
    def __getitem__(self, i):
        time.sleep(0.015 if slow == "loader" else 0.0002)
        return torch.ones(64)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 256), torch.nn.Linear(256, 1)
    def forward(self, x):
        if slow == "forward":
            time.sleep(0.06)
        if slow == "first":
            x = Slow.apply(x.requires_grad_())
        x = self.first(x)
        if slow == "middle":
            x = Slow.apply(x)
        return self.last(x)

torch.set_num_threads(1)
slow, wraps = sys.argv[1], DistributedDataParallel
dist.init_process_group("gloo")
if slow == "alone":
    slow, wraps = "forward" * dist.get_rank(), lambda model: model
slow = slow * dist.get_rank()
model = wraps(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in DataLoader(Data(), batch_size=4):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    time.sleep(0.02)
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slow", "phase"),
    [
        ("loader", "batch fetch"),
        ("forward", "forward pass"),
        # Of the gradient of the input, when those of all parameters are with the other rank, and in between.
        ("first", "backward pass"),
        ("middle", "backward pass"),
        ("none", ""),
        # Two copies that do not train in step.
        ("alone", ""),
    ],
)
def test_rank_that_others_wait_for(tmp_path: Path, slow: str, phase: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script, out = tmp_path / "train.py", tmp_path / "job"
    script.write_text(SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
    run = record(out, "--quiet", command=[PYTHON, "-m", *launcher, str(script), slow])

    assert run.returncode == 0, run.stderr
    assert len(events(out, "Gradient exchange")) == (0 if slow == "alone" else 240)
    found = report(out)
    waits = found.get("rank_waits")
    late = waits["ranks"][: waits["late"]] if waits else []
    assert [one["rank"] for one in late] == (["1"] if phase else [])
    if waits and phase:
        title = found["verdict"]["findings"][0]["title"]
        assert "rank 1" in title.lower()
        assert phase in title
        assert waits["late_us"] == pytest.approx(60e3, rel=0.1)
        assert waits["phases"][waits["waiting_phase"]]["event_type"] == "Gradient exchange"
