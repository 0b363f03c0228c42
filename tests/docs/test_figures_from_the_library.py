"""The numbers of figures, computed again from the frames of a job."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from jobreport import open_job
from jobreport.page import sections
from tests.paths import ROOT
from tests.paths import SAMPLES as JOBS

_SPEC = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures_from_the_library.py")
assert _SPEC
assert _SPEC.loader
FIGURES = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(FIGURES)


@pytest.mark.parametrize("name", FIGURES.JOBS)
def test_frames_have_the_numbers_of_the_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert FIGURES.compared(name), capsys.readouterr().out


@pytest.mark.parametrize(
    ("pairs", "count", "largest"),
    [
        ([([1, None], [1, np.nan])], 2, 0),
        ([(1000, 1001)], 1, 1e-3),
        ([([1.2], [1.24], 0.05)], 1, 0),
        ([([1.2], [1.3], 0.05)], 1, 0.05 / 1.2),
        ([([1, 2], [1])], 2, np.inf),
        ([([1], [None])], 1, np.inf),
    ],
)
def test_a_difference_is_found(pairs: object, count: int, largest: float) -> None:
    assert FIGURES.differences(pairs) == (count, pytest.approx(largest))


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.name)
def test_each_figure_is_computed_or_says_why_not(job: Path) -> None:
    html = "".join(one.html for one in sections.page(open_job(job).report().report).values())

    for figure in re.findall(r'id="fig-([a-z0-9-]+)"', html):
        assert figure in FIGURES.FIGURES or figure.startswith(tuple(FIGURES.NOT_IN_FRAMES))
