"""Real logs of GPUs in forms without a header line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jobreport.errors import NothingReadableError
from jobreport.readers.registry import read_job
from jobrules.model import Metric
from tests.paths import CORPUS, needs_corpus

FOLDER = CORPUS / "more" / "nvidia-smi"
MIB = float(1 << 20)

pytestmark = [
    needs_corpus,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="the corpus has no more logs of nvidia-smi"),
]


def test_two_boxes_of_eight_gpus(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "box-sjin824.log", tmp_path)

    job, quality = read_job(tmp_path, strict=True)

    panels = {panel.metric: panel for panel in job.panels}
    assert quality.sources[0].rows == 16
    assert {panel.values.shape for panel in job.panels} == {(2, 8)}
    assert panels[Metric.GPU_UTILIZATION].values.tolist() == [
        [0, 0, 0, 0, 0, 3, 0, 0],
        [0, 0, 0, 11, 0, 7, 0, 0],
    ]
    assert (panels[Metric.GPU_MEMORY_USED].values[0] / MIB).tolist() == [5729, 7, 7, 61233, 7, 2415, 4241, 7]
    assert panels[Metric.GPU_POWER].values[0].tolist() == [71, 66, 69, 78, 69, 99, 86, 68]
    assert {*panels[Metric.GPU_POWER_LIMIT].values.ravel().tolist()} == {400.0}


@pytest.mark.parametrize(
    "name",
    ["noheader-epoch-rckola.csv", "noheader-nounits-once-divpeter.log", "noheader-units-beam11221.csv"],
)
def test_nothing_is_guessed_of_rows_without_names(name: str, tmp_path: Path) -> None:
    shutil.copy(FOLDER / name, tmp_path)

    with pytest.raises(NothingReadableError):
        read_job(tmp_path, strict=True)
