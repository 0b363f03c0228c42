"""The command line in the facts: the table of docs/recording.md is the test."""

from __future__ import annotations

import re
import shlex
import time

import pytest

from jobrecord.command_line import without_secrets
from tests.once import slow_but
from tests.paths import ROOT

_ROW = re.compile(r"^\| `(.+)` \| `(.+)` \|$", re.MULTILINE)


def _table() -> list[tuple[str, str]]:
    section = (ROOT / "docs/recording.md").read_text("utf-8").partition("\n## The command line\n")[2]
    return _ROW.findall(section.partition("\n## ")[0])


TABLE = _table()


@pytest.mark.parametrize(("given", "recorded"), TABLE)
def test_a_command_is_recorded_as_the_table_says(given: str, recorded: str) -> None:
    assert without_secrets(shlex.split(given)) == shlex.split(recorded)


@pytest.mark.parametrize(("given", "recorded"), [row for row in TABLE if row[0] != row[1]])
@pytest.mark.parametrize("form", ["arguments", "script", "list"])
def test_no_secret_is_left_wherever_it_stands(given: str, recorded: str, form: str) -> None:
    """No part of one is left either."""
    secrets = set(re.findall(r"hush|EXAMPLE|\d{6,}", given))
    assert secrets

    line = shlex.split(f"python train.py --epochs 3 {given} --lr 0.1")
    forms = {
        "arguments": line,
        "script": ["sh", "-c", shlex.join(line)],
        "list": ["python", "-c", f"run({line})"],
    }
    shown = shlex.join(without_secrets(forms[form]))

    assert "--epochs" in shown
    assert not [secret for secret in secrets if secret in shown + recorded]


def test_the_table_has_both_kinds() -> None:
    assert sum(given == recorded for given, recorded in TABLE) >= 5
    assert sum(given != recorded for given, recorded in TABLE) >= 16


def test_what_follows_a_secret_stays() -> None:
    command = ["python", "train.py", "--api-key", "hush", "--lr", "1e-3", "--password=hush", "--epochs", "3"]

    shown = without_secrets(command)

    assert shown == [
        "python",
        "train.py",
        "--api-key",
        "***",
        "--lr",
        "1e-3",
        "--password=***",
        "--epochs",
        "3",
    ]


@pytest.mark.parametrize("piece", ["a:", "{", "a ", "a='", "--a ", "x", "://", "eyJ", 'k"', "\\", "a>"])
@pytest.mark.parametrize("begins", slow_but('a="', ["", 'a="']))
def test_a_long_argument_is_cut_and_takes_no_time(begins: str, piece: str) -> None:
    began = time.process_time()

    (shown,) = without_secrets([begins + piece * 100_000])

    assert time.process_time() - began < 2
    assert len(shown) < 5000
