"""The rules in words, for ``--list-rules`` and ``--explain``."""

from __future__ import annotations

import textwrap

from jobreport.settings import find_rule
from jobrules import RULES
from jobrules.rule import parameter_fields


def rules() -> str:
    """One line a rule: name and title."""
    width = max(len(rule.__name__) for rule in RULES)
    return "\n".join(f"{rule.__name__:{width}}  {rule.title}" for rule in RULES)


def rule(name: str) -> str:
    """What a rule checks, why it matters, what to do, and its parameters."""
    found = find_rule(name)
    told = found.documentation()
    parts = [f"{found.__name__}: {found.title}"]
    for head, text in (
        ("What it checks", told.checks),
        ("Why it matters", told.why),
        ("What to do", told.advice),
    ):
        plain = text.replace("``", "")
        parts.append(f"{head}\n{textwrap.fill(plain, 90, initial_indent='  ', subsequent_indent='  ')}")
    lines = [
        f"  {key} = {default:g}{' ' + meta['unit'] if meta['unit'] else ''}: {meta['help']}"
        for key, default, meta in parameter_fields(found)
    ]
    parts.append("Parameters\n" + ("\n".join(lines) or "  none"))
    return "\n\n".join(parts)
