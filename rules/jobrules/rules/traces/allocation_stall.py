"""AllocationStall: GPUs wait for memory from the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.model import Reason, ReasonKind
from jobrules.rule import percent
from jobrules.rules.traces.shares import ProfiledGPU, ShareRule

if TYPE_CHECKING:
    from jobrules.model.captures import DeviceCapture


@dataclass(frozen=True, kw_only=True)
class AllocationStall(ShareRule):
    """GPUs wait for memory from the driver.

    What it checks
        The share of the profiled time in which GPUs idle while the host allocates or frees memory of theirs
        (``cudaMalloc``, ``cudaFree``), after the first recorded step.

    Why it matters
        PyTorch keeps memory that it has. It asks the driver again if memory is nearly full or shapes change.

    What to do
        * Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.
        * Pad inputs to a few sizes.
        * Use less memory.

    Details
        Without steps, each tenth of the profiled time
        counts for no more than the median one: first iterations allocate once. Info from ``threshold`` on, warning from ``warning_threshold`` on, critical from twice that.
    """

    title: ClassVar[str] = "GPUs wait for memory from the driver"
    did: ClassVar[str] = "GPUs waited for `cudaMalloc` or `cudaFree`"
    part: ClassVar[str] = "memory-allocation"
    when: ClassVar[str] = "while the driver allocated memory"
    of_idle: ClassVar[bool] = True
    section: ClassVar[str] = "idle-time"
    late_by: ClassVar[str] = "idle during memory allocation"

    threshold: float = percent(1.0, "idle time during allocation, from which it is a finding")
    warning_threshold: float = percent(5.0, "the same, from which it is a warning")

    def counted_ns(self, device: DeviceCapture) -> int:
        """Idle time during allocation that recurs."""
        return device.late_allocation_ns

    def missing(self, gpu: ProfiledGPU) -> Reason | None:
        """The first step of each capture does not count."""
        if all(len(device.steps) == 1 for device in gpu.devices):
            return Reason(kind=ReasonKind.TOO_FEW, what="profiled steps", needed=2, have=1)
        return gpu.lacks_launches()
