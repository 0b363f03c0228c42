"""What rules on captures share: what was profiled of each GPU, and rules on a share of that time."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from msgspec import Struct

from jobrules.model import DeviceStatus, HowMuch, Measure, Note, Reason, ReasonKind, Severity, When
from jobrules.model.captures import LAUNCH_BOUND, NOT_EXPLAINED
from jobrules.rule import Rule
from jobrules.text import escape_name, number, percent, share, some_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from jobrules.model import Fact, Job, RuleResult
    from jobrules.model.captures import Capture, DeviceCapture, IdleCause, Partition

_T = TypeVar("_T")

#: A shorter window is not judged.
MIN_WINDOW_NS = 100_000_000
#: GPUs or ranks that a result lists: ten rules on a thousand of them would be most of a report.
MAX_ANSWERS = 64
#: What the shares of rules are of.
PROFILED_TIME = "of the profiled time"

#: A capture holds first iterations from this percentage of its time on in which GPUs wait for memory that later ones
#: need not allocate.
FIRST_ITERATIONS = 5.0

NO_CAPTURES = Reason(kind=ReasonKind.NOT_APPLICABLE, what="no PyTorch trace was found")
NO_GPU_ACTIVITY = Reason(
    kind=ReasonKind.NOT_RECORDED, what="GPU activity in the trace (ProfilerActivity.CUDA)"
)
NO_LAUNCHES = Reason(
    kind=ReasonKind.NOT_RECORDED,
    what="launches of kernels in the trace (ProfilerActivity.CPU)",
    verb="were",
)


class ProfiledGPU(Struct, frozen=True, kw_only=True):
    """All that was profiled of one GPU, in one capture or in several."""

    #: ``rank 3``, ``rank 3 GPU 1`` if the rank has several, or the file if the rank is not known.
    name: str
    rank: int | None
    #: Its captures, and the GPU in each.
    captures: tuple[Capture, ...]
    devices: tuple[DeviceCapture, ...]
    #: Duration of steps while traces were recorded, over that of other steps, by another source; None if not known.
    slowdown: float | None = None

    @property
    def window_ns(self) -> int:
        """All of its windows."""
        return self.sum(lambda device: device.window_ns)

    @property
    def steps(self) -> int:
        """Recorded steps."""
        return sum(capture.steps for capture in self.captures)

    def sum(self, amount: Callable[[DeviceCapture], int]) -> int:
        """An amount over all captures."""
        return sum(map(amount, self.devices))

    def idle_ns(self, *causes: IdleCause) -> int:
        """Idle time by any of these causes."""
        return self.sum(lambda device: idle_ns(device, *causes))

    def lacks_launches(self) -> Reason | None:
        """Reason why nothing is known of its idle time; None if its causes are known."""
        if not any(device.launches and device.launches.linked for device in self.devices):
            return NO_LAUNCHES
        if all(device.complete for device in self.devices):
            return None
        part = self.idle_ns(*NOT_EXPLAINED) / self.window_ns
        missing = f"events are missing: no launch explains {share(part)} {PROFILED_TIME}"
        return Reason(kind=ReasonKind.OTHER, what=f"{missing}, in which the GPU was idle")


def late_rank(job: Job) -> int | None:
    """The rank that others wait for most; None if ranks were not compared."""
    waiting = job.across_ranks.waiting if job.across_ranks else ()
    return max(waiting, key=lambda one: one.caused_ns).rank if waiting else None


def idle_ns(time: Partition, *causes: IdleCause) -> int:
    """Idle time by any of these causes."""
    return sum(time.idle_by_cause_ns.get(cause, 0) for cause in causes)


def first_iterations(gpus: Iterable[ProfiledGPU]) -> float | None:
    """Percent of the profiled time that allocation for first iterations took; None if later ones were recorded."""
    gpus = list(gpus)
    first_ns = sum(gpu.sum(lambda device: device.first_allocation_ns) for gpu in gpus)
    part = 100 * first_ns / sum(gpu.window_ns for gpu in gpus)
    return part if part >= FIRST_ITERATIONS else None


def launch_bound_ns(time: Partition) -> int:
    """Idle time that only the host's launching explains."""
    return idle_ns(time, *LAUNCH_BOUND)


