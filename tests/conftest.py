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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept-golden", action="store_true", help="rewrite the golden files with what is made now"
    )
