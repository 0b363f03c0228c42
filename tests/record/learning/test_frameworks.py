"""Trainers that own the loop: what they log, and what is learned from their models, without a change of the loop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import jobrecord
from tests.record.learning.trained import events, head, lines, rows, steps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("default")

from torch import nn  # noqa: E402


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    for name in ("huggingface", "lightning", "xgboost"):
        sys.modules.pop(f"jobrecord.{name}", None)
        vars(jobrecord).pop(name, None)


def logged(out: Path, name: str) -> list[tuple[int, str, float]]:
    return [
        (line["step"], line["mode"], line["values"][name])
        for line in lines(out, "scalar")
        if name in line["values"]
    ]


def test_hugging_face(out: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))

        def forward(self, x: Any, labels: Any = None) -> Any:
            found = self.net(x)
            return {"loss": (found - labels).square().mean(), "logits": found}

    data = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(32)]
    trainer = transformers.Trainer(
        model=Model(),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path / "checkpoints"),
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            max_steps=6,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=3,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=data,
        eval_dataset=data[:4],
        callbacks=[jobrecord.huggingface.JobRecorderCallback(learning={"budget": 1})],
    )
    trainer.train()
    jobrecord.stop()

    assert steps(out) == steps(out, "update") == steps(out, "output") == [*range(6)]
    assert {name for name, _ in rows(out, "gradient")} == {name for name, _ in Model().named_parameters()}
    assert head(out)["accumulation"] == 2
    assert head(out)["optimizer"] == "AdamW"
    history = [one for one in trainer.state.log_history if "loss" in one]
    wanted = [(one["step"], "TRAIN", one["loss"]) for one in history]
    assert logged(out, "loss") == wanted
    assert len(wanted) == 6
    assert [step for step, _, _ in logged(out, "eval_loss")] == [3, 6]
    assert {mode for _, mode, _ in logged(out, "eval_loss")} == {"EVAL"}
    assert not logged(out, "train_loss")
    for step in range(6):
        # What the trainer logs is the norm of the gradient that was applied.
        norm = sum(row["l2"] ** 2 for (_, at), row in rows(out, "gradient").items() if at == step) ** 0.5
        assert norm == pytest.approx(min(1, history[step]["grad_norm"]), rel=1e-2)


def test_lightning(out: Path, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    seen = []

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

        def training_step(self, batch: Any, _index: int) -> Any:
            loss = self.net(batch).square().mean()
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, _index: int) -> None:
            self.log("val_loss", self.net(batch).square().mean())

        def on_before_optimizer_step(self, _optimizer: Any) -> None:
            seen.append(self.net[0].weight.grad.norm().item())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=2)
    lightning.Trainer(
        default_root_dir=str(tmp_path),
        max_epochs=2,
        accumulate_grad_batches=2,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
        accelerator="cpu",
        callbacks=[jobrecord.lightning.JobRecorder(learning={"budget": 1})],
    ).fit(Model(), loader, loader)
    jobrecord.stop()

    assert steps(out) == steps(out, "update") == steps(out, "output") == [*range(6)]
    gradients = rows(out, "gradient")
    assert [gradients["net.0.weight", step]["l2"] for step in range(6)] == pytest.approx(seen, rel=1e-3)
    assert [(step, mode) for step, mode, _ in logged(out, "train_loss")] == [
        (step, "TRAIN") for step in range(1, 7)
    ]
    assert [(step, mode) for step, mode, _ in logged(out, "val_loss")] == [(3, "EVAL"), (6, "EVAL")]
    assert head(out)["accumulation"] == 2
    assert not events(out)


def test_xgboost(out: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    numpy = pytest.importorskip("numpy")
    random = numpy.random.default_rng(0)
    x = random.normal(size=(200, 5))
    data = xgboost.DMatrix(x, label=x[:, 3] + 0.1 * x[:, 1])

    xgboost.train(
        {"max_depth": 2, "eval_metric": "rmse"},
        data,
        num_boost_round=4,
        evals=[(data, "train"), (data, "valid")],
        verbose_eval=False,
        callbacks=[jobrecord.xgboost.JobRecorderCallback()],
    )
    jobrecord.stop()

    assert [(step, mode) for step, mode, _ in logged(out, "train-rmse")] == [
        (step, "TRAIN") for step in range(4)
    ]
    assert {mode for _, mode, _ in logged(out, "valid-rmse")} == {"EVAL"}
    (trees,) = lines(out, "trees")
    assert max(trees["importance"], key=trees["importance"].get) == "f3"
    assert (trees["depths"], trees["max_depth"]) == ([2] * 4, 2)
