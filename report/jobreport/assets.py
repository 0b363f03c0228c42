"""Where the template and the notebook lie: beside the sources in a checkout, inside an installed package."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jobreport.errors import JobReportError

_PACKAGE = Path(__file__).resolve().parent
#: The installed package first: it carries its own copies (see ``force-include`` in pyproject.toml).
_HOMES = (_PACKAGE, _PACKAGE.parents[1])


def templates() -> Path:
    """The folder of templates, styles and scripts."""
    return _folder("templates")


def notebooks() -> Path:
    """The folder of notebooks."""
    return _folder("notebooks")


@cache
def text(name: str) -> str:
    """A text file of the templates, by its path relative to them."""
    return (templates() / name).read_text("utf-8")


def _folder(name: str) -> Path:
    for home in _HOMES:
        if (home / name).is_dir():
            return home / name
    raise JobReportError(f"The folder {name} is missing: this installation of jobreport is not complete.")
