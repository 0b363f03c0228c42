"""Differences from SageMaker Debugger: what its rules are known to get wrong.

``differences.md`` next to this module is the one list, a table row for each difference with its id (``GMI-2``), what
SageMaker Debugger does, and what jobreport does. An id stays for good, so that it can be cited; ``J-…`` is a choice of
jobreport, no defect. ``docs/differences.md`` is a copy of the page, and a card of a report on rule results shows the
rows that concern its number.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_ROW = re.compile(r"^\| ([A-Z]+-\d+) \| (.*?) \| ", re.MULTILINE)


def notes(*ids: str) -> tuple[str, ...]:
    """What SageMaker Debugger does, a sentence per id, for a card."""
    return tuple(_theirs()[id_] for id_ in ids)


@cache
def _theirs() -> dict[str, str]:
    return dict(_ROW.findall(page()))


def page() -> str:
    """All differences as Markdown."""
    return Path(__file__).with_suffix(".md").read_text("utf-8")
