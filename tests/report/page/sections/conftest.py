"""Sections are drawn without their live plots, except where a test looks at these."""

from __future__ import annotations

import pytest

#: By the name of the file.
LIVE = {
    *("balance", "batch_size", "captures", "close_ups", "data_loading", "devices", "error_boundary"),
    *("gpu_memory", "known_defects", "nodes", "sections", "steps", "table"),
}


@pytest.fixture(autouse=True, scope="module")
def _still(request: pytest.FixtureRequest) -> None:
    if request.path.stem.removeprefix("test_") not in LIVE:
        request.getfixturevalue("without_live_plots")
