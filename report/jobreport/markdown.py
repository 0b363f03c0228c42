"""Markdown for the text field of a ticket."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jobrules.text import NBSP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Text fields of trackers hold at least this many characters.
MAX_CHARACTERS = 10_000

#: Code in texts, in one or two backticks; narrow, so that no other text from data stays unescaped.
CODE = re.compile(r"(?<!`)(?P<ends>`{1,2})(?!\s)(?P<code>[\w .,:;=()/*+-]+)(?<!\s)(?P=ends)(?!`)")
#: What starts markup at its place, by its last character. Where a backslash is not needed, plain text would show it. The
#: colon of ``https://`` and the dot of ``www.`` too: trackers make links of bare addresses.
_MARKUP = r"""
      ^\s*(?:\#{1,6}(?=\s|$) | [-+*](?=[\s-]|$) | [>|~] | \d{1,9}[.)](?=\s|$))  # a block, where a line begins
    | \\(?=[!-/:-@\[-`{-~]|$)                 # an escape
    | [`\[{]                                  # code, a link or an image, a template
    | <(?=[a-z/!?])                           # a tag
    | \*(?=\S|$) | (?<=\S)\*                  # emphasis, inside of words too
    | _(?![a-z0-9]) | (?<![a-z0-9])_          # emphasis, but no name_of_something
    | ~(?=\S|$) | (?<=\S)~                    # struck out
    | &(?=\#?\w+;) | [@\#!](?=\w)             # a character by its name; a mention
    | \$(?!\d) | (?<=[^\s(])\$                # a formula, but no $3
    | :(?=//) | (?<=www)\.                    # an address
"""
_PROSE, _CELL = f"{CODE.pattern}|{_MARKUP}", rf"{_MARKUP}|\|"


def escape(text: str) -> str:
    """Text as Markdown that shows it unchanged: no emphasis, formula, image, link, tag or mention."""
    return _marked(_MARKUP, text)


def prose(text: str) -> str:
    """A text of ours as Markdown: its code is a code span, all other text is shown unchanged."""
    return _marked(_PROSE, text)


def _marked(pattern: str, text: str) -> str:
    # Compiled when it is first used, which few runs do with all of them.
    return re.sub(pattern, _escaped, text, flags=re.IGNORECASE | re.VERBOSE)


def _escaped(found: re.Match[str]) -> str:
    # That of the text of code; nothing else has a group.
    if found.lastgroup:
        return f"`{found[found.lastgroup]}`"
    return rf"{found[0][:-1]}\{found[0][-1]}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of heads and cells as they are to be read; empty without rows."""
    if not rows:
        return ""
    lines = [map(_cell, heads), ["---"] * len(heads), *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return _marked(_CELL, text)


def document(blocks: Iterable[str]) -> str:
    """Blocks with blank lines between them; blanks are those that a search for words finds."""
    return "\n\n".join(blocks).replace(NBSP, " ") + "\n"
