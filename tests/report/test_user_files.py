"""Files that a user names can be anything: none of them hangs or fills the memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobreport.comparison.budgets import read_budgets
from jobreport.cost.prices import read_prices
from jobreport.errors import UsageError
from jobreport.settings import load
from jobreport.user_files import read

READERS = {"--config": load, "--prices": read_prices, "--budget": read_budgets}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pipe", "nothing can be read"),
        ("/dev/zero", "larger than"),
        ("folder", "directory"),
        ("deep", "100 parts"),
    ],
)
def test_what_is_no_file_of_settings_is_refused_at_once(
    reader: Callable[[Path], object], name: str, why: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for inner in ("a" + ".a" * 60_000 + " = 1", "x = {a" + ". b" * 60_000 + " = 1}"):
        (tmp_path / "deep").write_text(inner)
        begin = time.process_time()

        with pytest.raises(UsageError, match=why):
            reader(tmp_path / name)

        assert time.process_time() - begin < 1


def test_what_is_written_to_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = b'ignore = ["BatchSize"]\n'
    other = os.open(pipe, os.O_RDWR)

    def write() -> None:
        os.write(other, text)
        os.close(other)

    writer = threading.Timer(0.2, write)
    writer.start()

    assert read(pipe, 100) == text
    writer.join()
