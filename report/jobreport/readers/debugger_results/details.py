"""``Details`` of the rule results of SageMaker Debugger, as far as a report uses them.

A missing value is None. A value of another type or out of range is None, and counted. Unknown keys are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from jobreport.readers.bounds import Microseconds, Seconds  # noqa: TC001 - msgspec reads the annotation
from jobreport.readers.names import as_name

if TYPE_CHECKING:
    from jobreport.readers.tally import Tally

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Percent = Annotated[float, Meta(ge=0, le=100)]
#: Seconds, or bytes per second.
Amount = Annotated[float, Meta(ge=0, le=1e15)]
#: Points or percent of either sign.
Signed = Annotated[float, Meta(ge=-1e15, le=1e15)]
#: Samples per bin of 2%, from 0 to 98%.
Bins = Annotated[tuple[Count, ...], Meta(min_length=49, max_length=49)]

#: Node and device.
GPU: TypeAlias = tuple[str, str]


class GpuUse(Struct, frozen=True, kw_only=True):
    """LowGPUUtilization on one GPU: the last window that triggered, and the samples until then."""

    gpu_max: Percent | None = None
    gpu_95: Percent | None = None
    p25: Percent | None = None
    p50: Percent | None = None
    p75: Percent | None = None
    p95: Percent | None = None
    upper: Percent | None = None
    lower: Percent | None = None


class GpuMemory(Struct, frozen=True, kw_only=True):
    """GPUMemoryIncrease on one GPU: the last increase in points, and the maximum until then."""

    increase: Signed | None = None
    gpu_max: Percent | None = None


class Usage(Struct, frozen=True, kw_only=True):
    """Distribution of a metric of one node over the whole job; a table needs all of it."""

    min: Amount
    p50: Amount
    p95: Amount
    p99: Amount
    max: Amount


class PercentUsage(Usage, frozen=True, kw_only=True):
    """Distribution of a metric in percent."""

    min: Percent
    p50: Percent
    p95: Percent
    p99: Percent
    max: Percent


class Workloads(Struct, frozen=True, kw_only=True):
    """LoadBalancing on one node: a histogram per device."""

    workloads: dict[str, Bins] = {}


class Quantiles(Struct, frozen=True, kw_only=True):
    """Times in seconds."""

    p50: Amount | None = None


class BottleneckEntry(Struct, frozen=True, kw_only=True):
    """What counted in one snapshot: idle GPUs, and cores above the threshold."""

    gpus: Count = field(default=0, name="GPUs")
    cores: Count = field(default=0, name="CPUs")


class StepStats(Struct, frozen=True, kw_only=True):
    """Step durations in seconds."""

    mean: Amount | None = None
    p50: Amount | None = None
    max: Amount | None = None


class StepSeries(Struct, frozen=True, kw_only=True):
    """The one mode of a rank that StepOutlier keeps."""

    step_stats: StepStats = StepStats()
    number_of_outliers: Count | None = None
    phase: str = ""
    #: A step that takes part in several checks is listed once per check.
    step_numbers: tuple[str | int, ...] = ()


class Loader(Struct, frozen=True, kw_only=True):
    """Settings of the last data loader, and the median number of active loader processes."""

    cores: Count | None = None
    dataloaders: Count | None = None
    num_workers: Count | None = None
    dataloading_time: Quantiles = Quantiles()


class StepTimes(Struct, frozen=True, kw_only=True):
    """Starts of the first and the last step."""

    first: Microseconds | None = None
    last: Microseconds | None = None


class JobTimes(Struct, frozen=True, kw_only=True):
    """Times of the first and the last sample, and of the steps."""

    job_start: Seconds | None = None
    job_end: Seconds | None = None
    step_num: StepTimes = StepTimes()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if the job ends before it starts."""
        if self.job_start is not None and self.job_end is not None and self.job_end < self.job_start:
            raise ValueError("ends before it starts")


T = TypeVar("T")


class Table:
    """A table of JSON, empty if ``value`` is none; values of ``file`` that cannot be used are counted."""

    def __init__(self, value: Any, tally: Tally, file: str | None) -> None:
        self._tally, self._file = tally, file
        self.values = self.mapping(value)

    def typed(self, value: Any, kind: type[T]) -> T | None:
        """``value`` as ``kind``; None if it is missing, or cannot be used, which is counted."""
        if value is None:
            return None
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            self._tally.note("debugger.value", file=self._file)
            return None

    def get(self, key: str, kind: type[T]) -> T | None:
        """The value of ``key`` as ``kind``; None if it is missing or cannot be used."""
        return self.typed(self.values.get(key), kind)

    def mapping(self, value: Any) -> dict[str, Any]:
        """``value`` as a table; empty if it is none."""
        return self.typed(value, dict[str, Any]) or {}

    def whole(self, kind: type[T]) -> T:
        """All values as ``kind``; its default if they cannot be used."""
        return self.typed(self.values, kind) or kind()

    def each(self, key: str, kind: type[T]) -> dict[str, T]:
        """Name → ``kind`` in the table of ``key``, without the entries that cannot be used."""
        return self.entries(self.values.get(key), kind)

    def entries(self, value: Any, kind: type[T]) -> dict[str, T]:
        """As ``each``, of any table."""
        found = {name: self.typed(one, kind) for name, one in self.mapping(value).items()}
        return {name: one for name, one in found.items() if one is not None}

    def of_gpus(self, kind: type[T]) -> dict[GPU, T]:
        """GPU → ``kind``; the default of ``kind`` if the entry cannot be used, since the GPU is known."""
        return {
            (as_name(node), as_name(device)): self.typed(one, kind) or kind()
            for node, devices in self.values.items()
            if node != "last_timestamp"
            for device, one in self.mapping(devices).items()
        }