#: What a rank may have more of than the others, so that it is late; and that it explains nothing if it is less of a step, in
#: percent.
LATE_BY: dict[str, Callable[[Partition], int]] = {
    "computing": lambda time: time.compute_ns,
    "idle for want of launches": launch_bound_ns,
    "idle during data loading": lambda time: idle_ns(time, "data_loading"),
    "idle after blocking calls": lambda time: idle_ns(time, "synchronisation"),
    "idle during memory allocation": lambda time: idle_ns(time, "memory_allocation"),
    "idle while the profiler is busy": lambda time: idle_ns(time, "profiler"),
    "copying": lambda time: time.exposed_copies_ns,
}
MIN_EXCESS = 1.0


def excess(rank: int, gpus: Sequence[ProfiledGPU]) -> tuple[str, float] | None:
    """What a rank has most more of than the median of the others, with the nanoseconds in a step; None for nothing."""
    own = [gpu for gpu in gpus if gpu.rank == rank]
    others = [gpu for gpu in gpus if gpu.rank not in (rank, None)]
    if not own or not others:
        return None
    more = {
        what: float(np.mean([_mean(gpu, of) for gpu in own]) - np.median([_mean(gpu, of) for gpu in others]))
        for what, of in LATE_BY.items()
    }
    most = max(more, key=more.__getitem__)
    is_relevant = 100 * more[most] >= MIN_EXCESS * step_ns(gpus)
    return (most, more[most]) if is_relevant else None


def step_ns(gpus: Sequence[ProfiledGPU]) -> float:
    """The profiled time of a step of the median GPU."""
    return float(np.median([gpu.window_ns / max(1, gpu.steps) for gpu in gpus]))


def _mean(gpu: ProfiledGPU, of: Callable[[Partition], int]) -> float:
    return gpu.sum(of) / max(1, gpu.steps)


def profiled_gpus(captures: Iterable[Capture]) -> list[ProfiledGPU]:
    """Every GPU that was profiled, by rank or, without one, by file; copies of captures are left out."""
    found: dict[tuple[int | str, int], list[tuple[Capture, DeviceCapture]]] = {}
    for capture in captures:
        for device in capture.devices if not capture.copy_of else ():
            whose = capture.file if capture.rank is None else capture.rank
            found.setdefault((whose, device.device), []).append((capture, device))
    several = Counter(whose for whose, _ in found)
    return [
        ProfiledGPU(
            name=_name(whose) + (f" GPU {device}" if several[whose] > 1 else ""),
            rank=pairs[0][0].rank,
            captures=tuple(capture for capture, _ in pairs),
            devices=tuple(one for _, one in pairs),
        )
        for (whose, device), pairs in found.items()
    ]


def _name(whose: int | str) -> str:
    return escape_name(whose) if isinstance(whose, str) else f"rank {whose}"


def profiled(gpus: Iterable[ProfiledGPU]) -> tuple[Fact, ...]:
    """When captures were recorded, as far as it is known; and that there is one step only."""
    gpus = list(gpus)
    spans = [span for gpu in gpus for one in gpu.captures if (span := one.span_us)]
    facts: list[Fact] = [When(min(spans)[0], max(end for _, end in spans))] if spans else []
    if max(gpu.steps for gpu in gpus) == 1:
        facts.append(Note("Only one step was recorded"))
    return tuple(facts)


def too_short(window_ns: int) -> Reason | None:
    """Reason why so little profiled time is not judged; None if it is enough."""
    if window_ns >= MIN_WINDOW_NS:
        return None
    needed, have = MIN_WINDOW_NS / 1e9, window_ns / 1e9
    return Reason(kind=ReasonKind.TOO_SHORT, what="profiled time", needed=needed, have=have)


def most_telling(answers: Sequence[_T], amount: Callable[[_T], float]) -> list[_T]:
    """Those that a result lists, in their order: of more than ``MAX_ANSWERS``, the ones with the largest amounts."""
    largest = heapq.nlargest(MAX_ANSWERS, range(len(answers)), key=lambda i: amount(answers[i]))
    return [answers[i] for i in sorted(largest)]


