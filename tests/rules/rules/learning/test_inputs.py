"""CheckInputImages and NLPSequenceRatio."""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.model import RuleResult, Severity, Status, in_words
from jobrules.model.learning import Collection, Tensor
from jobrules.rules.learning.check_input_images import CheckInputImages
from jobrules.rules.learning.nlp_sequence_ratio import NLPSequenceRatio
from tests.copies import replace
from tests.jobs import make_job
from tests.learning_data import learning_job, matrix, tensors

PIXELS = 32 * 32


def channel(name: str, dtype: str = "float32") -> Tensor:
    return Tensor(name=name, collection=Collection.INPUT, shape=(3, 32, 32), dtype=dtype)


def record(
    mean: float, std: float, images: int, low: float = -np.inf, high: float = np.inf
) -> dict[str, float]:
    count = float(images * PIXELS)
    l2 = np.sqrt(count * (mean**2 + std**2))
    return {"count": count, "sum": count * mean, "l2": l2, "min": low, "max": high}


def images(mean: float, std: float, *, of: int = 128, records: int = 4, **more: float) -> RuleResult:
    rows = {channel("x[0]"): [record(mean, std, of, **more)] * records, matrix("w"): [{"rms": 1.0}] * records}
    return CheckInputImages().check(learning_job(tensors=tensors(rows)))


@pytest.mark.parametrize(
    ("mean", "std", "severity"),
    [
        (0.45, 0.25, Severity.INFO),
        (121.0, 60.0, Severity.WARNING),
        (0.0, 1.0, None),
        (0.5, 1.0, None),
        (0.51, 1.0, Severity.INFO),
        (-0.51, 1.0, Severity.INFO),
        (5.0, 1.01, Severity.INFO),
        (5.0, 0.99, Severity.WARNING),
        (10.01, 9.0, Severity.WARNING),
        (0.0, 10.01, Severity.WARNING),
        (0.0, 0.009, Severity.WARNING),
    ],
)
def test_images(mean: float, std: float, severity: Severity | None) -> None:
    assert next((one.severity for one in images(mean, std).findings), None) is severity


def test_bytes_are_named() -> None:
    (of_bytes,) = images(121, 60, low=0, high=255).findings
    (other,) = images(121, 60, low=-3, high=255).findings

    assert of_bytes.title == "Inputs look like 0 to 255: mean 121 and standard deviation 60"
    assert other.title == "Inputs have mean 121 and standard deviation 60"
    assert (
        in_words(images(0.45, 0.25).findings[0].evidence) == "`x[0]`: mean 0.45 and standard deviation 0.25."
    )
    assert in_words(of_bytes.evidence) == "`x[0]`: mean 121 and standard deviation 60."


def test_mean_and_deviation_are_those_of_all_records_and_of_each_channel() -> None:
    rows = {
        channel("x[0]"): [record(0.4, 0.1, 250), record(0.6, 0.3, 250)],
        channel("x[1]"): [record(0, 1, 250)] * 2,
    }
    result = CheckInputImages().check(learning_job(tensors=tensors(rows)))

    # The spread of the two means counts, too.
    std = np.sqrt((0.4**2 + 0.1**2 + 0.6**2 + 0.3**2) / 2 - 0.25)
    assert result.headline == f"Inputs have mean 0.5 and standard deviation {std:.4g}"
    assert (result.evaluated, result.violating) == (2, 1)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (images(121, 60, of=124), "500 images needed, 496 recorded"),
        (
            CheckInputImages().check(
                learning_job(tensors=tensors({channel("x", "uint8"): [record(121, 60, 999)]}))
            ),
            "inputs are integers",
        ),
        (
            CheckInputImages().check(learning_job(tensors=tensors({matrix("x", Collection.INPUT): [{}]}))),
            "no input of images was recorded",
        ),
        (CheckInputImages().check(learning_job()), "inputs of the model not recorded"),
    ],
)
def test_images_not_evaluated(result: RuleResult, words: str) -> None:
    assert (result.status, str(result.reason).replace("\u00a0", " ")) == (Status.NOT_EVALUATED, words)


def tokens(zero: float, pad_id: int | None = 0, gpu: list[list[float]] | None = None) -> RuleResult:
    ids = Tensor(name="ids", collection=Collection.INPUT, shape=(8, 100), dtype="int64", pad_id=pad_id)
    mask = Tensor(name="mask", collection=Collection.INPUT, shape=(8, 100), dtype="int64")
    rows = {ids: [{"zero": 8 * zero}, {"zero": 8 * zero}], mask: [{"zero": 800.0}] * 2}
    learned = learning_job(tensors=tensors(rows))
    return NLPSequenceRatio().check(replace(make_job(gpu=gpu), learning=learned.learning) if gpu else learned)


def test_padding() -> None:
    kept, most = tokens(50), tokens(61, gpu=[[50.0, 50.0]] * 7201)

    assert (kept.status, kept.headline) == (
        Status.PASSED,
        "50.0% of tokens are padding (threshold 50%)",
    )
    (finding,) = most.findings
    assert (finding.title, finding.severity) == ("61.0% of tokens are padding", Severity.WARNING)
    # Two GPUs at 50% for an hour.
    assert in_words(finding.evidence).replace("\u00a0", " ") == (
        "GPU time that padding stands for: 0.6 GPU-hours."
    )
    assert tokens(61).findings[0].evidence == ()


def test_without_a_padding_id_nothing_is_known() -> None:
    assert str(tokens(61, None).reason) == "the padding id of inputs not recorded"
    assert str(NLPSequenceRatio().check(learning_job()).reason) == "inputs of the model not recorded"
