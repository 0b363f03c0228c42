"""Texts about rules, for ``--list-rules`` and ``--explain``."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from jobreport.settings import find_rule
from jobrules.rule import parameter_fields, with_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules import Rule


def rules(known: Sequence[type[Rule]]) -> str:
    """Name and title of each rule, one per line."""
    width = max(len(rule.__name__) for rule in known)
    return "\n".join(f"{rule.__name__:{width}}  {rule.title}" for rule in known)


def rule(name: str, known: Sequence[type[Rule]]) -> str:
    """Documentation and parameters of a rule."""
    found = find_rule(name, known)
    documentation = found.documentation()
    parts = [f"{found.__name__}: {found.title}"]
    for head, text in (
        ("What it checks", documentation.checks),
        ("Why it matters", documentation.why),
        ("What to do", " ".join(documentation.advice)),
    ):
        plain = text.replace("``", "")
        parts.append(f"{head}\n{textwrap.fill(plain, 90, initial_indent='  ', subsequent_indent='  ')}")
    lines = [
        f"  {key} = {with_unit(default, meta['unit'])}: {meta['help']}"
        for key, default, meta in parameter_fields(found)
    ]
    parts.append("Parameters\n" + ("\n".join(lines) or "  none"))
    return "\n\n".join(parts)
