"""ExposedCopies: GPUs copy while they compute nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.model import Note
from jobrules.rule import percent
from jobrules.rules.traces.shares import PROFILED_TIME, ProfiledGPU, ShareRule
from jobrules.text import share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact
    from jobrules.model.captures import DeviceCapture


@dataclass(frozen=True, kw_only=True)
class ExposedCopies(ShareRule):
    """GPUs copy while they compute nothing.

    What it checks
        The share of the profiled time in which memory is copied or set and neither computing nor communication hides
        it.

    Why it matters
        A GPU has engines of its own for copies: most can run behind computing.

    What to do
        * Load into pinned memory and copy without blocking: ``pin_memory=True`` and ``non_blocking=True``.
        * Create tensors on the GPU instead of copying them there.

    Details
        Info from ``threshold`` on, warning from ``warning_threshold`` on, critical from twice that.
    """

    title: ClassVar[str] = "GPUs copy while they compute nothing"
    did: ClassVar[str] = "GPUs only copied"
    titled: ClassVar[str] = "GPUs copied while nothing was computed"
    part: ClassVar[str] = "copies"
    when: ClassVar[str] = "while GPUs only copied"
    late_by: ClassVar[str] = "copying"

    threshold: float = percent(5.0, "copies that nothing hides, from which it is a finding")
    warning_threshold: float = percent(15.0, "the same, from which it is a warning")

    def counted_ns(self, device: DeviceCapture) -> int:
        """Copies that nothing hides."""
        return device.exposed_copies_ns

    def facts(self, gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
        """How much of it was from or to pageable memory."""
        pageable_ns = sum(gpu.sum(lambda device: device.exposed_pageable_ns) for gpu in gpus)
        if not pageable_ns:
            return ()
        part = pageable_ns / sum(gpu.window_ns for gpu in gpus)
        return (Note(f"From or to pageable host memory: {share(part)} {PROFILED_TIME}"),)
