"""SynchronizationStall: GPUs idle after the host waited for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.model import Note
from jobrules.rule import percent
from jobrules.rules.traces.shares import ProfiledGPU, ShareRule, idle_ns
from jobrules.text import escape_name, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact, Reason
    from jobrules.model.captures import DeviceCapture

#: Calls that the evidence names.
_MAX_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class SynchronizationStall(ShareRule):
    """GPUs idle after the host waited for them.

    What it checks
        The share of the profiled time in which GPUs idle because the host stood in a blocking call.

    Why it matters
        A host that waits loses its lead over the GPU.

    What to do
        * Take `.item()`, `.cpu()`, and the printing of tensors out of the training loop.
        * Log every n steps.
        * Copy with ``non_blocking=True`` from pinned memory.

    Details
        Blocking calls are those such as
        ``cudaStreamSynchronize``, and copies from pageable memory. Info from ``threshold`` on, warning from ``warning_threshold`` on, critical from twice that.
    """

    title: ClassVar[str] = "GPUs idle after the host waited for them"
    did: ClassVar[str] = "GPUs idled after the host had waited for them"
    part: ClassVar[str] = "synchronization"
    when: ClassVar[str] = "after the host had waited for GPUs"
    of_idle: ClassVar[bool] = True
    section: ClassVar[str] = "idle-time"
    late_by: ClassVar[str] = "idle after blocking calls"

    threshold: float = percent(5.0, "idle time after blocking calls, from which it is a finding")
    warning_threshold: float = percent(15.0, "the same, from which it is a warning")

    def counted_ns(self, device: DeviceCapture) -> int:
        """Idle time after blocking calls."""
        return idle_ns(device, "synchronisation")

    def missing(self, gpu: ProfiledGPU) -> Reason | None:
        """Without launches, nothing is known of the host."""
        return gpu.lacks_launches()

    def facts(self, gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
        """The blocking calls, most frequent first."""
        captures = {capture.file: capture for gpu in gpus for capture in gpu.captures}
        calls: Counter[str] = Counter()
        for capture in captures.values():
            calls.update(dict(capture.blocking_calls))
        named = [f"`{escape_name(name)}` {times(n)}" for name, n in calls.most_common(_MAX_NAMED)]
        return (Note(f"Blocking calls: {', '.join(named)}"),) if named else ()
