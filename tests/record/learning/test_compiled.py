"""Models that PyTorch compiles: everything but activations, and nothing of it in the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jobrecord
from tests.record.learning.trained import head, rows, steps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("default")

from tests.record.learning.models import net, train  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.compiler.reset()


class Graphs:
    """A backend that counts what it is given, and runs it as it is."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: Any, _inputs: Any) -> Any:
        self.count += 1
        return graph.forward


def trained(model: Any, called: Any, count: int = 3) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobrecord.start()
    jobrecord.learn(called, optimizer, budget=1)
    train(called, optimizer, count)
    jobrecord.stop()


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_has_gradients_weights_and_updates(out: Path, in_place: bool) -> None:
    model, graphs = net(), Graphs()
    if in_place:
        model.compile(backend=graphs, fullgraph=True)
    called = model if in_place else torch.compile(model, backend=graphs, fullgraph=True)
    trained(model, called)

    assert {name for name, _ in rows(out, "gradient")} == {name for name, _ in net().named_parameters()}
    assert steps(out, "update") == [0, 1, 2]
    assert (steps(out, "output"), head(out)["compiled"]) == ([], True)
    assert "activations: the model is compiled" in head(out)["not_recorded"]
    assert graphs.count == 1


def test_a_model_that_is_compiled_later_is_not_compiled_otherwise(out: Path) -> None:
    model, graphs = net(), Graphs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobrecord.start()
    jobrecord.learn(model, optimizer, budget=1)
    called = torch.compile(model, backend=graphs, fullgraph=True)
    train(called, optimizer, 12)
    jobrecord.stop()

    assert graphs.count == 1
    assert (steps(out), steps(out, "output")) == ([*range(10)], [])
    assert head(out)["not_recorded"] == ["activations: no module was called, as in a model that is compiled"]


def test_a_compiled_part_leaves_the_rest_as_it_is(out: Path) -> None:
    model, graphs = net(), Graphs()
    model[0] = torch.compile(model[0], backend=graphs)
    trained(model, model)

    assert {name for name, _ in rows(out, "parameter")} == {name for name, _ in net().named_parameters()}
    assert head(out)["compiled"]
