"""The page of every sample job, made by the whole path, in a browser without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobreport import pipeline
from tests.browser.visit import PIXELS, Visit, needs_browser
from tests.paths import SAMPLES

pytestmark = [pytest.mark.browser, needs_browser]

#: Figures by job: phases, boxes of the GPUs, and a time line for each metric that it has.
FIGURES = {
    "cpu-bottleneck-2gpu": 1 + 1 + 6,
    "cpu-only": 1 + 4,
    "fluctuating-1gpu": 1 + 1 + 6,
    "healthy-8gpu": 1 + 1 + 6,
}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_the_page_of_a_sample_job_is_whole_offline_and_small(
    sample: Path, browser: Any, tmp_path: Path
) -> None:
    pipeline.make_report(sample, tmp_path / "out")
    page = tmp_path / "out" / "report.html"

    visit = Visit(browser, page).live()
    drawn = visit.page.evaluate(PIXELS)
    visit.context.close()

    assert len(drawn) == FIGURES[sample.name]
    assert [name for name, colours in drawn.items() if not colours] == []
    assert visit.requests == [page.as_uri()]
    assert visit.complaints == []
    assert page.stat().st_size <= 2_000_000
    assert (tmp_path / "out" / "report.ipynb").stat().st_size <= 200_000
