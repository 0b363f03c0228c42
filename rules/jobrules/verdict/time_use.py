"""How the time of all devices was spent, in parts that add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.crowding import MIN_JOB_CORES, core_shares
from jobrules.measures.work_span import HOUR_US
from jobrules.model import Count, Finding, Job, Metric
from jobrules.model.names import OwnText
from jobrules.model.time_parts import Role, TimePart, named
from jobrules.text import NBSP, apportion, digits_for, number, percent
from jobrules.verdict.accounting import UNEXPLAINED, DeviceTime, NodeTime, spent_per_node

#: Names of the units of device time in sentences and tables, by their number in an hour; the first one of which there is
#: enough is printed.
_UNITS = {1: ("hours", "h"), 60: ("minutes", "min"), 3600: ("seconds", "s")}
MIN_AMOUNT = 0.1


def per_hour(hours: float) -> int:
    """How many of the printed unit are an hour."""
    return next((n for n in _UNITS if n * hours >= MIN_AMOUNT), max(_UNITS))


class RoleSum(Struct, frozen=True, kw_only=True):
    """All parts of one role together, as printed."""

    role: Role
    #: Device-hours, and percent of all.
    hours: float
    percent: float


class TimeUse(Struct, frozen=True, kw_only=True):
    """How the time of all devices of one kind was spent; each moment of a device counts once."""

    #: ``GPU`` or ``CPU``.
    device: OwnText
    count: Count
    #: Device-hours from the first to the last record of the job, rounded as the parts are.
    hours: float
    #: Digits after the point of the printed amounts.
    digits: int
    #: Used; lost by cause, the largest first; lost and unexplained; not measured. Device-hours, rounded in the printed unit
    #: so that they add up to the printed total.
    parts: tuple[TimePart, ...]
    #: The parts by role.
    roles: tuple[RoleSum, ...]
    #: More GPUs, with samples but without utilization: they are in no part.
    unknown: int | UnsetType = UNSET
    #: Where it is known from, if not from samples: ``SageMaker Debugger``.
    source: OwnText | UnsetType = UNSET
    #: Percent of CPU time that the job's own processes used, where others used a relevant part.
    by_job: float | UnsetType = UNSET

    @classmethod
    def of_parts(
        cls,
        device: str,
        count: int,
        hours: float,
        digits: int,
        parts: tuple[TimePart, ...],
        unknown: int | UnsetType = UNSET,
    ) -> TimeUse:
        """With the parts summed up by role."""
        roles = tuple(
            RoleSum(
                role=role,
                hours=round(sum(p.amount for p in parts if p.role == role), 9),
                percent=round(sum(p.percent for p in parts if p.role == role), 1),
            )
            for role in dict.fromkeys(p.role for p in parts)
        )
        return cls(
            device=device, count=count, hours=hours, digits=digits, parts=parts, roles=roles, unknown=unknown
        )

    @property
    def time(self) -> str:
        """What the percentages are of: ``GPU time``, or ``the time of 1 of 4 GPUs``."""
        return (
            f"the time of {self.count} of {self.count + self.unknown} GPUs"
            if self.unknown
            else f"{self.device} time"
        )

    @property
    def noun(self) -> str:
        """What the hours are hours of: ``GPU`` or ``core``."""
        return "GPU" if self.device == "GPU" else "core"

    @property
    def unit(self) -> str:
        """``GPU-h`` or ``core-min``, for tables."""
        return f"{self.noun}-{_UNITS[per_hour(self.hours)][1]}"

    @property
    def units(self) -> str:
        """``GPU-hours`` or ``core-minutes``, for sentences."""
        return f"{self.noun}-{_UNITS[per_hour(self.hours)][0]}"

    def amount(self, hours: float) -> str:
        """Device-hours in the printed unit, without its name; what is not nothing is not printed as 0."""
        value = per_hour(self.hours) * hours
        small = hours and not round(value, self.digits)
        return f"under {10**-self.digits:g}" if small else number(value, self.digits)

    @property
    def of_job(self) -> str:
        """``, 25.0% by the job's processes``; empty if others used little, or nobody knows."""
        return f", {percent(self.by_job)} by the job's processes" if self.by_job is not UNSET else ""

    @property
    def not_used(self) -> str:
        """``0.364 of 0.500 GPU-hours were lost``; a core's unused time is free."""
        role, word = ("lost", "lost") if self.device == "GPU" else ("outside", "free")
        return f"{self.amount(self.of(role)[0])} of {self.amount(self.hours)}{NBSP}{self.units} were {word}"

    def of(self, role: str) -> tuple[float, float]:
        """(device-hours, percent) of all parts of one role, as printed."""
        return next(((one.hours, one.percent) for one in self.roles if one.role == role), (0.0, 0.0))


