"""What rules share that judge every GPU by itself: heat, power, clock, and memory."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from msgspec import field
from msgspec.structs import replace

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.gpu_conditions import by_node, gpus
from jobrules.model import DeviceStatus, OfGPU, Reason, span_of
from jobrules.rule import Rule, not_recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrules.measures.gpu_conditions import GPU
    from jobrules.model import Finding, Job, Measure, Metric, RuleResult


class JudgedGPU(OfGPU, frozen=True, kw_only=True):
    """What a rule knows of one GPU."""

    samples: int = 0
    #: Why it is not judged; None if it is.
    reason: Reason | None = None
    #: True if it violates.
    hit: bool = False
    #: When it does; None if that is not known.
    span_us: tuple[int, int] | None = None
    #: Its figures in the JSON.
    details: dict[str, Any] = field(default_factory=dict)


G = TypeVar("G", bound=JudgedGPU)


@dataclass(frozen=True, kw_only=True)
class GPURule(Rule, Generic[G]):
    """A rule says what it knows of one GPU, and how it words that none or some of them violate."""

    of_gpus: ClassVar[bool] = True
    #: A GPU with samples of any of these is looked at.
    sources: ClassVar[tuple[Metric, ...]]

    @abstractmethod
    def _of_gpu(self, gpu: GPU) -> G | None:
        """What is known of a GPU; None leaves it out."""

    @abstractmethod
    def _kept(self, judged: Sequence[G], found: Sequence[G], gpus: int) -> str:
        """Headline if none violates; ``found`` are all that were looked at, of so many GPUs of the job."""

    @abstractmethod
    def _findings(self, hits: Sequence[G], found: Sequence[G], job: Job) -> list[Finding]:
        """At least one."""

    def _measure(self, judged: Sequence[G]) -> Measure | None:
        del judged
        return None

    def _why_none(self, found: Sequence[G]) -> Reason:
        """Why the GPU with most samples is not judged."""
        longest = max(found, key=lambda gpu: gpu.samples)
        return longest.reason or not_recorded(self.sources[0])

    def _gather(self, job: Job) -> list[G] | Reason:
        """The GPUs with samples of ``sources``, or why there is none."""
        if not any(map(job.has, self.sources)):
            return not_recorded(self.sources[0])
        return job.gathered(self._of_node, Clocks.of(job))

    def _of_node(self, part: Job, clocks: Clocks) -> Iterator[G]:
        return (one for gpu in gpus(part, clocks, *self.sources) if (one := self._of_gpu(gpu)))

    def _counted(self, found: Sequence[G], hits: Sequence[G]) -> dict[str, Any]:
        """What the JSON has of the GPUs."""
        del hits
        return {
            "datapoints": max(gpu.samples for gpu in found),
            "datapoints_per_series": {gpu.name: gpu.samples for gpu in found},
            "counted": "GPUs",
            "details": by_node((gpu.node, gpu.device, gpu.details) for gpu in found if gpu.details),
        }

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        found = self._gather(job)
        if isinstance(found, Reason):
            return self.not_evaluated(found)
        judged = [gpu for gpu in found if gpu.reason is None]
        hits = [gpu for gpu in judged if gpu.hit]
        facts = self._counted(found, hits)
        facts["devices"] = tuple(
            DeviceStatus.of(gpu.name, gpu.reason, int(gpu.reason is None), int(gpu.hit)) for gpu in found
        )
        if not judged:
            return self.not_evaluated(self._why_none(found), **facts)
        facts |= {
            "evaluated": len(judged),
            "violating": len(hits),
            "counted": "GPUs",
            "measure": self._measure(judged),
        }
        if not hits:
            return self.passed(self._kept(judged, found, job.gpu_count + job.gpus_unknown), **facts)
        findings = tuple(self._findings(hits, found, job))
        facts["first_us"], facts["last_us"] = span_of(gpu.span_us for gpu in hits) or (None, None)
        facts |= {"triggered": len(hits), "violations": len(hits)}
        return replace(self.triggered(findings[0], **facts), findings=findings)
