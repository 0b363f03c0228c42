"""What `learn` records of a plain model: columns, schedule, names, and how it ends."""

from __future__ import annotations

import copy
import io
import math
from pathlib import Path
from typing import Any

import pytest

import jobrecord
from jobrecord.hooks import training_log
from tests.record.learning.trained import events, head, lines, rows, steps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("default")

from torch import nn  # noqa: E402

from jobrecord.learning import statistics  # noqa: E402
from tests.record.learning.models import learned, net, train  # noqa: E402


def test_a_record_is_what_the_step_was_made_of(out: Path) -> None:
    model = net()
    model[0].weight.register_hook(lambda gradient: gradient.fill_(0.5))
    before = model[0].weight.detach().clone()
    learned(model)

    moved = model[0].weight.detach() - before
    weight, gradient, update = (rows(out, one)["0.weight", 0] for one in ("parameter", "gradient", "update"))
    assert weight["l2"] == pytest.approx(before.norm().item(), rel=1e-3)
    assert weight["min"] == pytest.approx(before.min().item(), rel=1e-3)
    assert (gradient["sum"], gradient["l2"], gradient["max"]) == (32, 4, 0.5)
    assert (gradient["hist_first"], gradient["hist"], gradient["positive"]) == (0, [64], 1)
    assert update["ratio"] == pytest.approx((moved.norm() / before.norm()).item(), rel=1e-3)
    assert (weight["shape"], weight["dtype"], weight["m"]) == ([8, 8], "float32", "Linear")


def test_records_come_at_the_first_steps_and_at_each_hundredth(out: Path) -> None:
    learned(net(), 202)

    assert steps(out) == [*range(10), 100, 200]
    assert steps(out, "output") == [*range(10), 100, 200]
    assert steps(out, "preactivation") == [*range(10)]


def test_the_head_tells_of_model_and_optimizer(out: Path) -> None:
    model = net()
    model[0].bias.requires_grad_(False)
    learned(model, every=7, classes=4)

    found = head(out)
    assert lines(out)[0]["kind"] == "head"
    assert (found["every"], found["sample"], found["classes"]) == (7, 65_536, 4)
    assert (found["parameters"], found["trainable"], found["optimizer"]) == (108, 100, "SGD")
    assert found["groups"] == [{"lr": 0.1, "weight_decay": 0.0, "count": 4}]
    assert (found["sharding"], found["amp"], found["compiled"]) == ("none", None, False)
    (frozen,) = [one for line in lines(out, "names") for one in line["tensors"] if not one["trainable"]]
    assert (frozen["n"], frozen["c"], "0.bias" in {name for name, _ in rows(out, "parameter")}) == (
        "0.bias",
        "parameter",
        False,
    )


def test_a_parameter_of_no_optimizer_is_told_and_one_that_is_added_later_moves(out: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    jobrecord.start()
    jobrecord.learn(model, optimizer, budget=1)
    train(model, optimizer, 2)
    optimizer.add_param_group({"params": [*model[2].parameters()]})
    train(model, optimizer, 1)
    jobrecord.stop()

    update = rows(out, "update")
    assert [update["0.weight", step]["optimized"] for step in range(3)] == [True] * 3
    assert [update["2.weight", step]["optimized"] for step in range(3)] == [False, False, True]
    assert [update["2.weight", step]["ratio"] > 0 for step in range(3)] == [False, False, True]
    assert all(rows(out, "gradient")["2.weight", step]["l2"] > 0 for step in range(3))


def test_losses_are_the_same_bits_with_and_without(out: Path) -> None:
    def losses(**options: Any) -> list[float]:
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Tanh(), nn.Linear(8, 4))
        torch.manual_seed(1)
        for one in model.parameters():
            nn.init.normal_(one)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        if options:
            jobrecord.start()
            jobrecord.learn(model, optimizer, **options)
        found = train(model, optimizer, 50)
        jobrecord.stop()
        return found

    assert losses(every=1, inputs=True, budget=1) == losses()
    assert steps(out) == [*range(50)]


