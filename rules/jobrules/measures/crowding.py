"""Other processes on the job's cores: what the machine used less what the job's processes used."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from jobrules.model import Job, Metric
from jobrules.text import count, number

#: Others use a relevant part of the cores from this share on.
OTHERS_PART = 0.2
#: They take time from the job if the cores are used this much on average, processes wait for a CPU for this much of the
#: time, and the job uses so many cores itself.
CROWDED_PERCENT, WAITING_PERCENT, MIN_JOB_CORES = 80.0, 10.0, 0.1
#: Samples of the job's processes, which are 5 s apart.
MIN_SNAPSHOTS = 3

#: Advice on cores that others use too.
CROWDED_ADVICE = (
    "Run the job without other processes on its cores: ask for whole cores, or wait until they are free.",
    "Other numbers of this report, such as times of steps and fetches, hold for the shared cores only.",
)


class CoreShare(Struct, frozen=True, kw_only=True):
    """Cores in use on a node: means over the time in which its processes were sampled."""

    node: str
    cores: int
    by_job: float
    by_all: float
    #: Percent of the time in which some process waited for a CPU; None if it was not recorded.
    pressure: float | None

    def __str__(self) -> str:
        """The same in words, without a period."""
        cores, by_job, by_all = count(self.cores, "core"), number(self.by_job, 1), number(self.by_all, 1)
        return f"Other processes use the CPU: the job's processes used {by_job} of {cores}, all together {by_all}"

    @property
    def own_percent(self) -> float:
        """What the job uses of the cores, in percent."""
        return 100 * self.by_job / self.cores

    @property
    def others_matter(self) -> bool:
        """True if other processes use a relevant part of the cores."""
        return self.by_all - self.by_job >= OTHERS_PART * self.cores

    @property
    def of_others(self) -> bool:
        """True if most of what is in use is that of other processes."""
        return self.others_matter and 2 * self.by_job < self.by_all

    @property
    def fills(self) -> bool:
        """True if other processes leave few cores free."""
        return self.others_matter and 100 * self.by_all >= CROWDED_PERCENT * self.cores

    @property
    def crowded(self) -> bool:
        """True if other processes take CPU time from the job."""
        return (
            self.fills
            and self.by_job >= MIN_JOB_CORES
            and (self.pressure is None or self.pressure >= WAITING_PERCENT)
        )


def core_shares(part: Job) -> Iterator[CoreShare]:
    """Of a node whose cores and processes were sampled."""
    (node,) = part.nodes
    cpu, processes = part.panel(node, Metric.CPU_UTILIZATION), part.panel(node, Metric.JOB_CPU)
    if cpu is None or processes is None or len(processes.time_us) < MIN_SNAPSHOTS:
        return
    # In a container with a CPU limit, utilization is that of the limit: no other process has a part of it.
    if part.panel(node, Metric.MACHINE_CPU) is not None:
        return
    first_us, last_us = int(processes.time_us[0]), int(processes.time_us[-1])
    cpu, pressure = cpu.within(first_us, last_us), part.panel(node, Metric.CPU_PRESSURE)
    if cpu is None:
        return
    waiting = pressure and pressure.within(first_us, last_us)
    yield CoreShare(
        node=node,
        cores=len(cpu.devices),
        # A reading is the mean since the one before: the first one is of the time before the window.
        by_job=float(processes.mean[1:].mean()),
        by_all=float(cpu.mean.mean()) / 100 * len(cpu.devices),
        pressure=float(waiting.mean.mean()) if waiting else None,
    )
