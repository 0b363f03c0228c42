"""The rules in words, for ``--list-rules`` and ``--explain``."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from jobreport.settings import find_rule
from jobrules.rule import parameter_fields, with_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules import Rule


def rules(known: Sequence[type[Rule]]) -> str:
    """One line a rule: name and title."""
    width = max(len(rule.__name__) for rule in known)
    return "\n".join(f"{rule.__name__:{width}}  {rule.title}" for rule in known)


def rule(name: str, known: Sequence[type[Rule]]) -> str:
    """What a rule checks, why it matters, what to do, and its parameters."""
    found = find_rule(name, known)
    told = found.documentation()
    parts = [f"{found.__name__}: {found.title}"]
    for head, text in (
        ("What it checks", told.checks),
        ("Why it matters", told.why),
        ("What to do", " ".join(told.advice)),
    ):
        plain = text.replace("``", "")
        parts.append(f"{head}\n{textwrap.fill(plain, 90, initial_indent='  ', subsequent_indent='  ')}")
    lines = [
        f"  {key} = {with_unit(default, meta['unit'])}: {meta['help']}"
        for key, default, meta in parameter_fields(found)
    ]
    parts.append("Parameters\n" + ("\n".join(lines) or "  none"))
    return "\n\n".join(parts)
