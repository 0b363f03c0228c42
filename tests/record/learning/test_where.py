"""Where gradients are taken: accumulation, mixed precision, closures, several optimizers, and after a restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jobrecord
from tests.paths import ROOT
from tests.record.learning.trained import events, head, lines, rows, steps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("default")

from torch import nn  # noqa: E402

from tests.record.learning.models import learned, net, train  # noqa: E402

SCALE = 65_536.0


def norm(gradient: Any) -> Any:
    return pytest.approx(gradient.norm().item(), rel=1e-3)


def begin(model: Any, optimizer: Any, **options: Any) -> None:
    jobrecord.start()
    jobrecord.learn(model, optimizer, **{"budget": 1} | options)


def test_micro_batches_are_one_step_whose_gradient_is_their_sum(out: Path) -> None:
    model, calls = net(), list[Any]()
    model[0].weight.register_hook(calls.append)
    learned(model, 2, batches=4)

    assert len(calls) == 8
    assert steps(out) == [0, 1]
    assert rows(out, "gradient")["0.weight", 1]["l2"] == norm(sum(calls[4:]))
    # Of activations, the first micro-batch counts.
    assert rows(out, "output")["1", 0]["count"] == 16 * 8


@pytest.mark.parametrize("is_fused", [False, True])
def test_gradients_of_mixed_precision_are_not_scaled(out: Path, is_fused: bool) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), fused=is_fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    begin(model, optimizer, scaler=scaler)
    loss = model(torch.randn(16, 8)).square().mean()
    scaler.scale(loss).backward()
    scaled = model[0].weight.grad.clone()
    scaler.step(optimizer)
    scaler.update()
    jobrecord.stop()

    row = rows(out, "gradient")["0.weight", 0]
    assert row["l2"] == norm(scaled / SCALE)
    assert sum(row["hist"]) == 64 - row["zero"]
    assert row["hist_first"] + len(row["hist"]) - 1 < 5
    assert head(out)["amp"] == "float16"


@pytest.mark.parametrize("is_fused", [False, True])
def test_an_overflow_is_an_event_and_its_gradient_no_record(out: Path, is_fused: bool) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), fused=is_fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    begin(model, optimizer, scaler=scaler, every=1000)
    for number in range(14):
        optimizer.zero_grad()
        loss = model(torch.full((4, 8), float("inf") if number == 11 else 1.0)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    jobrecord.stop()

    assert events(out) == [("overflow", 11)]
    # A fused optimizer steps, and skips by itself; it is known with the next record, or at the end.
    assert steps(out) == [*range(10)] + [11] * (not is_fused)
    assert not any(row["nan"] or row["inf"] for row in rows(out, "gradient").values())


def test_overflows_without_any_step_are_known_at_the_end(out: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    begin(model, optimizer, scaler=scaler)
    for _ in range(12):
        scaler.scale(model(torch.full((4, 8), float("inf"))).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    jobrecord.stop()

    assert (events(out), steps(out, "parameter")) == ([("overflow", 0)] * 12, [])


def test_an_overflow_of_a_fused_optimizer_at_a_record_has_no_gradient(out: Path) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu")
    begin(model, optimizer)
    scaler.scale(model(torch.full((4, 8), float("inf"))).mean()).backward()
    scaler.step(optimizer)
    jobrecord.stop()

    assert (steps(out), steps(out, "parameter"), events(out)) == ([], [0], [("overflow", 0)])


def test_a_scaler_that_is_off_is_none(out: Path) -> None:
    learned(net(), scaler=torch.amp.GradScaler("cpu", enabled=False))
    assert head(out)["amp"] is None


@pytest.mark.parametrize(("kind", "has_gradients"), [("SGD", True), ("LBFGS", False)])
def test_a_closure_that_is_called_once_gives_the_gradients_of_the_step(
    out: Path, kind: str, has_gradients: bool
) -> None:
    model = net()
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    begin(model, optimizer)
    seen = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.randn(16, 8)).square().mean()
        loss.backward()
        seen.append(model[0].weight.grad.clone())
        return loss

    for _ in range(3):
        assert optimizer.step(closure) is not None
    jobrecord.stop()

    assert ("gradients: closure" in head(out)["not_recorded"]) is not has_gradients
    assert steps(out) == ([0, 1, 2] if has_gradients else [])
    assert steps(out, "update") == steps(out, "output") == [0, 1, 2]
    if has_gradients:
        assert rows(out, "gradient")["0.weight", 2]["l2"] == norm(seen[2])


def test_gradients_that_are_gone_before_the_step_are_taken_as_they_come(out: Path) -> None:
    model = net()
    optimizers = {one: torch.optim.SGD([one], lr=0.1) for one in model.parameters()}
    begin(model, [*optimizers.values()], gradients="accumulate")
    seen = []

    def step(one: Any) -> None:
        seen.append((one, one.grad.norm().item()))
        optimizers[one].step()
        optimizers[one].zero_grad()

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(step)
    model(torch.randn(4, 8)).square().mean().backward()
    jobrecord.stop()

    names = dict(model.named_parameters())
    found = {name: row["l2"] for (name, _), row in rows(out, "gradient").items()}
    assert found == {
        name: pytest.approx(next(value for other, value in seen if other is one), rel=1e-3)
        for name, one in names.items()
    }
    assert {line.get("where") for line in lines(out, "record")} == {"accumulate"}


def test_two_models_have_their_own_names_and_the_steps_of_the_leader(out: Path) -> None:
    generator, critic = net(nn.Tanh()), net()
    first, second = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (generator, critic))
    begin(generator, first)
    jobrecord.learn(critic, second, name="d")
    for _ in range(3):
        train(generator, first, 1)
        train(critic, second, 1)
    jobrecord.stop()

    gradients = rows(out, "gradient")
    assert {name for name, _ in gradients} == {
        prefix + name for prefix in ("", "d/") for name, _ in critic.named_parameters()
    }
    assert {name for name, _ in rows(out, "output")} == {"1", "d/1"}
    # The second one steps within the step that the first one began.
    assert [step for name, step in gradients if name == "d/0.bias"] == [1, 2, 3]
    assert head(out)["parameters"] == 2 * 108


def test_two_optimizers_of_one_model_share_its_parameters(out: Path) -> None:
    model = net()
    both = [torch.optim.SGD(model[place].parameters(), lr=0.1) for place in (0, 2)]
    begin(model, both)
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    for one in both:
        one.step()
    jobrecord.stop()

    updates = rows(out, "update")
    assert {name for name, _ in updates} == {name for name, _ in model.named_parameters()}
    assert len(updates) == 4
    assert all(row["optimized"] and row["ratio"] > 0 for row in updates.values())


def test_steps_go_on_after_a_restart(out: Path) -> None:
    model = net()
    learned(model, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobrecord.start()
    jobrecord.resume(299)
    jobrecord.learn(model, optimizer, budget=1)
    train(model, optimizer, 3)
    jobrecord.stop()

    name = "training-00000-2.jsonl"
    assert head(out, name)["resumed_from"] == 299
    assert events(out, name) == [("resume", 299)]
    assert steps(out, name=name) == [299, 300]


def test_a_killed_process_leaves_whole_lines(tmp_path: Path) -> None:
    code = """
