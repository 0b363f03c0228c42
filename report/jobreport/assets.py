"""Folders of the templates and the notebook, in a checkout or an installed package."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jobreport.errors import JobReportError

_PACKAGE = Path(__file__).resolve().parent
#: The package first: an installed one has its own copies (see ``force-include`` in pyproject.toml).
_HOMES = (_PACKAGE, _PACKAGE.parents[1])
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_BLANKS = re.compile(r"^\s+|(?<=[;{},(])\n+", re.MULTILINE)
#: In a script, blanks next to signs, and the last semicolon of a block; strings, templates, and regular expressions stay, and a
#: division has blanks.
_SIGNS = re.compile(
    r"""("(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|/(?! )(?:[^/\\\[]|\\.|\[(?:[^\]\\]|\\.)*\])+/)"""
    r"""|\s*;\s*(?=\})|\s*([][{}();,:=+*<>?&|!-])\s*"""
)


def templates() -> Path:
    """Folder of templates, styles, and scripts."""
    return _folder("templates")


def notebooks() -> Path:
    """Folder of the notebook."""
    return _folder("notebooks")


@cache
def text(name: str) -> str:
    """Content of a file in the folder of templates."""
    return (templates() / name).read_text("utf-8")


@cache
def compact(name: str) -> str:
    """A script or style sheet without what a browser does not need: comments, and what stands between signs."""
    short = _BLANKS.sub("", _COMMENT.sub("", text(name)))
    return _SIGNS.sub(r"\1\2", short) if name.endswith(".js") else short


def _folder(name: str) -> Path:
    for home in _HOMES:
        if (home / name).is_dir():
            return home / name
    raise JobReportError(
        f"Folder {name} is missing: this installation of jobreport is incomplete. Install it again."
    )
