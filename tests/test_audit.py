"""What ``make audit`` says of an answer, and of none."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

SCRIPT = ROOT / ".ci" / "audit.py"
pytestmark = pytest.mark.skipif(
    not SCRIPT.is_file(), reason="the folder of continuous integration is not there"
)


def package(name: str, *flaws: str) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": [{"id": one, "fix_versions": ["1.1"]} for one in flaws]}


UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "lines", "status"),
    [
        (
            [package("a"), package("b", "CVE-1"), UNKNOWN],
            [
                "audit: 2 of 3 packages were looked up; of these 1 have known vulnerabilities.",
                "audit: b 1.0: CVE-1, mended in 1.1",
            ],
            1,
        ),
        (
            [package("a")],
            ["audit: 1 of 1 packages were looked up; of these 0 have known vulnerabilities."],
            0,
        ),
        # An index that knows no package is no good news.
        ([UNKNOWN], ["audit: none of 1 packages could be looked up; nothing is known of them."], 0),
    ],
)
def test_vulnerable_packages_are_named_and_unknown_ones_counted(
    packages: list[dict[str, Any]], lines: list[str], status: int
) -> None:
    assert runpy.run_path(str(SCRIPT))["reported"]({"dependencies": packages}) == (lines, status)


def test_where_nobody_can_be_asked_it_says_so_and_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["audit", str(tmp_path / "none.txt"), "--seconds", "20"])
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")

    assert ended.value.code == 0
    assert "could not be asked" in capsys.readouterr().out
