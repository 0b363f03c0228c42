"""What a job repeats after it was started again: the later record of a step counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jobrules.model.types import CodeArray, IntArray


def latest(step: IntArray, code: CodeArray | None = None, part: IntArray | None = None) -> IntArray:
    """The rows that count, by step, then code: of rows of a step and code those of the last part.

    A part ends where the steps of a code go back; ``part`` says which rows were written by one process, in the order
    of the processes.
    """
    if not len(step):
        return np.empty(0, np.int64)
    code = np.zeros(len(step), np.int32) if code is None else code
    # By code, as written.
    order = np.argsort(code, kind="stable")
    goes_back = np.diff(step[order], prepend=step[order[:1]]) < 0
    same = np.diff(code[order], prepend=code[order[:1]]) == 0
    if part is not None:
        goes_back |= np.diff(part[order], prepend=part[order[:1]]) != 0
    number = np.empty(len(step), np.int64)
    number[order] = np.cumsum(goes_back & same)
    order = np.lexsort((number, code, step))
    ends = np.append((np.diff(step[order]) != 0) | (np.diff(code[order]) != 0), True)
    last = number[order][ends]
    group = np.cumsum(np.append(False, ends[:-1]))
    found: IntArray = order[number[order] == last[group]]
    return found
