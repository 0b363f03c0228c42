"""Inputs of a model, counts of classes, and what is said not to be recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jobrecord
from tests.record.learning.trained import head, lines, rows, steps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("default")

from torch import nn  # noqa: E402

from jobrecord.learning.classes import MAX_CLASSES, Classes  # noqa: E402
from tests.record.learning.models import learned, net  # noqa: E402


def once(out: Path, model: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What goes into a model in one step, by name."""
    options = kwargs.pop("options", {})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    jobrecord.start()
    jobrecord.learn(model, optimizer, inputs=True, budget=1, **options)
    model(*args, **kwargs).sum().backward()
    optimizer.step()
    jobrecord.stop()
    return {name: row for (name, _), row in rows(out, "input").items()}


def test_images_are_recorded_by_channel(out: Path) -> None:
    images = torch.stack([torch.full((4, 5), 10.0), torch.full((4, 5), -1.0)]).expand(3, 2, 4, 5)

    found = once(out, nn.Conv2d(2, 1, 1), images)

    assert list(found) == ["input[0]", "input[1]"]
    assert [row["count"] for row in found.values()] == [60, 60]
    assert [row["sum"] for row in found.values()] == [600, -60]
    assert found["input[0]"]["shape"] == [2, 4, 5]


@pytest.mark.parametrize("where", ["option", "config", ""])
def test_of_tokens_the_padding_is_counted(out: Path, where: str) -> None:
    model = nn.Embedding(10, 2)
    if where == "config":
        model.config = type("Config", (), {"pad_token_id": 7})()
    tokens = torch.tensor([[1, 7, 7], [0, 7, 2]])

    found = once(out, model, input=tokens, options={"pad_id": 7} if where == "option" else {})

    if where:
        assert (found["input"]["zero"], found["input"]["count"], found["input"]["pad_id"]) == (3, 6, 7)
        assert found["input"]["dtype"] == "int64"
    else:
        assert not found


def test_the_share_of_units_that_never_fire_is_over_ten_batches(out: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4))
        model[0].bias.zero_()
    jobrecord.start()
    jobrecord.learn(model, optimizer, every=1, budget=1)
    for step in range(13):
        # One unit fires in the second batch only, two always, and one never.
        inputs = torch.tensor([[1.0 if step == 1 else -1.0, 1.0, 1.0, -1.0]])
        model(inputs).sum().backward()
        optimizer.step()
    jobrecord.stop()

    found = rows(out, "output")
    assert [found["1", step]["dead"] for step in range(13)] == [0.5, *[0.25] * 10, 0.5, 0.5]
    # What went in, although the module wrote over it.
    assert rows(out, "preactivation")["1", 0]["min"] == -1


@pytest.mark.parametrize(
    ("module", "outputs", "share"),
    [(nn.Tanh(), [0.97, 0.98, -0.99, 0.0], 0.5), (nn.Sigmoid(), [0.0128, 0.0126, 0.98, 0.99], 0.5)],
)
def test_the_share_of_saturated_outputs(out: Path, module: Any, outputs: list[float], share: float) -> None:
    wanted = torch.tensor([outputs])
    given = wanted.atanh() if isinstance(module, nn.Tanh) else wanted.logit()
    model = nn.Sequential(nn.Linear(4, 4), module)
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4))
        model[0].bias.zero_()
    once(out, model, given)
    (row,) = rows(out, "output").values()
    assert row["saturated"] == share


def test_classes_are_counted_over_an_evaluation(out: Path) -> None:
    jobrecord.start()
    with jobrecord.eval():
        jobrecord.classes(torch.tensor([0, 1]), torch.tensor([0, 0]))
        jobrecord.classes([2, 2, -100], [2, 1, 0])
        assert not (out / "jobrecord/training-00000.jsonl").exists()
    # Without a block, as of the next step, and in training.
    jobrecord.classes([0], [0], mode="TRAIN")
    jobrecord.step()
    jobrecord.classes([0], [0])
    jobrecord.stop()

    first, second, third = lines(out, "classes")
    assert (first["labels"], first["predicted"]) == ([1, 1, 2], [2, 1, 1])
    assert sorted(first["pairs"]) == [[0, 0, 1], [1, 0, 1], [2, 1, 1], [2, 2, 1]]
    assert [(one["step"], one["mode"]) for one in (first, second, third)] == [
        (0, "EVAL"),
        (0, "TRAIN"),
        (1, "EVAL"),
    ]


def test_scores_are_predictions_by_their_last_axis() -> None:
    counts = Classes()
    scores = torch.tensor([[[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]]])
    counts.add(torch.tensor([[1, 2]]), scores)
    assert counts.line() == {"labels": [0, 1, 1], "predicted": [1, 1, 0], "pairs": [[1, 1, 1], [2, 0, 1]]}


def test_of_many_classes_the_right_ones_are_counted() -> None:
    counts = Classes()
    counts.add([0, 1, 1], [0, 1, 0])
    counts.add([299, 298, 5], [299, 1, 5])

    line = counts.line()

    assert len(line["labels"]) == 300
    assert [place for place, one in enumerate(line["labels"]) for _ in range(one)] == [0, 1, 1, 5, 298, 299]
    assert sum(line["predicted"]) == 6
    assert sorted(line["pairs"]) == [[0, 0, 1], [1, 1, 1], [5, 5, 1], [299, 299, 1]]


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [([0, 1], [0]), ([0.5], [1]), ([0], [0.5]), ([0], [[[1.0]]])],
)
def test_what_are_no_classes_is_refused(labels: Any, predictions: Any) -> None:
    with pytest.raises(TypeError, match="classes"):
        Classes().add(labels, predictions)


def test_too_many_classes_end_no_training(capsys: pytest.CaptureFixture[str]) -> None:
    counts = Classes()
    counts.add([0], [1])
    for _ in range(2):
        counts.add([0], [MAX_CLASSES])
    assert counts.line()["labels"] == [1, 0]
    assert capsys.readouterr().err.count("at most 100,000 classes are counted") == 1


def test_classes_are_counted_within_inference_mode_and_outside() -> None:
    counts = Classes()
    with torch.inference_mode():
        counts.add([0], [0])
    counts.add([0], [0])
    assert counts.line()["labels"] == [2]


def test_gradients_that_another_library_holds_are_not_looked_for(out: Path) -> None:
    class Engine(nn.Sequential):  # type: ignore[misc]
        pass

    Engine.__module__ = "deepspeed.runtime.engine"
    learned(Engine(*net()))
    jobrecord.start()
    jobrecord.log(loss=1.0)
    jobrecord.stop()
    assert not list((out / "jobrecord").glob("training-*"))[1:]
    assert not steps(out)


def test_a_model_without_activation_modules_says_so(out: Path) -> None:
    learned(nn.Linear(8, 4))
    assert head(out)["not_recorded"] == ["activations: the model has no module of an activation"]


def test_the_activations_of_a_deep_model_are_spread_over_its_depth(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobrecord.learning.activations.MAX_MODULES", 2)
    learned(net(*(nn.ReLU() for _ in range(4))))
    assert {name for name, _ in rows(out, "output")} == {"1", "5"}
    assert head(out)["not_recorded"] == ["activations: 2 of 4 modules"]
