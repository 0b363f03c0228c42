"""Scripts that know nothing of the recorder: what is recorded of them, and that they run as they would without it."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from tests.record.hooks.written import Event, events, hook_facts, steps, trace_files
from tests.record.recordings import PYTHON, environment, facts, record

LOOP = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, size):
        self.size = size
    def __len__(self):
        return self.size
    def __getitem__(self, i):
        time.sleep(0.002)
        return {"input_ids": torch.full((8,), i), "y": torch.ones(1)}

def loss(batch):
    return (model(batch["input_ids"].float()) - batch["y"]).square().mean()

def evaluate():
    model.eval()
    with torch.no_grad():
        total = sum(loss(batch).item() for batch in validation)
    model.train()
    return total

torch.manual_seed(0)
mean = sum(batch["y"].mean() for batch in DataLoader(Data(8)))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
training, validation = DataLoader(Data(64), batch_size=4, num_workers=1), DataLoader(Data(24), batch_size=8)
for epoch in range(2):
    for batch in training:
        loss(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.005)
    print(epoch, round(evaluate(), 3), isinstance(iter(validation), torch.utils.data.dataloader._BaseDataLoaderIter), flush=True)
    torch.save(model.state_dict(), sys.argv[1])
    torch.save(optimizer.state_dict(), sys.argv[1])
sys.exit(3)
"""
START = """
import torch, jobrecord
from torch.utils.data import DataLoader
jobrecord.start()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(torch.ones(40, 8), batch_size=4)
for _ in range(2):
    for x in jobrecord.data(loader):
        jobrecord.batch(samples=7)
        model(x).sum().backward()
        optimizer.step()
    with jobrecord.eval(), torch.no_grad():
        for x in jobrecord.data(loader):
            model(x)
    with jobrecord.phase("Checkpoint"):
        torch.save(model.state_dict(), "model.pt")
"""
HUGGING_FACE = """
import torch, transformers
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def forward(self, input_ids, labels):
        return {"loss": (self.linear(input_ids.float()) - labels).square().mean()}
data = [{"input_ids": torch.arange(4), "labels": torch.ones(1)}] * 24
arguments = transformers.TrainingArguments(
    output_dir="model", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=2,
    eval_strategy="epoch", save_strategy="epoch", report_to=[], disable_tqdm=True, use_cpu=True,
)
transformers.Trainer(model=Model(), args=arguments, train_dataset=data, eval_dataset=data[:12]).train()
"""
LIGHTNING = """
import torch, lightning.pytorch as lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        return self.linear(batch).square().mean()
    def validation_step(self, batch, _):
        self.linear(batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
    num_sanity_val_steps=1, accumulate_grad_batches=2,
)
trainer.fit(Model(), *(torch.utils.data.DataLoader(torch.ones(size, 4), batch_size=4) for size in (24, 12)))
"""
KERAS = """
import keras, numpy
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
x, y = numpy.ones((48, 4)), numpy.ones((48, 1))
model.fit(x, y, batch_size=8, epochs=2, verbose=0, validation_data=(x[:24], y[:24]))
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return tmp_path / "job"


def needs(*libraries: str) -> None:
    for name in libraries:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def loads(out: Path) -> list[Event]:
    return events(out, "DataLoaderIterInitialize")


@pytest.mark.slow
def test_loop_of_its_own(out: Path) -> None:
    command = [PYTHON, "-c", LOOP, str(out.with_name("model.pt"))]
    alone = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    run = record(out, "--quiet", command=command)

    assert (run.returncode, run.stdout, run.stderr) == (3, alone.stdout, alone.stderr)
    trained, evaluated = steps(out), steps(out, "EVAL")
    assert [event.step for event in trained] == list(range(32))
    sizes = {(event.args["samples"], event.args["tokens"], event.args["inferred"]) for event in trained}
    assert sizes == {(4, 32, True)}
    assert [event.step for event in evaluated] == list(range(6))
    assert all(event.args["inferred"] for event in evaluated)
    assert not any(one.start_us < event.start_us < one.end_us for event in evaluated for one in trained)
    assert len(events(out, "Checkpoint")) == 2
    # A loop that neither trains nor evaluates, and each epoch of both; the last line of each only makes an iterator.
    assert [event.args["batch_size"] for event in loads(out)] == [1, 4, 8, 8, 4, 8, 8]
    assert len(events(out, "DataLoaderIter")) == 8 + 32 + 6
    assert len(events(out, "DataLoaderWorker")) == 2
    assert len(trace_files(out)) == 1
    parts = {
        "batch fetches": "",
        "checkpoints": "",
        "evaluation": "",
        "optimizer steps": "",
        "passes of ranks": "",
        "start-up": "",
    }
    # Of the libraries that PyTorch imports by itself.
    found = facts(out)["hooks"]["parts"]
    assert hook_facts(out)["parts"] == found == parts | dict.fromkeys({"compilation"} & {*found}, "")


@pytest.mark.slow
def test_script_that_records_itself_is_not_recorded_twice(out: Path) -> None:
    run = record(out, command=[PYTHON, "-c", START])

    assert (run.returncode, run.stderr.count("\n")) == (0, 1)
    assert [event.args["samples"] for event in steps(out)] == [7] * 20
    assert len(steps(out, "EVAL")) == 20
    assert len(events(out, "DataLoaderIter")) == 40
    assert len(loads(out)) == 4
    assert len(events(out, "Checkpoint")) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "libraries", "framework", "counts"),
    [
        # Steps, those of evaluation, fetches of both, and checkpoints.
        pytest.param(
            HUGGING_FACE, ["transformers", "accelerate"], "Hugging Face Trainer", (6, 4, 16, 2), id="hf"
        ),
        pytest.param(LIGHTNING, ["lightning"], "Lightning Trainer", (6, 7, 19, 2), id="lightning"),
        pytest.param(KERAS, ["keras"], "Keras", (12, 6, 19, 0), id="keras"),
    ],
)
def test_trainers_tell_their_loops(
    out: Path, script: str, libraries: list[str], framework: str, counts: tuple[int, ...]
) -> None:
    needs(*libraries)
    run = record(out, "--quiet", command=[PYTHON, "-c", script], KERAS_BACKEND="torch")

    assert run.returncode == 0, run.stderr
    found = steps(out), steps(out, "EVAL"), events(out, "DataLoaderIter"), events(out, "Checkpoint")
    assert tuple(map(len, found)) == counts
    assert not any("inferred" in event.args for event in found[1])
    assert sum(event.args.get("samples", 0) for event in found[0]) == 48 * (1 + (framework == "Keras"))
    assert (facts(out)["hooks"]["framework"], facts(out)["hooks"]["parts"][framework]) == (framework, "")


@pytest.mark.slow
def test_only_processes_that_train_are_recorded(out: Path) -> None:
    # A launcher that imports PyTorch, and two commands one after the other.
    loop = "import torch\np = torch.ones(1, requires_grad=True)\nfor _ in range(5): p.sum().backward(); torch.optim.SGD([p]).step()"
    launcher = "import os, subprocess, sys, torch\nfor _ in range(2): subprocess.run([sys.executable, '-c', sys.argv[1]])"
    run = record(out, command=[PYTHON, "-c", launcher, loop])

    assert run.returncode == 0, run.stderr
    assert [event.step for event in steps(out)] == [0, 1, 2, 3, 4] * 2
    assert len(trace_files(out)) == 2
    assert facts(out)["overhead"]["processes"] == 2


def test_part_that_cannot_work_is_off_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import ModuleType  # noqa: PLC0415

    from jobrecord.hooks import parts  # noqa: PLC0415

    monkeypatch.setattr(parts, "states", {})
    for part in (part for part in parts.PARTS if part.name in {parts.CHECKPOINTS, "Hugging Face Trainer"}):
        parts._attach(part, ModuleType(part.library))
    parts._attach(parts.Part(parts.EVALUATION, "torch.nn", "evaluation"), ModuleType("torch.nn"))

    assert parts.states == {
        parts.CHECKPOINTS: "torch.serialization has no save",
        "Hugging Face Trainer": "transformers.trainer has no list of default callbacks",
        parts.EVALUATION: "AttributeError: module 'torch.nn' has no attribute 'Module'",
    }
