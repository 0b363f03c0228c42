"""What a comparison says of published traces whose difference is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobreport.compare import compare_reports
from jobreport.comparison.document import Comparison
from jobreport.options import Options
from tests.corpus.test_kineto import FOLDER
from tests.paths import needs_corpus

pytestmark = needs_corpus


def compared(one: str, other: str, out: Path) -> Comparison:
    runs = [f"A={FOLDER / one}", f"B={FOLDER / other}"]
    return compare_reports(runs, out, options=Options(formats=("json",), strict=True)).comparison


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        # ResNet-50 that loads its batches in the training process, then with 4 loader processes.
        (
            "resnet50-workers0-b",
            "resnet50-workers4-a",
            (
                "B took 20.1% less time per profiled step than A (139.7 ms against 174.8 ms, not tested)",
                "main reason: 0.462 ms of waiting for data per step instead of 47.3 ms.",
            ),
        ),
        (
            "resnet50-workers4-a",
            "resnet50-workers0-a",
            ("B took 53.0% more time", "46.9 ms of waiting for data"),
        ),
        # A profiler that lost which event a synchronization waits for, and its mend: all times are the same.
        (
            "before-fix",
            "after-fix",
            (
                "B differs from A in waits for an event that the trace lacks (0 of 2 instead of 2 of 2)",
                "ran the same operators and kernels for the same time",
                "cannot be judged by its speed: too little GPU time was profiled",
            ),
        ),
        ("before-fix", "resnet50-workers0-b", ("too little GPU time was profiled",)),
    ],
)
def test_the_known_difference_is_named(one: str, other: str, words: tuple[str, ...], tmp_path: Path) -> None:
    verdict = compared(one, other, tmp_path / "out").verdict.replace("\u00a0", " ")

    assert all(text in verdict for text in words), verdict


def test_the_loader_of_the_training_process_is_the_operator_that_changed_most(tmp_path: Path) -> None:
    found = compared("resnet50-workers0-b", "resnet50-workers4-a", tmp_path / "out").profiled

    assert found
    first = found.work[0]
    assert (first.kind, first.name) == (
        "operator",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    )
    assert (first.variants["A"].calls, first.variants["B"].calls) == (1.0, None)
    assert first.variants["A"].low_s == pytest.approx(0.272895 / 6)
