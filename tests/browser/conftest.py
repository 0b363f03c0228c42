"""One browser for all tests of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.visit import ARGUMENTS, CHROMIUM, LIMIT_S


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=1000 * LIMIT_S
        )
        yield started
        started.close()
