"""The pages that are opened are made once, by the fixtures of the page's own tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.visit import ARGUMENTS, CHROMIUM
from tests.report.conftest import gpu_folder, gpu_notebook, gpu_page, hostile_notebook, hostile_page

__all__ = ["gpu_folder", "gpu_notebook", "gpu_page", "hostile_notebook", "hostile_page"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield started
        started.close()
