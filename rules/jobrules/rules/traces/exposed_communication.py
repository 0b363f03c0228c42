"""ExposedCommunication: GPUs communicate while they compute nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.model import Note, Reason, ReasonKind
from jobrules.rule import percent as a_percent
from jobrules.rules.traces.shares import ProfiledGPU, ShareRule
from jobrules.text import percent, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobrules.model import Fact
    from jobrules.model.captures import DeviceCapture

_SILENT = Reason(kind=ReasonKind.NOT_APPLICABLE, what="the traces hold no communication between GPUs")

_ALL_RANKS = "Record traces of all ranks, to see how much of it is waiting for other ranks."


@dataclass(frozen=True, kw_only=True)
class ExposedCommunication(ShareRule):
    """GPUs communicate while they compute nothing.

    What it checks
        The share of the profiled time in which communication kernels run and no computing hides them.

    Why it matters
        A GPU that only communicates does not train.

    What to do
        * Overlap communication with computing: larger gradient buckets (``bucket_cap_mb``), prefetching in FSDP.
        * Communicate less often: accumulate gradients.
        * If bus bandwidth is far below that of the link, check the network.

    Details
        Info from ``threshold`` on, warning from ``warning_threshold`` on, critical from twice that. With traces of two
        or more ranks, the time is divided into transferring and waiting for other ranks; in the verdict, waiting belongs
        to StragglerRank or UnevenRanks if one of them triggers. Traces of PyTorch's profiler only; shares are of the time of all profiled GPUs.
    """

    title: ClassVar[str] = "GPUs communicate while they compute nothing"
    did: ClassVar[str] = "GPUs only communicated"
    titled: ClassVar[str] = "GPUs communicated while nothing was computed"
    part: ClassVar[str] = "communication"
    when: ClassVar[str] = "while GPUs only communicated"
    holds: ClassVar[str] = "waiting"
    when_rest: ClassVar[str] = "while GPUs only transferred"
    did_rest: ClassVar[str] = "GPUs transferred between ranks while nothing was computed"
    section: ClassVar[str] = "communication"

    threshold: float = a_percent(5.0, "communication that nothing hides, from which it is a finding")
    warning_threshold: float = a_percent(15.0, "the same, from which it is a warning")

    def counted_ns(self, device: DeviceCapture) -> int:
        """Communication that no computing hides."""
        return device.exposed_communication_ns

    def missing(self, gpu: ProfiledGPU) -> Reason | None:
        """A rank alone has nobody to talk to."""
        alone = all((capture.world_size or 1) == 1 for capture in gpu.captures)
        silent = gpu.sum(lambda device: device.communication_ns) == 0
        return _SILENT if alone and silent else None

    def because_of(self, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """If what is not waiting would be no finding, waiting is the reason."""
        whole_ns = sum(map(self.whole_ns, gpus))
        other = 100 * (sum(map(self.part_ns, gpus)) - _waiting_ns(gpus)) / whole_ns
        return ("straggler-rank", "uneven-ranks") if other < self.threshold else ()

    def advice(self, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """A trace of one rank does not show what is waiting."""
        advice = self.documentation().advice
        return (*advice, _ALL_RANKS) if len(gpus) == 1 else advice

    def sentence(self, part: float, gpus: Sequence[ProfiledGPU]) -> str:
        """With its two parts, if collectives of ranks were compared; what was not compared may hold waiting, too."""
        sentence = super().sentence(part, gpus)
        if not _is_compared(gpus):
            return sentence
        waiting = 100 * _waiting_ns(gpus) / sum(map(self.whole_ns, gpus))
        is_whole = all(device.not_matched_ns == 0 for gpu in gpus for device in gpu.devices)
        transferring = f"{'' if is_whole else 'at most '}{percent(part - waiting)} transferring"
        return f"{sentence}: {percent(waiting)} waiting for other ranks, {transferring}"

    def facts(self, gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
        """How much was hidden."""
        all_ns = sum(gpu.sum(lambda device: device.communication_ns) for gpu in gpus)
        hidden = 1 - sum(map(self.part_ns, gpus)) / all_ns
        return (Note(f"{share(hidden)} of communication was hidden behind computing"),)


def _is_compared(gpus: Sequence[ProfiledGPU]) -> bool:
    """Whether any collective was found on several ranks."""
    return any(device.exposed_waiting_ns is not None for gpu in gpus for device in gpu.devices)


def _waiting_ns(gpus: Sequence[ProfiledGPU]) -> int:
    return sum(gpu.sum(lambda device: device.exposed_waiting_ns or 0) for gpu in gpus)
