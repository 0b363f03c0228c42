from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.still import without_live_plots

__all__ = ["without_live_plots"]

# A test that takes long on a busy machine is not wrong, and what a fixture holds here may serve all examples. The examples
# are the same in each run, so that a change breaks only what it touches; `make fuzz` looks for others.
settings.register_profile(
    "all",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("few", settings.get_profile("all"), max_examples=10)
settings.register_profile("new", settings.get_profile("all"), max_examples=1000, derandomize=False)
settings.load_profile("all")

# Where these run in the background of a shell, Ctrl-C is ignored, and by all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected lives to the end: looking for garbage in it would take a tenth of the time of all tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _modules_are_found() -> None:
    # The command sets it for the processes that it starts, also where a test calls it in this one.
    os.environ.pop("PYTHONSAFEPATH", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept-golden", action="store_true", help="rewrite the golden files with what is made now"
    )


#: Files that share what takes long to make: a browser, pages of all examples, what becomes of all forms of logs, and runs
#: that are compared.
TOGETHER = {
    "tests/golden/test_variants.py": "comparison",
    "tests/report/comparison/": "comparison",
    "tests/report/cost/": "comparison",
    "tests/report/page/sections/test_comparison.py": "comparison",
    "tests/docs/test_documents.py": "tests/report/readers/nvidia_smi/test_log_forms.py",
    "tests/browser/": "browser",
    "tests/report/storage/": "storage",
    "tests/report/page/sections/test_table.py": "tests/report/page/sections/test_sections.py",
}


class Together(LoadFileScheduling):  # type: ignore[misc]
    """All tests of a file in one worker, and those of some files."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((scope for start, scope in TOGETHER.items() if file.startswith(start)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)
