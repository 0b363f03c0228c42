"""Names from data next to a plot, cut to the room that is kept for them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from jobreport.formats import escape_name
from jobreport.page.figures import theme

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Room between a name and the axis, and at the edge.
_MARGIN_PX = 12
MAX_CHARACTERS = 60
_NARROW, _WIDE = frozenset("fijlrtI.,:;'!|()[]{}/\\- "), frozenset("mwMW@%…")


def fitted(text: str, room_px: int = theme.NAMES_PX) -> str:
    """Text from data, cut in the middle until it fits next to an axis with as much room."""
    most = min(len(text), MAX_CHARACTERS)
    while most > 4 and width_px(escape_name(text, most)) > room_px - _MARGIN_PX:
        most -= 1
    return escape_name(text, most)


def cut_apart(names: Sequence[str], cut: Callable[[str], str] = fitted) -> list[str]:
    """Names after a cut; those that it makes equal lose what they begin with in common first."""
    found = {name: cut(name) for name in names}
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for name, short in found.items():
        alike[short].append(name)
    for same in alike.values():
        if len(same) > 1:
            letters = enumerate(zip(*same, strict=False))
            begin = next((i for i, some in letters if len(set(some)) > 1), min(map(len, same)))
            # What differs in nothing that is shown stays alike.
            if begin > 1:
                found.update(zip(same, cut_apart([f"…{name[begin:]}" for name in same], cut), strict=True))
    return [found[name] for name in names]


def width_px(text: str) -> float:
    """About how wide text of the figures' size is, on the wide side."""
    return sum(_width(c) for c in text)


def _width(character: str) -> float:
    if character in _NARROW:
        return 4.2
    if character in _WIDE or not character.isascii():
        return 12.0
    return 8.6 if character.isupper() else 7.0


#: Numbers of rows that ``drawing.css`` has a height for.
_HEIGHTS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def rows_class(rows: int) -> str:
    """The class of a drawing with as many rows of bars: the next height that holds them."""
    return f"rows-{next((height for height in _HEIGHTS if rows <= height), _HEIGHTS[-1])}"
