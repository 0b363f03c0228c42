"""The callbacks: on the order in which the frameworks call them, and in the frameworks where these are installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import jobrecord
from jobrecord.hooks import recording, trainers
from tests.record.hooks.written import Event, events, steps

pytestmark = pytest.mark.filterwarnings("default")
LOADER = SimpleNamespace(num_workers=2, pin_memory=True)
#: Time that the work before an event takes, in milliseconds; anything else takes none.
FETCH, EVALUATE, SAVE, COMPUTE, OTHER = 20, 30, 50, 10, 7


@pytest.fixture
def callbacks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a callback's module, on an empty base class where its framework is not installed."""

    def imported(module: str, framework: str, base: str) -> ModuleType:
        if importlib.util.find_spec(framework.partition(".")[0]) is None:
            for name in (framework.partition(".")[0], framework):
                monkeypatch.setitem(sys.modules, name, ModuleType(name))
            setattr(sys.modules[framework], base, type(base, (), {}))
        return importlib.import_module(f"jobrecord.{module}")

    yield imported
    for name in ("huggingface", "lightning"):
        sys.modules.pop(f"jobrecord.{name}", None)
        vars(jobrecord).pop(name, None)


class Clock:
    """The clock of the callbacks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = time.perf_counter_ns()
        monkeypatch.setattr(trainers, "now", lambda: self.ns)

    def advance(self, ms: int) -> None:
        self.ns += ms * 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def milliseconds(found: list[Event]) -> list[int]:
    return [round((event.end_us - event.start_us) / 1000) for event in found]


def test_order_of_events_in_hugging_face(out: Path, callbacks: Any, clock: Clock) -> None:
    callback = callbacks("huggingface", "transformers", "TrainerCallback").JobRecorderCallback()
    state = SimpleNamespace(global_step=40)

    def call(event: str, after_ms: int = 0) -> None:
        clock.advance(after_ms)
        getattr(callback, f"on_{event}")(None, state, None, train_dataloader=LOADER)

    call("train_begin")
    call("epoch_begin", OTHER)
    for number in range(3):
        call("step_begin", FETCH)
        call("step_end", COMPUTE)
        if number == 1:
            call("prediction_step", EVALUATE)
            call("prediction_step", EVALUATE)
            call("evaluate", OTHER)
            call("save", SAVE)
    call("train_end", OTHER)
    jobrecord.stop()

    assert milliseconds(events(out, "DataLoaderIter")) == [FETCH] * 3
    assert {event.name for event in events(out, "DataLoaderIter")} == {"Trainer::input"}
    assert milliseconds(steps(out)) == [OTHER + FETCH + COMPUTE, *[FETCH + COMPUTE] * 2]
    assert [event.step for event in steps(out)] == [40, 41, 42]
    assert milliseconds(steps(out, "EVAL")) == [EVALUATE] * 2
    assert len(events(out, "Checkpoint")) == 1
    (set_up,) = events(out, "DataLoaderIterInitialize")
    assert (set_up.name, set_up.args["num_workers"], set_up.args["pin_memory"]) == (
        "Trainer.__init__",
        2,
        True,
    )


@pytest.mark.parametrize("trains_again", [True, False])
def test_step_that_an_exception_ended_in_hugging_face(
    out: Path, callbacks: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch, trains_again: bool
) -> None:
    monkeypatch.setattr(recording, "now", lambda: clock.ns)
    callback = callbacks("huggingface", "transformers", "TrainerCallback").JobRecorderCallback()

    def call(event: str, after_ms: int = 0) -> None:
        clock.advance(after_ms)
        getattr(callback, f"on_{event}")(None, SimpleNamespace(global_step=0), None)

    call("train_begin")
    for event in ("step_begin", "step_end", "step_begin"):
        call(event, COMPUTE)
    clock.advance(OTHER)
    if trains_again:
        for event in ("train_begin", "step_begin", "step_end", "train_end"):
            call(event, COMPUTE * (event == "step_end"))
    jobrecord.stop()

    again = [COMPUTE] * trains_again
    assert milliseconds(steps(out)) == [2 * COMPUTE, COMPUTE + OTHER, *again]
    assert ["cut" in event.args for event in steps(out)] == [False, True, *[False for _ in again]]


def test_order_of_events_in_lightning(out: Path, callbacks: Any, clock: Clock) -> None:
    callback = callbacks("lightning", "lightning.pytorch", "Callback").JobRecorder()
    trainer = SimpleNamespace(global_step=0, train_dataloader=LOADER)

    def call(event: str, after_ms: int = 0, *more: Any) -> None:
        clock.advance(after_ms)
        getattr(callback, f"on_{event}")(trainer, None, *more)

    # The sanity check.
    call("validation_start")
    call("validation_batch_start", FETCH, None, 0)
    call("validation_batch_end", EVALUATE, None, None, 0)
    call("validation_end")
    call("train_start")
    call("train_epoch_start")
    for number in range(6):
        call("train_batch_start", FETCH, None, number)
        # Two batches are one step of the optimizer.
        trainer.global_step = (number + 1) // 2
        call("train_batch_end", COMPUTE, None, None, number)
        if number == 3:
            call("validation_start")
            for _ in range(2):
                call("validation_batch_start", OTHER, None, 0)
                call("validation_batch_end", EVALUATE, None, None, 0)
            call("validation_end")
            call("save_checkpoint", 0, {})
    call("exception", OTHER, KeyError())
    jobrecord.stop()

    assert milliseconds(events(out, "DataLoaderIter")) == [*[FETCH] * 5, *[OTHER] * 2, *[FETCH] * 2]
    assert milliseconds(steps(out)) == [*[2 * (FETCH + COMPUTE)] * 3, OTHER]
    assert ["cut" in event.args for event in steps(out)] == [False, False, False, True]
    assert milliseconds(steps(out, "EVAL")) == [FETCH + EVALUATE, *[OTHER + EVALUATE] * 2]
    assert len(events(out, "Checkpoint")) == 1


def test_hugging_face_itself(out: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any) -> Any:
            return {"loss": (self.linear(x) - labels).square().mean()}

    class Slow(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return 24

        def __getitem__(self, i: int) -> Any:
            time.sleep(0.005)
            return {"x": torch.randn(4), "labels": torch.randn(1)}

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "model"),
        per_device_train_batch_size=4,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_num_workers=0,
    )
    transformers.Trainer(
        model=Model(),
        args=arguments,
        train_dataset=Slow(),
        eval_dataset=Slow(),
        callbacks=[jobrecord.huggingface.JobRecorderCallback()],
    ).train()
    jobrecord.stop()

    assert [event.step for event in steps(out)] == list(range(6))
    assert len(steps(out, "EVAL")) == 6
    fetches = events(out, "DataLoaderIter")
    assert len(fetches) == 6
    # Eight samples are fetched for each step, some of them for the one before.
    assert sum(milliseconds(fetches)) >= 6 * 8 * 5
    for evaluation in steps(out, "EVAL"):
        assert not any(step.start_us < evaluation.start_us < step.end_us for step in steps(out))
        assert not any(fetch.start_us < evaluation.start_us < fetch.end_us for fetch in fetches)
    assert len(events(out, "Checkpoint")) == 2


def test_lightning_itself(out: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.linear(batch).square().mean()

        def validation_step(self, batch: Any, _: int) -> None:
            self.linear(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Slow(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return 24

        def __getitem__(self, i: int) -> Any:
            time.sleep(0.005)
            return torch.randn(4)

    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        accumulate_grad_batches=2,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[jobrecord.lightning.JobRecorder()],
    )
    loaders = (torch.utils.data.DataLoader(Slow(), batch_size=4) for _ in range(2))
    trainer.fit(Model(), *loaders)
    jobrecord.stop()

    assert [event.step for event in steps(out)] == list(range(6))
    assert len(steps(out, "EVAL")) == 12
    # Of training, and of evaluation.
    assert len(events(out, "DataLoaderIter")) == 24
    assert events(out, "DataLoaderIterInitialize")[0].args["num_workers"] == 0
    for evaluation in steps(out, "EVAL"):
        assert not any(step.start_us < evaluation.start_us < step.end_us for step in steps(out))
    assert len(events(out, "Checkpoint")) == 2
