"""``comparison.json``: everything the page of a comparison shows, and nothing else."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from jobreport.cost.document import Cost, Sizing  # noqa: TC001 - msgspec reads the annotations
from jobrules.model.time_parts import TimePart  # noqa: TC001 - msgspec reads the annotation

SCHEMA_VERSION = 2


class Word(StrEnum):
    """What is known of a change."""

    BETTER = "better"
    WORSE = "worse"
    #: As better and worse, of a measure without a direction.
    HIGHER = "higher"
    LOWER = "lower"
    SAME = "the same"
    #: Not by chance, but below what counts.
    SMALL = "real, but small"
    NOT_RESOLVED = "not resolved"
    NOT_TESTED = "not tested"
    NOT_MEASURED = "not measured"
    REFUSED = "refused"


#: Words of a change that counts.
CHANGED = (Word.BETTER, Word.WORSE)
#: Words of a change that was judged.
JUDGED = (*CHANGED, Word.HIGHER, Word.LOWER, Word.SMALL, Word.NOT_RESOLVED, Word.SAME)


class Run(Struct, frozen=True, kw_only=True):
    """One run of a variant."""

    name: str
    #: Version of jobreport that wrote the report.
    report_version: str
    start_us: int
    end_us: int
    #: Report page of the run, relative to the comparison; empty if there is none.
    page: str = ""


class Variant(Struct, frozen=True, kw_only=True):
    """Runs of one label: repeats of the same code on the same machines."""

    label: str
    runs: tuple[Run, ...]
    #: Values by fact; None if not known.
    facts: dict[str, str | float | None]


class Fact(Struct, frozen=True, kw_only=True):
    """A fact of the variants that differs, or that is not known of all."""

    key: str
    label: str
    #: ``different``, ``unknown``, or ``same``.
    kind: str
    values: dict[str, str | float | None]


class Change(Struct, frozen=True, kw_only=True):
    """A measure of one variant against the base."""

    word: Word
    #: Why there is no better word; empty if there is one, or if the interval shows it.
    reason: str = ""
    #: Ratio to the base less 1, in percent; for percentages the difference in points.
    change: float | None = None
    points: float | None = None
    #: 95% interval of the change or the points, and the same without the spread between runs.
    low: float | None = None
    high: float | None = None
    own_low: float | None = None
    own_high: float | None = None
    #: The test: difference of the logarithms (or of the points), its standard error, degrees of freedom, and for
    #: both samples, the base first, correlation of neighboring blocks and effective number of values.
    d: float | None = None
    se: float | None = None
    df: float | None = None
    r: tuple[float, ...] = ()
    k_eff: tuple[float, ...] = ()
    #: Standard deviation between runs that was assumed; None for repeats.
    run_noise: float | None = None
    #: Chance of a change that is at least as large between equal runs.
    p: float | None = None

    @property
    def is_compared(self) -> bool:
        """Whether it was neither refused nor is missing."""
        return self.word not in (Word.REFUSED, Word.NOT_MEASURED)


class Measure(Struct, frozen=True, kw_only=True):
    """A number of each variant."""

    key: str
    label: str
    #: ``s``, ``%``, ``1/s``, ``h``, ``GPU-h``, ``kWh``, ``B``, or ``money``.
    unit: str
    #: ``lower``, ``higher``, or ``none``.
    direction: str
    #: Smallest change that counts, in percent or points.
    min_effect: float
    #: Mean over the runs; None if not measured.
    values: dict[str, float | None]
    per_run: dict[str, tuple[float | None, ...]]
    against: dict[str, Change]


class WorkTime(Struct, frozen=True, kw_only=True):
    """What an operator, mark, or kernel took in the profiled stretch of a variant."""

    #: None if it is not among the names of a trace that have most time, so that only limits are known.
    calls: float | None
    low_s: float
    high_s: float


class Work(Struct, frozen=True, kw_only=True):
    """An operator by its own time on the host, a mark of the program, or a kernel by its time on devices."""

    #: ``operator``, ``mark``, or ``kernel``.
    kind: str
    name: str
    variants: dict[str, WorkTime]


class Profiled(Struct, frozen=True, kw_only=True):
    """The stretch of each variant that PyTorch's profiler recorded."""

    #: True if times and calls are those of a step of one rank; otherwise of one capture.
    per_step: bool
    #: Length of the stretch: of the device with the longest one.
    seconds: dict[str, float]
    #: Seconds of one device; left out of variants without device work.
    time: dict[str, tuple[TimePart, ...]]
    #: What changed most, by kind.
    work: tuple[Work, ...]
    #: The kinds of which all names could be compared.
    compared: tuple[str, ...]


