"""How sections are written: each is a function that returns blocks, in the order in which a reader meets them.

A module of ``page/sections`` decorates the function with ``section`` of its page's outline; the name of the function
is the anchor: ``cpu_bottlenecks`` makes ``cpu-bottlenecks``. It returns a list of blocks: a text is a paragraph,
``Sentences`` are a list, and ``Note``, ``Table``, ``Terms``, ``Figure``, ``Side``, ``Subsection``, and ``Fold`` are what they say. None,
an empty text, and a table without rows are not shown, so a list needs no conditions around them. A section without
content returns ``Empty`` with the reason.

Figures and tables are numbered in their order; drawings of ``Figure`` become live, and its other fields follow one
another as on the page. All texts are escaped; ``Markup`` is not, and ``code`` makes it from a text with backticks.
``Html`` holds elements that no block makes. To add a kind of block: a class in ``blocks``, a macro in
``templates/sections/section.html.j2``.
"""

from jobreport.page.kit.blocks import (
    Column,
    Drawing,
    Figure,
    Fold,
    Html,
    Note,
    Sentences,
    Side,
    Subsection,
    Terms,
)
from jobreport.page.kit.fragment import Fragment, code
from jobreport.page.kit.section import Empty
from jobreport.page.kit.table import Table

__all__ = [
    "Column",
    "Drawing",
    "Empty",
    "Figure",
    "Fold",
    "Fragment",
    "Html",
    "Note",
    "Sentences",
    "Side",
    "Subsection",
    "Table",
    "Terms",
    "code",
]
