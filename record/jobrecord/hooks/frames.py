"""Frames and stacks, each written once: a tree, whose nodes are a caller's node and a frame."""

from __future__ import annotations

import os
import sys
from collections import deque
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from jobrecord.hooks.places import OWN, PYTHON, place
from jobrecord.traces import MAX_NAME, quoted

if TYPE_CHECKING:
    from types import FrameType

#: File, function, and line; a stack has its outermost frame first.
Frame = tuple[str, str, int]
Stack = list[Frame]
#: Numbers of code, which is not kept, and of its instruction.
Places = list[tuple[int, int]]

#: Of a deep stack these frames are kept, of those that are looked at.
OUTERMOST, INNERMOST, MAX_WALK = 20, 80, 5000
#: Nodes in memory; then all is written anew, with new numbers.
MAX_NODES = 50_000

_HERE = str(Path(__file__).parent.parent) + os.sep
#: Code of ``exec``, which belongs to its caller, or the script of ``python -c``.
_TEXT = "<string>"


class Tree:
    """The stacks of a process. Nothing of the script is kept but names and numbers of lines."""

    def __init__(self) -> None:
        self._outermost = OWN if sys.argv[:1] == ["-c"] else PYTHON
        self._frame_count = self._node_count = 0
        self._frames: dict[tuple[Frame, str], int] = {}
        self._nodes: dict[tuple[int, int], int] = {}
        self._last: tuple[Stack, int] = [], -1

    def add(self, stack: Stack) -> tuple[int, str]:
        """The node of a stack, and the lines to write before it is used."""
        if stack == self._last[0]:
            return self._last[1], ""
        if len(self._nodes) > MAX_NODES:
            self._frames, self._nodes = {}, {}
        lines: list[str] = []
        node, where = -1, self._outermost
        for frame in stack:
            path, name, line = frame
            kind, shown = place(path)
            where = where if path == _TEXT else kind
            number = self._frames.get((frame, where))
            if number is None:
                number = self._frames[frame, where] = self._frame_count
                self._frame_count += 1
                lines.append(
                    f'["frame",{number},"{where}",{quoted(shown[-MAX_NAME:])},{line},{quoted(name)}]\n'
                )
            at = node, number
            known = self._nodes.get(at)
            if known is None:
                known = self._nodes[at] = self._node_count
                self._node_count += 1
                lines.append(f'["stack",{known},{node},{number}]\n')
            node = known
        self._last = stack, node
        return node, "".join(lines)


def stack_of(frame: FrameType | None) -> Stack:
    """The stack whose innermost frame this is, without frames of the recorder."""
    inner: Stack = []
    outer: deque[Frame] = deque(maxlen=OUTERMOST)
    walked = 0
    while frame is not None and walked < MAX_WALK:
        code = frame.f_code
        if not code.co_filename.startswith(_HERE):
            name = getattr(code, "co_qualname", code.co_name)
            (inner if len(inner) < INNERMOST else outer).append((code.co_filename, name, frame.f_lineno or 0))
        walked += 1
        frame = frame.f_back
    return [*reversed(outer), *reversed(inner)]


def places_of(frame: FrameType | None) -> Places:
    """Where each frame of a stack is, the innermost one first: less work than all of its names."""
    found: Places = []
    while frame is not None and len(found) < MAX_WALK:
        found.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return found


def caller_of_both(before: Places, frame: FrameType | None) -> FrameType | None:
    """The frame from which the one before was called, and this one; this one if there is none."""
    after = places_of(frame)
    same = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before[::-1], after[::-1], strict=False))
    )
    if same < min(len(before), len(after)) and before[-1 - same][0] == after[-1 - same][0]:
        same += 1
    for _ in range(len(after) - same if same else 0):
        frame = frame and frame.f_back
    return frame
