"""What a section says in the variants that its tests make, each as its difference from the first of its section. See README.md."""

from __future__ import annotations

import difflib
from importlib import import_module
from pathlib import Path

import pytest

from tests.golden.accepted import hold
from tests.golden.visible import Visible
from tests.report.comparison.test_verdict import VERDICTS

pytestmark = pytest.mark.usefixtures("without_live_plots")

TEXTS = Path(__file__).parent / "variants"
TESTS = Path(__file__).parents[1]
MODULES = {
    f"{prefix}{path.stem.removeprefix('test_')}": ".".join(("tests", *path.relative_to(TESTS).parts))[:-3]
    for folder, prefix in (
        ("report/page/sections", ""),
        ("report/output", "output_"),
        ("report/debugger_report", "results_"),
    )
    for path in sorted((TESTS / folder).glob("test_*.py"))
    if "\nVARIANTS" in path.read_text("utf-8")
}


def differences(texts: dict[str, str]) -> str:
    """The first text of each section whole, and of each other one the lines that differ from it."""
    lines: list[str] = []
    first: dict[str, list[str]] = {}
    for name, text in texts.items():
        made = text.splitlines()
        base = first.setdefault(made[0], made)
        lines += ["", f"== {name}"]
        lines += made if base is made else [one for one in difflib.ndiff(base, made) if one[0] in "+-"]
    return "\n".join(lines[1:]) + "\n"


@pytest.mark.parametrize("module", MODULES)
def test_the_variants_say_what_they_said(module: str, request: pytest.FixtureRequest) -> None:
    made = {name: make() for name, make in import_module(MODULES[module]).VARIANTS.items()}
    texts = {name: one if isinstance(one, str) else Visible.of(one) for name, one in made.items()}
    hold({TEXTS / f"{module}.txt": differences(texts)}, request)


def test_the_verdicts_of_comparisons_say_what_they_said(request: pytest.FixtureRequest) -> None:
    found = {name: make() for name, make in VERDICTS.items()}
    texts = [
        "\n".join(filter(None, (f"== {name}", one.verdict, one.next, one.left, one.no_cost)))
        for name, one in found.items()
    ]
    hold({TEXTS / "verdicts.txt": "\n\n".join(texts).replace("\u00a0", " ") + "\n"}, request)
