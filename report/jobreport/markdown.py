"""Markdown for the text field of a ticket."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Text fields of trackers hold at least this many characters.
MAX_CHARACTERS = 10_000

#: The colon of ``https://`` and the dot of ``www.`` too: trackers make links of bare addresses.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+|~@&!$]|:(?=//)|(?<=www)\.)", re.IGNORECASE)


def escape(text: str) -> str:
    """Text as Markdown that shows it unchanged: no emphasis, formula, image, link, tag or mention."""
    return _MARKUP.sub(r"\\\1", text)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of heads and cells as they are to be read; empty without rows."""
    if not rows:
        return ""
    lines = [map(escape, heads), ["---"] * len(heads), *(map(escape, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
