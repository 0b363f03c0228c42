"""Things that have something in common, also through others."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence


def connected(keys: Sequence[Iterable[Hashable]]) -> list[list[int]]:
    """The numbers of things in sets, in the order of their first ones; ``keys`` are those of each thing.

    Two things with a key in common are in one set.
    """
    #: The number of another thing of the same set; its own for one of them.
    parent = list(range(len(keys)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    first: dict[Hashable, int] = {}
    for number, own in enumerate(keys):
        for key in own:
            low, high = sorted((root(first.setdefault(key, number)), root(number)))
            parent[high] = low
    sets: defaultdict[int, list[int]] = defaultdict(list)
    for number in range(len(keys)):
        sets[root(number)].append(number)
    return list(sets.values())