class Steps(Struct, frozen=True, kw_only=True):
    """Step times of a variant; of repeats the mean of each number."""

    #: 0th to 100th percentile, and means of the blocks, in seconds.
    quantiles_s: tuple[float, ...]
    means_s: tuple[float, ...]
    #: Of all runs: steps, their time, those that stalled, and how much longer than the median these took.
    timed: int = 0
    timed_s: float = 0.0
    stalls: int | None = None
    stalled_s: float = 0.0


class Use(Struct, frozen=True, kw_only=True):
    """Utilization of a variant in the training loop."""

    #: ``GPU`` or ``CPU``.
    device: str
    mean: float
    #: Percent of the time per 2%.
    histogram: tuple[float, ...]


class RuleResult(Struct, frozen=True, kw_only=True):
    """A rule in one variant; of repeats the worst."""

    #: A status, or a severity if it triggered.
    status: str
    #: Share of the checks that violate, in percent; None if it was not evaluated.
    percent: float | None


class Rule(Struct, frozen=True, kw_only=True):
    """A rule in all variants."""

    name: str
    title: str
    results: dict[str, RuleResult]
    #: True if the runs were judged by other thresholds.
    other_thresholds: bool
    changed: bool


class Budget(Struct, frozen=True, kw_only=True):
    """A limit, and how a variant keeps it."""

    measure: str
    #: In words: ``at most 5.00``.
    limit: str
    label: str
    value: float | None
    #: ``met``, ``broken``, or ``inconclusive``.
    state: str
    level: str
    reason: str = ""


#: Kind of the note that says why there is no cost.
NO_COST = "no-cost"


#: Kind of the note on data of the runs that their reports lack.
LOST_DATA = "lost-data"


class Note(Struct, frozen=True, kw_only=True):
    """A sentence on how far the comparison can be trusted."""

    kind: str
    text: str


class Comparison(Struct, frozen=True, kw_only=True):
    """Everything the page shows."""

    schema_version: int
    #: Version of jobreport that wrote the file.
    version: str
    command: str
    #: Label of the variant that all others are compared with.
    base: str
    #: The verdict in one short sentence: what changed.
    answer: str
    #: The verdict with its numbers: a sentence on each variant, of many on the best one.
    verdict: str
    #: What would settle what is open; empty if nothing is.
    next: str
    variants: tuple[Variant, ...]
    differences: tuple[Fact, ...]
    #: Key of the measure that the verdict is about.
    headline: str
    measures: tuple[Measure, ...]
    cost: Cost | None
    #: Parts of the time of each variant: seconds of the job, and device-hours.
    goodput: dict[str, tuple[TimePart, ...]]
    device_time: dict[str, tuple[TimePart, ...]]
    steps: dict[str, Steps]
    use: dict[str, tuple[Use, ...]]
    rules: tuple[Rule, ...]
    candidates: dict[str, Sizing]
    budgets: tuple[Budget, ...]
    notes: tuple[Note, ...]
    #: None if a run has no traces of PyTorch's profiler.
    profiled: Profiled | None = None
    #: If nothing is open: the main finding on the best run; empty if it has none.
    left: str = ""

    @property
    def labels(self) -> list[str]:
        """The base first."""
        return [variant.label for variant in self.variants]

    @property
    def others(self) -> list[str]:
        """All but the base."""
        return self.labels[1:]

    @property
    def no_cost(self) -> str:
        """Why there is no cost; empty if there is one."""
        return next((note.text for note in self.notes if note.kind == NO_COST), "")

    def find(self, key: str) -> Measure | None:
        """The measure of a key; None if no run has it."""
        return next((one for one in self.measures if one.key == key), None)

    def compares(self, key: str) -> bool:
        """Whether a measure of some variant is compared."""
        measure = self.find(key)
        return measure is not None and any(change.is_compared for change in measure.against.values())

    def measure(self, key: str) -> Measure:
        """As ``find``, of a measure that some run has."""
        return next(one for one in self.measures if one.key == key)


def to_json(comparison: Comparison) -> bytes:
    """Content of the file: the same for equal comparisons."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=1) + b"\n"


def from_json(data: bytes) -> Comparison:
    """Inverse of ``to_json``; raises ``msgspec.ValidationError`` for other content."""
    return msgspec.json.decode(data, type=Comparison)


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``comparison.json``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(Comparison),
    }
