"""A piece of the page, made from a template; a notebook shows it, the exporter places it in the page."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct, field

from jobreport import assets, formats
from jobreport.page.kit.marks import status, unbroken
from jobreport.page.kit.table import swatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2.bccache import Bucket

#: Classes of the output of a cell. They keep MathJax, version 3 or 2, away, which would set a name between dollar
#: signs as a formula.
_ROOT = "jr mathjax_ignore tex2jax_ignore"
_CODE = re.compile(r"(`{1,2})([^`]+)\1")
#: A date, or a short name with a number behind a hyphen: no line ends within it.
_NUMBERED = re.compile(r"(?<![\w&;-])(?=[\w-]{3,24}(?![\w-]))\w+(?:-\w+)*-\d\w*")


class Fragment(Struct, frozen=True, kw_only=True):
    """HTML with a name; ``facts`` travel in the metadata of the notebook's output."""

    name: str
    html: str
    facts: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The output in a notebook without HTML."""
        return f"<section {self.name!r} of the report>"

    def _repr_html_(self) -> tuple[str, dict[str, str]]:
        return self.html, dict(self.facts)


def render(template: str, **context: Any) -> str:
    """Fill a template of ``templates/sections``; all values are escaped."""
    return _environment().get_template(f"sections/{template}.html.j2").render(context).strip()


def compile_templates() -> None:
    """Compile all templates of sections, which takes as long as filling them, or load what was compiled before."""
    environment = _environment()
    for name in environment.list_templates(filter_func=lambda name: name.startswith("sections/")):
        environment.get_template(name)


def code(text: str) -> Markup:
    """Escaped text; text between backticks becomes code, and no line ends within a date or a name like ``algo-1``."""
    found = _CODE.sub(r"<code>\2</code>", str(escape(text)))
    return Markup(_NUMBERED.sub(r'<span class="nw">\g<0></span>', found))  # noqa: S704 - escaped just before


def place(value: float) -> str:
    """A place in percent for a drawing, with at most two digits."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


class _Compiled(FileSystemBytecodeCache):
    """Compiled templates next to this module's own byte code."""

    @classmethod
    def if_possible(cls) -> _Compiled | None:
        """None where Python writes no byte code."""
        folder = Path(cache_from_source(__file__)).parent
        return (
            None
            if sys.dont_write_bytecode or not os.access(folder, os.W_OK)
            else cls(str(folder), "%s.jinja")
        )

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load a template; a file that cannot be read counts as none."""
        try:
            super().load_bytecode(bucket)
        except Exception:  # noqa: BLE001 - a broken pickle raises any
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template, if there is room on the disk."""
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(assets.templates()),
        bytecode_cache=_Compiled.if_possible(),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {name: getattr(formats, name) for name in ("count", "number", "percent")}
    environment.filters |= {"code": code, "kind": lambda block: type(block).__name__, "place": place}
    environment.globals |= {
        "nbsp": formats.NBSP,
        "root": _ROOT,
        "status": status,
        "swatch": swatch,
        "unbroken": unbroken,
    }
    return environment
