"""Odd models and loops: what learning records of them, and what it leaves as it was."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

import jobrecord
from tests.record.learning.trained import events, head, lines, rows, steps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("default")

from torch import nn  # noqa: E402

from tests.record.learning.models import net, train  # noqa: E402


def begun(model: Any, **options: Any) -> Any:
    """The optimizer of a model that is recorded from here on."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobrecord.start()
    jobrecord.learn(model, optimizer, **{"budget": 1} | options)
    return optimizer


def stepped(model: Any, optimizer: Any, given: Any, count: int = 3) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        model(given).sum().abs().backward()
        optimizer.step()


def rates(out: Path) -> list[tuple[int, dict[str, Any]]]:
    return [(line["step"], line["values"]) for line in lines(out, "scalar")]


def test_a_record_has_the_rates_of_the_first_optimizer(out: Path) -> None:
    model, other = net(), net()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = begun(model, scaler=scaler)
    second = torch.optim.SGD(other.parameters(), lr=9)
    jobrecord.learn(other, second, name="d")
    for step in range(3):
        scaler.scale(model(torch.randn(4, 8)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        train(other, second, 1)
        optimizer.param_groups[0]["lr"] /= 2
        if step == 1:
            jobrecord.log(lr=7)
    jobrecord.stop()

    both = {"lr": 0.1, "loss_scale": 1024.0}
    # The script's own are taken from the first one on.
    assert rates(out) == [(0, both), (1, both | {"lr": 0.05}), (2, {"lr": 7}), (2, {"loss_scale": 1024.0})]


def test_without_a_scaler_the_rate_is_alone(out: Path) -> None:
    model = net()
    train(model, begun(model), 1)
    jobrecord.stop()
    assert rates(out) == [(0, {"lr": 0.1})]


@pytest.mark.parametrize("options", [{}, {"gradients": "accumulate"}])
def test_a_model_that_the_script_lets_go_is_freed(out: Path, options: Any) -> None:
    model = net()
    optimizer = begun(model, **options)
    train(model, optimizer, 3)
    held = weakref.ref(model), weakref.ref(model[0].weight)
    gc.disable()
    try:
        del model, optimizer
        assert [one() for one in held] == [None, None]
    finally:
        gc.enable()
    # The next one is the first again.
    model = net()
    train(model, begun(model), 1)
    jobrecord.stop()
    assert head(out)["parameters"] == 108


def test_a_training_after_another_has_its_own_head(out: Path) -> None:
    model = net()
    train(model, begun(model), 1)
    recording: Any = jobrecord.hooks.current._recording
    recording.end_learning()
    jobrecord.learn(model, torch.optim.Adam(model.parameters(), lr=0.5), every=7, budget=1)
    jobrecord.stop()

    found = head(out)
    assert (found["parameters"], found["optimizer"], found["every"]) == (108, "Adam", 7)
    assert found["groups"] == [{"lr": 0.5, "weight_decay": 0, "count": 4}]


def test_what_is_learned_twice_is_recorded_once(out: Path) -> None:
    model = net()
    optimizer = begun(model)
    jobrecord.learn(model, optimizer)
    train(model, optimizer, 1)
    jobrecord.stop()

    (line,) = [one for one in lines(out, "record") if one["c"] == "gradient"]
    assert len(line["id"]) == len(set(line["id"])) == 4
    assert len(head(out)["groups"]) == 1


class Odd(nn.Module):  # type: ignore[misc]
    """A parameter of a kind."""

    def __init__(self, *, conjugate: bool = False) -> None:
        super().__init__()
        self.conjugate = conjugate
        self.weight = nn.Parameter(torch.ones(4, dtype=torch.complex64 if conjugate else torch.float32))

    def forward(self, given: Any) -> Any:
        """A number, through an activation of no axis."""
        found = self.weight.conj() * given if self.conjugate else self.weight * given
        return found.abs().sum()


def test_complex_gradients(out: Path) -> None:
    model = Odd(conjugate=True)
    optimizer = begun(model)
    model.weight.grad = torch.full((4,), 3 + 4j).conj()
    optimizer.step()
    jobrecord.stop()
    assert rows(out, "gradient")["weight", 0]["l2"] == 10


def test_an_activation_of_one_number(out: Path) -> None:
    model = nn.Sequential(Odd(), nn.ReLU())
    stepped(model, begun(model), torch.ones(4))
    jobrecord.stop()
    assert steps(out, "output") == steps(out) == [0, 1, 2]


def test_parameters_whose_size_is_not_known_yet(out: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(4))
    stepped(model, begun(model), torch.ones(2, 8))
    jobrecord.stop()
    assert rows(out, "gradient")["0.weight", 0]["shape"] == [4, 8]


def test_a_frozen_parameter_has_its_type(out: Path) -> None:
    model = net().to(torch.bfloat16)
    model[0].weight.requires_grad_(False)
    stepped(model, begun(model), torch.ones(2, 8, dtype=torch.bfloat16), 1)
    jobrecord.stop()
    (frozen,) = [one for line in lines(out, "names") for one in line["tensors"] if not one["trainable"]]
    assert frozen["dtype"] == "bfloat16"


@pytest.mark.parametrize("then_steps", [False, True])
def test_a_scale_that_fell_to_nothing(out: Path, then_steps: bool) -> None:
    model, scaler = net(), torch.amp.GradScaler("cpu")
    optimizer = begun(model, scaler=scaler)
    for _ in range(200):
        scaler.scale(model(torch.full((1, 8), float("inf"))).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 0
    if then_steps:
        stepped(model, optimizer, torch.ones(1, 8), 1)
    jobrecord.stop()

    assert events(out) == [("overflow", 0)] * 100
    assert not then_steps or steps(out) == [0]


def test_a_step_that_failed_is_no_record(out: Path) -> None:
    model = net()
    optimizer = begun(model)
    for step in range(12):
        if step == 9:
            with pytest.raises(ZeroDivisionError):
                optimizer.step(lambda: 1 / 0)
        else:
            stepped(model, optimizer, torch.ones(1, 8), 1)
        jobrecord.step()
    jobrecord.stop()
    assert steps(out) == steps(out, "update") == [*range(9)]


def test_activations_of_an_evaluation_are_no_part_of_a_step(out: Path) -> None:
    model = net()
    optimizer = begun(model, inputs=True)
    with jobrecord.eval():
        model(torch.full((4, 8), 1e6))
    stepped(model, optimizer, torch.ones(1, 8), 1)
    jobrecord.stop()
    assert rows(out, "preactivation")["1", 0]["max"] < 10
    assert rows(out, "input")["input", 0]["max"] == 1


def test_activations_within_a_transform_are_left_out(out: Path) -> None:
    model = net()
    optimizer = begun(model)
    names = {name: one.detach() for name, one in model.named_parameters()}
    gradient = torch.func.grad(lambda held, given: torch.func.functional_call(model, held, (given,)).sum())
    found = torch.func.vmap(gradient, (None, 0))(names, torch.ones(5, 8))
    for name, one in model.named_parameters():
        one.grad = found[name].mean(0)
    optimizer.step()
    jobrecord.stop()

    assert (steps(out), steps(out, "output"), events(out)) == ([0], [], [])
    assert head(out)["not_recorded"][0].startswith("activations: RuntimeError: ")


def test_a_traced_graph_has_nothing_of_it(out: Path) -> None:
    model = net()
    plain = str(torch.jit.trace(model, torch.ones(1, 8)).inlined_graph)
    begun(model)
    assert str(torch.jit.trace(model, torch.ones(1, 8)).inlined_graph).count("aten::") == plain.count(
        "aten::"
    )


def test_sparse_inputs_are_left_out(out: Path) -> None:
    model = nn.Linear(8, 4)
    stepped(model, begun(model, inputs=True), torch.ones(2, 8).to_sparse(), 1)
    jobrecord.stop()
    assert (steps(out), steps(out, "input"), events(out)) == ([0], [], [])


@pytest.mark.parametrize("way", [torch.inference_mode, torch.no_grad])
def test_a_step_within_a_mode_of_inference(out: Path, way: Any) -> None:
    model = net()
    optimizer = begun(model)
    for _ in range(2):
        model(torch.ones(1, 8)).sum().backward()
        with way():
            optimizer.step()
    jobrecord.stop()
    assert (steps(out), events(out)) == ([0, 1], [])


def test_what_is_left_of_a_model_ends_no_other(out: Path) -> None:
    model, other = net(), net()
    scaler = torch.amp.GradScaler("cpu")
    optimizer = begun(model, scaler=scaler)
    gone = torch.optim.SGD(other.parameters(), lr=0.1)
    jobrecord.learn(other, gone, name="d")
    recording: Any = jobrecord.hooks.current._recording
    # As a traceback holds it.
    kept = [*recording._learning.learners]
    del gone
    stepped(model, optimizer, torch.ones(1, 8), 1)
    jobrecord.stop()
    assert (len(kept), steps(out), events(out)) == (2, [0], [])