def severity_by(value: float, warning: float) -> Severity:
    """Warning from ``warning`` on, critical from twice as much, otherwise info."""
    if value >= 2 * warning:
        return Severity.CRITICAL
    return Severity.WARNING if value >= warning else Severity.INFO


@dataclass(frozen=True, kw_only=True)
class CaptureRule(Rule):
    """A rule on captures, which are no part of the job's tables.

    One that explains lost time names its ``part``, and counts it with ``counted_ns``.
    """

    of_work: ClassVar[bool] = False
    of_traces: ClassVar[bool] = True
    section: ClassVar[str] = "profiled-time"
    #: Key of ``TIME_PARTS``, and when the time was lost, after an amount; both empty if the rule explains none.
    part: ClassVar[str] = ""
    when: ClassVar[str] = ""
    #: True if the part is not known of a capture that lacks launches.
    of_idle: ClassVar[bool] = False
    #: A part of another rule within this one's, which belongs to that rule if it has a finding; when the rest was lost, and
    #: what happened then.
    holds: ClassVar[str] = ""
    when_rest: ClassVar[str] = ""
    did_rest: ClassVar[str] = ""

    def counted_ns(self, device: DeviceCapture) -> int:
        """The time of a device that the rule is about."""
        del device
        return 0

    def rank(self, job: Job) -> int | None:
        """The rank that its finding is about; None if it is about all."""
        del job
        return None

    def check(self, job: Job) -> RuleResult:
        """Counts are of GPUs."""
        if not job.captures:
            return self.not_evaluated(NO_CAPTURES)
        gpus = profiled_gpus(job.captures)
        return self.check_gpus(job, gpus) if gpus else self.not_evaluated(NO_GPU_ACTIVITY)

    @abstractmethod
    def check_gpus(self, job: Job, gpus: Sequence[ProfiledGPU]) -> RuleResult:
        """Check a job of which at least one GPU was profiled."""


