"""What is recorded of scripts that know nothing of the recorder, against their own stopwatches."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.record.hooks.written import Event, events, steps
from tests.record.recordings import PYTHON, environment, record

#: The script times what it does itself, and prints nothing of it.
STOPWATCH = """
import contextlib, json, random, sys, time, torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
random.seed(0)
took = {name: [] for name in ("fetch", "evaluation", "checkpoint")}

@contextlib.contextmanager
def timed(name):
    began = time.perf_counter()
    try:
        yield
    finally:
        took[name].append(time.perf_counter() - began)

class Data(Dataset):
    def __init__(self, size):
        self.size = size
    def __len__(self):
        return self.size
    def __getitem__(self, i):
        time.sleep(0.002 + 0.006 * (i % 5 == 0))
        return {"input_ids": torch.full((4,), i), "labels": torch.ones(1)}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def forward(self, input_ids, labels):
        time.sleep(0.013)
        return {"loss": (self.linear(input_ids.float()) - labels).square().mean()}

class Slow(torch.optim.SGD):
    def step(self, *args, **options):
        time.sleep(0.004)
        return super().step(*args, **options)

iterator = torch.utils.data.dataloader._BaseDataLoaderIter
next_batch = iterator.__next__
def fetch(self):
    with timed("fetch"):
        return next_batch(self)
iterator.__next__ = fetch
training, validation = Data(100), Data(40)
"""
END = """
json.dump(took, open("took.json", "w"))
sys.exit(4)
"""
LOOP = """
model = Model()
optimizer = Slow(model.parameters(), lr=1e-6)
loader, test = DataLoader(training, batch_size=4), DataLoader(validation, batch_size=4)
PREPARE
for epoch in range(2):
    model.train()
    for batch in loader:
        loss = model(**batch)["loss"]
        BACKWARD
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with timed("evaluation"), torch.no_grad():
        total = sum(model(**batch)["loss"].item() for batch in test)
    print(epoch, round(total, 3), flush=True)
    state = {"model": model.state_dict(), "more": torch.ones(2_000_000)}
    with timed("checkpoint"):
        torch.save(state, "model.pt")
"""
HUGGING_FACE = """
import transformers
class Trainer(transformers.Trainer):
    def evaluate(self, *args, **options):
        with timed("evaluation"):
            return super().evaluate(*args, **options)
    def _save_checkpoint(self, *args, **options):
        with timed("checkpoint"):
            return super()._save_checkpoint(*args, **options)
arguments = transformers.TrainingArguments(
    output_dir="model", per_device_train_batch_size=4, per_device_eval_batch_size=4, num_train_epochs=2,
    eval_strategy="epoch", save_strategy="epoch", report_to=[], disable_tqdm=True, use_cpu=True,
)
Trainer(model=Model(), args=arguments, train_dataset=training, eval_dataset=validation).train()
"""
LIGHTNING = """
import lightning.pytorch as lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()
    def training_step(self, batch, _):
        return self.model(**batch)["loss"]
    def validation_step(self, batch, _):
        self.model(**batch)
    def configure_optimizers(self):
        return Slow(self.parameters(), lr=1e-6)
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
    num_sanity_val_steps=0,
)
run, save_checkpoint = trainer.fit_loop.epoch_loop.val_loop.run, trainer.save_checkpoint
def timed_run():
    with timed("evaluation"):
        return run()
def timed_save(*args, **options):
    with timed("checkpoint"):
        return save_checkpoint(*args, **options)
trainer.fit_loop.epoch_loop.val_loop.run, trainer.save_checkpoint = timed_run, timed_save
trainer.fit(Module(), *(DataLoader(data, batch_size=4) for data in (training, validation)))
"""
KERAS = """
import keras
class Layer(keras.layers.Dense):
    def call(self, x):
        time.sleep(0.013)
        return super().call(x)
class Watch(keras.callbacks.Callback):
    def on_test_begin(self, logs=None):
        self.began = time.perf_counter()
    def on_test_end(self, logs=None):
        took["evaluation"].append(time.perf_counter() - self.began)
keras.utils.set_random_seed(0)
model = keras.Sequential([Layer(1)])
model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
pairs = [DataLoader(data, batch_size=4, collate_fn=lambda rows: (
    torch.stack([row["input_ids"] for row in rows]).float(), torch.stack([row["labels"] for row in rows])
)) for data in (training, validation)]
model.fit(pairs[0], validation_data=pairs[1], epochs=2, verbose=0, callbacks=[Watch()])
"""
PREPARED = "from accelerate import Accelerator; a = Accelerator(cpu=True); model, optimizer, loader, test = a.prepare(model, optimizer, loader, test)"
SCRIPTS = {
    "torch": LOOP.replace("PREPARE", "").replace("BACKWARD", "loss.backward()"),
    "accelerate": LOOP.replace("PREPARE", PREPARED).replace("BACKWARD", "a.backward(loss)"),
    "transformers": HUGGING_FACE,
    "lightning": LIGHTNING,
    "keras": KERAS,
}


def total_s(found: list[Event]) -> float:
    return sum(event.end_us - event.start_us for event in found) / 1e6


@pytest.mark.slow
@pytest.mark.parametrize("library", SCRIPTS)
def test_what_is_recorded_is_what_the_script_measured(tmp_path: Path, library: str) -> None:
    for name in ("torch", library):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    out = tmp_path / "job"
    command = [PYTHON, "-c", STOPWATCH + SCRIPTS[library] + END]
    runs = {}
    for name in ("alone", "recorded"):
        (tmp_path / name).mkdir()
        if name == "alone":
            runs[name] = subprocess.run(
                command,
                env=environment(KERAS_BACKEND="torch"),
                cwd=tmp_path / name,
                capture_output=True,
                text=True,
                check=False,
            )
        else:
            runs[name] = record(out, "--quiet", command=command, cwd=tmp_path / name, KERAS_BACKEND="torch")

    alone, recorded = runs["alone"], runs["recorded"]
    assert alone.returncode == recorded.returncode == 4, recorded.stderr
    # Trainers print times of their own.
    without_times = [re.sub(r"[0-9.e+-]+", "#", run.stdout) for run in (alone, recorded)]
    assert without_times[0] == without_times[1]
    took = json.loads((tmp_path / "recorded" / "took.json").read_text())

    trained = steps(out)
    assert len(trained) == 50
    checks = {
        "fetch": events(out, "DataLoaderIter"),
        "evaluation": steps(out, "EVAL"),
        "checkpoint": events(out, "Checkpoint"),
    }
    for what, found in checks.items():
        ours, own = total_s(found), sum(took[what])
        # Accelerate's loaders fetch one batch ahead: what computes with the last one comes after the last fetch.
        ahead = 2 * 0.02 if (library, what) == ("accelerate", "evaluation") else 0.0
        assert own - ahead - max(0.005, 0.02 * own) <= ours <= own + max(0.005, 0.02 * own), what
