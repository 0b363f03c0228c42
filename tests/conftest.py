from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# A test that takes long on a busy machine is not wrong.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Where these run in the background of a shell, Ctrl-C is ignored, and by all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _modules_are_found() -> None:
    # The command sets it for the processes that it starts, also where a test calls it in this one.
    os.environ.pop("PYTHONSAFEPATH", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # For runs with several processes: a file's tests share what they make, and one browser at a time is enough.
    for item in items:
        group = "browser" if "/browser/" in item.nodeid else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept-golden", action="store_true", help="rewrite the golden files with what is made now"
    )
