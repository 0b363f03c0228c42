"""DataLoaderWait: GPUs idle while the training loop fetches the next batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.model import Note, Reason, ReasonKind
from jobrules.rule import percent
from jobrules.rules.traces.shares import ProfiledGPU, ShareRule, idle_ns, per_step, step_amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact
    from jobrules.model.captures import DeviceCapture

_NO_OPERATORS = Reason(kind=ReasonKind.NOT_RECORDED, what="CPU activity in the trace (ProfilerActivity.CPU)")
_NO_LOADER = Reason(
    kind=ReasonKind.OTHER, what="the traces show no PyTorch DataLoader; other loaders leave no mark"
)
#: In the name of an iterator that fetches in the training process.
_IN_PROCESS = "_SingleProcess"


@dataclass(frozen=True, kw_only=True)
class DataLoaderWait(ShareRule):
    """GPUs idle while the training loop fetches the next batch.

    What it checks
        The share of the profiled time in which GPUs idle while the thread that launches their work is in PyTorch's
        DataLoader.

    Why it matters
        Batches come too late.

    What to do
        * Load batches in processes of their own: ``num_workers`` above 0, or more of them.
        * Set ``pin_memory=True`` and a higher ``prefetch_factor``.
        * Decode less per batch: smaller or pre-processed files.

    Details
        Info from ``threshold`` on, warning from ``warning_threshold`` on, critical from twice that. A loader other than
        PyTorch's leaves no mark in a trace, so the rule is not evaluated without marks.
    """

    title: ClassVar[str] = "GPUs idle while the training loop fetches the next batch"
    did: ClassVar[str] = "GPUs idled while the training loop fetched the next batch"
    part: ClassVar[str] = "data-loading"
    when: ClassVar[str] = "while the training loop fetched the next batch"
    of_idle: ClassVar[bool] = True
    section: ClassVar[str] = "idle-time"
    late_by: ClassVar[str] = "idle during data loading"

    threshold: float = percent(5.0, "idle time during fetches, from which it is a finding")
    warning_threshold: float = percent(20.0, "the same, from which it is a warning")

    def counted_ns(self, device: DeviceCapture) -> int:
        """Idle time during fetches."""
        return idle_ns(device, "data_loading")

    def missing(self, gpu: ProfiledGPU) -> Reason | None:
        """Marks of the loader are what is judged."""
        if not any(capture.operator_calls for capture in gpu.captures):
            return _NO_OPERATORS
        if not any(capture.loader_calls for capture in gpu.captures):
            return _NO_LOADER
        return gpu.lacks_launches()

    def because_of(self, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """What the samples of the job show of the same."""
        del gpus
        return ("data-loading", "cpu-bottleneck", "io-bottleneck")

    def finding_title(self, part: float, gpus: Sequence[ProfiledGPU]) -> str:
        """With the setting that explains it."""
        return f"{super().finding_title(part, gpus)}{' (`num_workers` is 0)' if _loads_itself(gpus) else ''}"

    def facts(self, gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
        """The wait in a step, and whether the training process loads by itself."""
        itself = (Note("The training process loads its batches itself (`num_workers` is 0)"),)
        return (
            *step_amount("Wait", per_step(gpus, self.part_ns)),
            *(itself if _loads_itself(gpus) else ()),
        )


def _loads_itself(gpus: Sequence[ProfiledGPU]) -> bool:
    """Whether a training process loads its batches in its own process."""
    return any(
        _IN_PROCESS in name for gpu in gpus for capture in gpu.captures for name in capture.loader_names
    )
