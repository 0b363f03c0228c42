"""How the time of all devices was spent, in parts that add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, Struct, UnsetType

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.work_span import HOUR_US
from jobrules.model import Job, Metric
from jobrules.text import NBSP, apportion, digits_for, number, percent
from jobrules.verdict.accounting import DeviceTime, spent_per_node

#: Names of lost time without a cause, by the key of the part.
LABELS = {
    "idle": "Lost: unexplained, GPU idle",
    "low": "Lost: unexplained, GPU below 70%",
    "busy": "Lost: unexplained, GPU above 70%",
}


class Part(Struct, frozen=True, kw_only=True):
    """One part of a whole, as time."""

    #: ``used``, ``idle``, ``low``, ``busy``, ``unmeasured``, or the key of the
    #: finding on the cause of the loss.
    key: str
    label: str
    #: ``used``, ``lost`` or ``unknown``: decides the color.
    role: str
    #: Device-hours, rounded so that the parts add up to the printed total.
    hours: float
    #: Rounded so that the parts add up to 100.0.
    percent: float
    #: Key of the finding that explains it, with the same amount; empty if none does.
    finding: str = ""
    #: When it was lost, after an amount of hours: "while the CPU was saturated"; empty if there is no cause.
    when: str = ""


class RoleSum(Struct, frozen=True, kw_only=True):
    """All parts of one role together, as printed."""

    #: ``used``, ``lost`` or ``unknown``.
    role: str
    #: Device-hours, and percent of all.
    hours: float
    percent: float


class TimeUse(Struct, frozen=True, kw_only=True):
    """How the time of all devices of one kind was spent; each moment of a device counts once."""

    #: ``GPU`` or ``CPU``.
    device: str
    count: int
    #: Device-hours from the first to the last record of the job, rounded as the parts are.
    hours: float
    #: Digits after the point that ``hours`` are rounded to.
    digits: int
    #: Used; lost by cause, the largest first; lost and unexplained; not measured.
    parts: tuple[Part, ...]
    #: The parts by role.
    roles: tuple[RoleSum, ...]
    #: More GPUs, with samples but without utilization: they are in no part.
    unknown: int | UnsetType = UNSET

    @classmethod
    def of_parts(
        cls,
        device: str,
        count: int,
        hours: float,
        digits: int,
        parts: tuple[Part, ...],
        unknown: int | UnsetType = UNSET,
    ) -> TimeUse:
        """With the parts summed up by role."""
        roles = tuple(
            RoleSum(
                role=role,
                hours=round(sum(p.hours for p in parts if p.role == role), digits),
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
    def lost_word(self) -> str:
        """What unused time is called: a GPU's is lost, a core's is free."""
        return "lost" if self.device == "GPU" else "free"

    def of(self, role: str) -> tuple[float, float]:
        """(device-hours, percent) of all parts of one role, as printed."""
        return next(((one.hours, one.percent) for one in self.roles if one.role == role), (0.0, 0.0))


def time_use(job: Job) -> TimeUse | None:
    """How the time of all GPUs was spent, or of all CPU cores if no GPU was sampled.

    None if nothing was sampled, or a single snapshot, which covers no time.
    """
    metric, device = (Metric.GPU_UTILIZATION, "GPU") if job.gpu_count else (Metric.CPU_UTILIZATION, "CPU")
    labels = LABELS if device == "GPU" else _CPU_LABELS
    devices = [device for node in spent_per_node(job, metric=metric) for device in node.devices]
    unknown = (job.gpus_unknown if device == "GPU" else 0) or UNSET
    return in_parts(device, devices, labels, Clocks.of(job).length_us if job.covers_time else 0, unknown)


def in_parts(
    device: str,
    spent: Sequence[DeviceTime],
    labels: Mapping[str, str],
    length_us: int,
    unknown: int | UnsetType = UNSET,
) -> TimeUse | None:
    """The time of all devices, in parts that add up as printed; the lost ones in the order of ``labels``.

    None if that is no time. ``length_us`` is the length of the job, ``unknown`` the number of GPUs that are in no part.
    """
    total_hours = len(spent) * length_us / HOUR_US
    if not total_hours:
        return None
    sums = {"used": sum(one.used for one in spent)}
    sums |= {key: sum(one.lost.get(key, 0.0) for one in spent) for key in labels}
    sums["unmeasured"] = sum(one.unmeasured for one in spent)
    digits = digits_for(total_hours)
    whole = round(total_hours, digits)
    hours = apportion(tuple(sums.values()), whole, digits)
    percents = apportion(tuple(sums.values()), 100.0, 1)
    return TimeUse.of_parts(
        device=device,
        count=len(spent),
        hours=whole,
        digits=digits,
        parts=tuple(
            Part(
                key=key,
                label=labels.get(key) or _OTHER_LABELS[key],
                role=_ROLES.get(key, "lost"),
                hours=h,
                percent=p,
            )
            for key, h, p in zip(sums, hours, percents, strict=True)
            if h or p or key == "used"
        ),
        unknown=unknown,
    )


_ROLES = {"used": "used", "unmeasured": "unknown"}

_OTHER_LABELS = {"used": "Used", "unmeasured": "Not measured"}


_CPU_LABELS = {
    "idle": "Free: core idle",
    "low": "Free: core active, below 70%",
    "busy": "Free: core above 70%",
}


def used_sentence(use: TimeUse) -> str:
    """``27.3% of GPU time was used``."""
    return f"{percent(use.of('used')[1])} of {use.time} was used"


def lost_sentence(use: TimeUse) -> str:
    """``0.364 of 0.500 GPU-hours were lost, 0.309 of them while the CPU was saturated``."""

    def hours(value: float) -> str:
        return number(value, use.digits)

    sentence = f"{hours(use.of('lost')[0])} of {hours(use.hours)}{NBSP}{use.noun}-hours were {use.lost_word}"
    causes = [part for part in use.parts if part.when and part.hours]
    named: dict[str, float] = {}
    for part in causes:
        # Of the parts of one finding, that of its own cause names all.
        when = next((one.when for one in causes if one.key == part.finding), part.when)
        named[when] = named.get(when, 0.0) + part.hours
    if unexplained := sum(part.hours for part in use.parts if part.key in LABELS and part.finding):
        named["without a known cause"] = unexplained
    if named:
        when = max(named, key=named.__getitem__)
        sentence += f", {hours(named[when])} of them {when}"
    if unmeasured := use.of("unknown")[0]:
        sentence += f"{';' if named else ','} {hours(unmeasured)} were not measured"
    return sentence
