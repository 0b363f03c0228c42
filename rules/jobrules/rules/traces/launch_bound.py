"""LaunchBound: GPUs wait for the host to launch kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.model import Note
from jobrules.rule import percent
from jobrules.rules.traces.shares import ProfiledGPU, ShareRule, first_iterations, launch_bound_ns
from jobrules.text import capitalized, escape_name, number, took

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact, Reason
    from jobrules.model.captures import DeviceCapture

#: Parts of the host's time that the evidence names.
_MAX_NAMED = 3
_LATER_STEPS = "Record later steps: first iterations load kernels and allocate memory."


@dataclass(frozen=True, kw_only=True)
class LaunchBound(ShareRule):
    """GPUs wait for the host to launch kernels.

    What it checks
        The share of the profiled time in which GPUs idle between kernels, or because the host launches late and neither fetches data, waits, nor allocates.

    Why it matters
        A faster GPU would not help.

    What to do
        * Launch many kernels at once: `torch.compile` with mode `reduce-overhead`, or CUDA graphs.
        * Raise the batch size.
        * Use fused optimizers (``fused=True`` or ``foreach=True``).

    Details
        Info from ``threshold`` on, warning from ``warning_threshold`` on, critical from twice that. Counted is the time between two queued kernels, from a launch
        call to its kernel, and before late calls. Not evaluated if launches are missing in the trace. Traces of PyTorch's profiler only; the profiler itself makes the host slower,
        most of all with stacks.
    """

    title: ClassVar[str] = "GPUs wait for the host to launch kernels"
    did: ClassVar[str] = "GPUs waited for the host to launch work"
    part: ClassVar[str] = "launches"
    when: ClassVar[str] = "while GPUs waited for the host to launch work"
    of_idle: ClassVar[bool] = True
    section: ClassVar[str] = "idle-time"
    late_by: ClassVar[str] = "idle for want of launches"

    threshold: float = percent(15.0, "idle time for want of launches, from which it is a finding")
    warning_threshold: float = percent(30.0, "the same, from which it is a warning")

    def counted_ns(self, device: DeviceCapture) -> int:
        """Idle time that only launching explains."""
        return launch_bound_ns(device)

    def missing(self, gpu: ProfiledGPU) -> Reason | None:
        """Without launches, nothing is known of the host."""
        return gpu.lacks_launches()

    def because_of(self, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """What the samples of the job show of the same."""
        del gpus
        return ("batch-size",)

    def advice(self, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """First iterations launch late because they load code."""
        advice = self.documentation().advice
        return advice if first_iterations(gpus) is None else (_LATER_STEPS, *advice)

    def facts(self, gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
        """A kernel and its launch, and what the host did."""
        gpu = max(gpus, key=self.part_ns)
        device = max(gpu.devices, key=launch_bound_ns)
        notes = []
        if device.launches:
            kernel_us, call_us = device.launches.kernel_ns[0] / 1000, device.launches.call_ns[0] / 1000
            notes.append(f"The median kernel lasts {_short(kernel_us)}, its launch call {_short(call_us)}")
        own = gpu.captures[gpu.devices.index(device)]
        if parts := own.host_parts[:_MAX_NAMED]:
            named = [
                f"{took(one.time_ns / 1000)} in {f'`{escape_name(one.name)}`' if one.name else 'Python outside of operators'}"
                for one in parts
            ]
            notes.append(f"The host was then {', '.join(named)}")
        if len(gpus) > 1 and notes:
            both = "; ".join(note[:1].lower() + note[1:] for note in notes)
            notes = [f"{capitalized(gpu.name)}, with most of it: {both}"]
        return tuple(map(Note, notes))


def _short(us: float) -> str:
    return f"{number(us)} µs" if us < 1000 else took(us)