def test_evaluation_is_no_part_of_a_record(out: Path) -> None:
    model = net()
    jobrecord.start()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobrecord.learn(model, optimizer, budget=1)
    model.eval()
    with jobrecord.eval(), torch.no_grad():
        jobrecord.classes(torch.tensor([0, 1, 1, -100]), model(torch.full((4, 8), 100.0)))
        jobrecord.log(loss=1.0)
    model.train()
    train(model, optimizer, 1)
    jobrecord.stop()

    assert rows(out, "preactivation")["1", 0]["max"] < 50
    (counted,) = lines(out, "classes")
    assert (counted["mode"], counted["labels"], sum(counted["predicted"])) == ("EVAL", [1, 2, 0, 0], 3)
    assert lines(out, "scalar")[0]["mode"] == "EVAL"


def test_hooks_do_nothing_in_copies_and_files_of_a_model(out: Path) -> None:
    model = net(nn.ReLU(), nn.Tanh())
    jobrecord.start()
    jobrecord.learn(model, torch.optim.SGD(model.parameters(), lr=0.1), budget=1)
    copied = copy.deepcopy(model)
    torch.save(model, file := io.BytesIO())
    file.seek(0)
    for one in (copied, torch.load(file, weights_only=False)):
        train(one, torch.optim.SGD(one.parameters(), lr=0.1), 2)
    jobrecord.stop()

    assert not (out / "jobrecord/training-00000.jsonl").exists()


def test_a_fault_ends_the_recording_and_not_the_training(
    out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobrecord.start()
    jobrecord.learn(model, optimizer, budget=1)
    train(model, optimizer, 1)
    monkeypatch.setattr(statistics, "histogram", lambda _taken: 1 / 0)
    train(model, optimizer, 2)
    jobrecord.log(loss=1.0)
    jobrecord.stop()

    assert (steps(out), events(out)) == ([0], [("error", 1)])
    assert capsys.readouterr().err.count("learn: nothing more is recorded: ZeroDivisionError") == 1
    assert not model[1]._forward_hooks
    assert lines(out, "scalar")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((1, None), {}),
        ((nn.Linear(1, 1), 1), {}),
        ((nn.Linear(1, 1), torch.optim.SGD([torch.zeros(1)])), {"each": 1}),
    ],
    ids=["model", "optimizer", "option"],
)
def test_misuse_is_told_at_once(out: Path, arguments: Any, options: Any) -> None:
    jobrecord.start()
    with pytest.raises(TypeError):
        jobrecord.learn(*arguments, **options)


def test_nothing_happens_without_a_recording() -> None:
    model = net()
    jobrecord.learn(model, torch.optim.SGD(model.parameters(), lr=0.1))
    jobrecord.classes([0], [0])
    assert not model[1]._forward_hooks


def test_a_value_on_a_device_waits_for_the_next_record(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No device is here: the CPU's are kept as those of one.
    monkeypatch.setattr(training_log, "_is_at_hand", lambda _held: False)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobrecord.start()
    jobrecord.learn(model, optimizer, budget=1)
    loss = torch.tensor(2.0, requires_grad=True)
    jobrecord.log(loss=loss, lr=0.5)
    loss.data.fill_(math.nan)
    jobrecord.log(loss=loss)
    assert not (out / "jobrecord/training-00000.jsonl").exists()
    train(model, optimizer, 1)
    assert [line["values"] for line in lines(out, "scalar")] == [{"loss": 2.0, "lr": 0.5}, {"loss": "nan"}]
    for _ in range(1000):
        jobrecord.log(loss=loss)
    assert len(lines(out, "scalar")) == 1002
    with pytest.raises(TypeError):
        jobrecord.log(loss=torch.zeros(2))
    jobrecord.stop()
