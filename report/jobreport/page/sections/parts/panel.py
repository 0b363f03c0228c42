"""A drawing among others of one figure."""

from __future__ import annotations

from msgspec import Struct

from jobreport.page.figures.chart import Drawing  # noqa: TC001 - msgspec reads the annotation


class Panel(Struct, frozen=True, kw_only=True):
    """A drawing with its title, its text alternative, and the id of its live plot."""

    id: str
    title: str
    label: str
    drawing: Drawing
    #: Class of the swatch, words, and series of each entry of its own key.
    key: tuple[tuple[str, str, str], ...] = ()