@dataclass(frozen=True, kw_only=True)
class ShareRule(CaptureRule):
    """A part of the profiled time against ``threshold``; a warning from ``warning_threshold`` on, critical from twice that."""

    threshold: float
    warning_threshold: float
    #: What the time was spent on, after a share of the profiled time: ``GPUs only copied``.
    did: ClassVar[str]
    #: The same without a share, if that would say that GPUs did nothing else.
    titled: ClassVar[str] = ""
    #: What shares are of, in a title and in short.
    whole: ClassVar[str] = PROFILED_TIME
    #: Of ``LATE_BY``: what a rank has more of that is late for this; empty if it makes no rank late.
    late_by: ClassVar[str] = ""

    def part_ns(self, gpu: ProfiledGPU) -> int:
        """The time that counts."""
        return gpu.sum(self.counted_ns)

    def whole_ns(self, gpu: ProfiledGPU) -> int:
        """What it is a part of."""
        return gpu.window_ns

    def missing(self, gpu: ProfiledGPU) -> Reason | None:
        """Reason why a GPU is not judged, in addition to a short window; None if it is."""
        del gpu
        return None

    def counts(self, part: float, gpus: Sequence[ProfiledGPU]) -> bool:
        """Whether a share, in percent, is a finding."""
        del gpus
        return part >= self.threshold

    def because_of(self, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """Keys of findings that explain this one."""
        del gpus
        return ()

    def facts(self, gpus: Sequence[ProfiledGPU]) -> tuple[Fact, ...]:
        """Further evidence."""
        del gpus
        return ()

    def severity(self, part: float, gpus: Sequence[ProfiledGPU]) -> Severity:
        """Severity of a share, in percent."""
        del gpus
        return severity_by(part, self.warning_threshold)

    def advice(self, gpus: Sequence[ProfiledGPU]) -> tuple[str, ...]:
        """What to do."""
        del gpus
        return self.documentation().advice

    def sentence(self, part: float, gpus: Sequence[ProfiledGPU]) -> str:
        """The fact with its number, without a period; ``part`` is in percent."""
        del gpus
        return f"In {percent(part)} {self.whole} {self.did}"

    def finding_title(self, part: float, gpus: Sequence[ProfiledGPU]) -> str:
        """What happened, without the share that stands beside it."""
        del part
        said = self.titled or self.did
        return said.replace("GPUs", "The GPU", 1).replace("for them", "for it") if len(gpus) == 1 else said

    def check_gpus(self, job: Job, gpus: Sequence[ProfiledGPU]) -> RuleResult:
        """Counts are of GPUs."""
        reasons = [self._reason(gpu) for gpu in gpus]
        judged = [gpu for gpu, reason in zip(gpus, reasons, strict=True) if reason is None]
        parts = {gpu.name: 100 * self.part_ns(gpu) / max(1, self.whole_ns(gpu)) for gpu in judged}
        above = {name for name, part in parts.items() if part >= self.threshold}
        known: dict[str, Any] = {
            "evaluated": len(judged),
            "violating": len(above),
            "counted": "GPUs",
            "devices": tuple(
                DeviceStatus.of(gpu.name, reason, int(reason is None), int(gpu.name in above))
                for gpu, reason in most_telling(
                    list(zip(gpus, reasons, strict=True)), lambda pair: parts.get(pair[0].name, -1.0)
                )
            ),
        }
        if not judged:
            longest = max(range(len(gpus)), key=lambda i: gpus[i].window_ns)
            return self.not_evaluated(reasons[longest], **known)  # type: ignore[arg-type]
        part = 100 * sum(map(self.part_ns, judged)) / max(1, sum(map(self.whole_ns, judged)))
        known["measure"] = Measure(
            value=round(part, 1),
            limits=(self.threshold, self.warning_threshold),
            bad="above",
            scale=max(part, 2.5 * self.warning_threshold),
            unit=f"% {self.whole}",
            limit_text=f"thresholds {self.threshold:g} and {self.warning_threshold:g}%",
        )
        known["details"] = {name: round(one, 3) for name, one in parts.items()}
        known_for = f", known for {some_of(len(judged), len(gpus), 'GPU')}" if len(judged) < len(gpus) else ""
        sentence = self.sentence(part, judged) + known_for
        if not self.counts(part, judged):
            return self.passed(f"{sentence} (threshold {self.threshold:g}%)", **known)
        finding = self.finding(
            self.finding_title(part, judged) + known_for,
            *self._spread(parts, above),
            *self.facts(judged),
            *profiled(judged),
            severity=self.severity(part, judged),
            advice=self.advice(judged),
            share=part / 100,
            share_of=self.whole,
            seen_as=sentence[:1].lower() + sentence[1:],
            because_of=(
                *self.because_of(judged),
                *(("straggler-rank",) if self._makes_late(job, gpus, above) else ()),
            ),
        )
        return self.triggered(
            finding, headline=sentence, triggered=len(above), violations=len(above), **known
        )

    def _makes_late(self, job: Job, gpus: Sequence[ProfiledGPU], above: Collection[str]) -> bool:
        """Whether it is why all others wait for one rank, which alone has it."""
        late = late_rank(job)
        if late is None or {gpu.rank for gpu in gpus if gpu.name in above} != {late}:
            return False
        more = excess(late, gpus)
        return more is not None and more[0] == self.late_by

    def _reason(self, gpu: ProfiledGPU) -> Reason | None:
        return too_short(gpu.window_ns) or self.missing(gpu)

    def _spread(self, parts: dict[str, float], above: Collection[str]) -> tuple[Fact, ...]:
        """How GPUs differ; nothing of a single one."""
        if len(parts) < 2:
            return ()
        highest = max(parts, key=parts.__getitem__)
        limit = f"{some_of(len(above), len(parts), 'GPU')} at {self.threshold:g}% or more"
        return (
            HowMuch("Median GPU", float(np.median(list(parts.values()))), "%"),
            HowMuch("Highest", parts[highest], "%", of=highest),
            Note(limit[:1].upper() + limit[1:]),
        )


def per_step(gpus: Sequence[ProfiledGPU], part_ns: Callable[[ProfiledGPU], int]) -> float | None:
    """Milliseconds in a step of a GPU; None without steps."""
    steps = sum(gpu.steps for gpu in gpus)
    return sum(map(part_ns, gpus)) / steps / 1e6 if steps else None


def step_amount(what: str, ms: float | None) -> tuple[Fact, ...]:
    """A time for each step as evidence; nothing if there are no steps."""
    return () if ms is None else (Note(f"{what}: {number(ms, 1)} ms in a step"),)