def time_use(job: Job) -> TimeUse | None:
    """How the time of all GPUs was spent, or of all CPU cores if no GPU was sampled.

    None if nothing was sampled, or a single snapshot, which covers no time.
    """
    metric, device = (Metric.GPU_UTILIZATION, "GPU") if job.gpu_count else (Metric.CPU_UTILIZATION, "CPU")
    spent = spent_per_node(job, metric=metric)
    devices = [one for node in spent for one in (_cores(node, job) if device == "CPU" else node.devices)]
    unknown = (job.gpus_unknown if device == "GPU" else 0) or UNSET
    use = in_parts(device, devices, {}, Clocks.of(job).length_us if job.covers_time else 0, unknown)
    shares = job.gathered(core_shares) if device == "CPU" else []
    if use is None or len(shares) < len(job.nodes) or not any(one.others_matter for one in shares):
        return use
    # A recorder next to the job, as in a Slurm step of its own, does not see the job's processes.
    if min(one.by_job for one in shares) < MIN_JOB_CORES:
        return use
    cores = sum(one.cores for one in shares)
    return replace(use, by_job=round(100 * sum(one.by_job for one in shares) / cores, 1))


def _cores(node: NodeTime, job: Job) -> tuple[DeviceTime, ...]:
    """The cores of a node; a single series is the mean of all, if another source names their number."""
    known = (job.loop_facts.cores if job.loop_facts else None) or 1
    return node.devices * (known if len(node.devices) == 1 else 1)


def in_parts(
    device: str,
    spent: Sequence[DeviceTime],
    causes: Mapping[str, str],
    length_us: int,
    unknown: int | UnsetType = UNSET,
) -> TimeUse | None:
    """The time of all devices, in parts that add up as printed; the lost ones in the order of ``causes`` and their labels.

    None if that is no time. ``length_us`` is the length of the job, ``unknown`` the number of GPUs that are in no part.
    """
    total_hours = len(spent) * length_us / HOUR_US
    if not total_hours:
        return None
    sums = {"used": sum(one.used for one in spent)}
    sums |= {key: sum(one.lost.get(key, 0.0) for one in spent) for key in causes}
    prefix = "" if device == "GPU" else "core-"
    sums |= {f"{prefix}{key}": sum(one.lost.get(key, 0.0) for one in spent) for key in UNEXPLAINED}
    sums["unmeasured"] = sum(one.unmeasured for one in spent)
    scale = per_hour(total_hours)
    digits = digits_for(scale * total_hours)
    whole = round(scale * total_hours, digits)
    amounts = _rounded(tuple(sums.values()), whole, digits)
    percents = _rounded(tuple(sums.values()), 100.0, 1)
    return TimeUse.of_parts(
        device=device,
        count=len(spent),
        hours=whole / scale,
        digits=digits,
        parts=tuple(
            TimePart(
                key=key,
                label=causes.get(key) or named(key).of_device,
                role=named(key).role,
                amount=amount / scale,
                percent=p,
            )
            for key, amount, p in zip(sums, amounts, percents, strict=True)
            if amount or p or key == "used"
        ),
        unknown=unknown,
    )


def _rounded(parts: Sequence[float], total: float, digits: int) -> tuple[float, ...]:
    """Parts of a total: the first, which the headline names, is rounded; the others add up with it."""
    first, *others = parts
    used = round(first / (sum(parts) or 1.0) * total, digits)
    return used, *apportion(others, total - used, digits)


def lost_sentence(use: TimeUse, first: Finding | None = None) -> str:
    """``0.364 of 0.500 GPU-hours were lost, 0.309 of them while the CPU was saturated``: to the cause of the first finding,
    or to the largest that has one.
    """
    sentence = use.not_used
    causes = [part for part in use.parts if part.when and part.amount]
    of_cause: dict[str, float] = {}
    of_first = ""
    for part in use.parts:
        # Of the parts of one finding, that of its own cause names all.
        when = next((one.when for one in causes if one.key == part.finding), part.when)
        if part.key in UNEXPLAINED and part.finding:
            when = when or "without a known cause"
        if when and part.amount and part.finding:
            of_cause[when] = of_cause.get(when, 0.0) + part.amount
            of_first = when if first and part.finding == first.key else of_first
    if of_cause:
        when = of_first or max(of_cause, key=of_cause.__getitem__)
        sentence += f", {use.amount(of_cause[when])} of them {when}"
    if unmeasured := use.of("unknown")[0]:
        sentence += f"{';' if of_cause else ','} {use.amount(unmeasured)} were not measured"
    return sentence
