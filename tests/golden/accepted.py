"""Texts that were accepted, each in its file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest


def hold(made: Mapping[Path, str], request: pytest.FixtureRequest, known: Iterable[Path] = ()) -> None:
    """The texts are those of their files, and the known files are theirs; with ``--accept-golden`` they become it."""
    known = {*known}
    if request.config.getoption("--accept-golden"):
        for path in known - made.keys():
            path.unlink()
        for path, text in made.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    diff = [
        line
        for path in sorted(known | made.keys())
        for line in difflib.unified_diff(
            path.read_text("utf-8").splitlines() if path.exists() else [],
            made.get(path, "").splitlines(),
            f"{path.parent.name}/{path.name}",
            "made now",
            lineterm="",
            n=1,
        )
    ]
    assert not diff, "\n".join([*diff[:80], f"{len(diff)} lines differ; accept them with: make golden"])