import os, signal, torch, jobrecord
from torch import nn
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
jobrecord.start()
jobrecord.learn(model, optimizer, every=1, budget=1)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(4, 64)).mean().backward()
    optimizer.step()
os.kill(os.getpid(), signal.SIGKILL)
"""
    variables = {"DIR": str(tmp_path), "NODE": "n", "RUN": "r"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {f"JOBRECORD_{name}": value for name, value in variables.items()},
        cwd=ROOT,
        check=False,
        capture_output=True,
    )

    assert done.returncode == -signal.SIGKILL
    # The last record may not have been written yet.
    assert len(steps(tmp_path)) >= 39
    assert (tmp_path / "jobrecord/training-00000.jsonl").read_bytes().endswith(b"}\n")


def test_the_child_of_a_fork_records_nothing(out: Path) -> None:
    model = net()
    optimizer = learned_open(model)
    train(model, optimizer, 1)
    if not (child := os.fork()):
        # PyTorch's own threads are not there.
        optimizer.step()
        jobrecord.log(loss=torch.tensor(1.0))
        jobrecord.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    train(model, optimizer, 1)
    jobrecord.stop()

    assert steps(out) == [0, 1]


def learned_open(model: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    begin(model, optimizer)
    return optimizer


def test_costly_records_become_rare(out: Path) -> None:
    learned(net(), 120, every=1, budget=1e-6)

    found = steps(out)
    assert found[:15] == [*range(15)]
    assert len(found) < 50
    assert head(out)["every"] > 4
    assert any(
        one.startswith("steps: since step 14 one in 2 is recorded") for one in head(out)["not_recorded"]
    )


@pytest.mark.parametrize("place", ["_begins", "_stepped"])
def test_a_fault_within_the_optimizer_does_not_reach_it(
    out: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    called = {"_begins": "_own", "_stepped": "_frozen"}[place]
    monkeypatch.setattr(f"jobrecord.learning.learner.Learner.{called}", fail)
    learned(net(), 3)
    assert events(out) == [("error", 0)]


def test_a_large_model_has_its_largest_tensors(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobrecord.learning.learner.MAX_TENSORS", 1)
    learned(net())
    assert {name for name, _ in rows(out, "gradient")} == {"0.weight"}
    assert "tensors: 3 of 4 parameters" in head(out)["not_recorded"]


def test_sparse_gradients_are_left_out(out: Path) -> None:
    model = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters())
    begin(model, optimizer)
    model(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    jobrecord.stop()
    assert (steps(out), steps(out, "update")) == ([], [0])
    assert "gradients: some are sparse" in head(out)["not_recorded"]
