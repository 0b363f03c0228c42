"""How a rule explains lost GPU time: the moments that it claims, and the finding that names them.

A sample of u percent that stands for t seconds loses t * (1 - u/100). Each lost moment of each GPU goes to the first
cause that claims it, in the order of ``Precedence``: a cause has evidence of its own at that moment. What no cause claims
stays unexplained. That two things happen at once does not show that one causes the other, so amounts are upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from msgspec import Struct

from jobrules.model import (
    BoolArray,
    Fact,
    Finding,
    FloatArray,
    IntArray,
    Job,
    Note,
    Panel,
    ReasonKind,
    RuleResult,
    When,
    Where,
)
from jobrules.model.time_parts import named
from jobrules.text import share


class Precedence(IntEnum):
    """Which cause comes first where several claim the same moment."""

    NEVER_USED = 1
    START_UP = 2
    WIND_DOWN = 3
    HEAT = 4
    POWER_LIMIT = 5
    SLOW_CLOCK = 6
    #: Before what they cause: work on the CPU, and the files that are written.
    PROFILING = 7
    CHECKPOINT = 8
    #: Before CPU_BOUND: many samplers count I/O wait as utilization of the core.
    IO_BOUND = 9
    CPU_BOUND = 10
    DATA_LOADING = 11
    EVALUATION = 12
    SLOW_RANK = 13
    SLOW_STEPS = 14
    ONE_PROCESS = 15
    ONE_CORE_IN_USE = 16
    #: Causes of a user's own rules, unless they name another place.
    OTHER = 17
    UNEVEN_LOAD = 18
    CODE_LINE = 19
    #: Last, as its evidence is that nothing else explains the loss.
    SMALL_BATCH = 20


class Samples(Struct, frozen=True, kw_only=True, eq=False):
    """The samples of one GPU, the time that each stands for, and what is left of the lost time."""

    panel: Panel
    column: int
    #: (n,) the rows of the panel that hold them.
    rows: IntArray | slice
    #: (n,) when, percent of use, and microseconds.
    time_us: IntArray
    values: FloatArray
    weight_us: FloatArray
    #: (n,) which lie in the work of the job.
    in_work: BoolArray
    #: (n,) all lost time, in microseconds.
    lost_us: FloatArray
    #: (n,) what the causes before left of it; 0 outside of the work for causes of the work.
    left_us: FloatArray

    @property
    def name(self) -> str:
        """``node/device``, as in ``Finding.devices``."""
        return f"{self.panel.node}/{self.panel.devices[self.column]}"

    @property
    def work_us(self) -> float:
        """The measured time of the work."""
        return float(self.weight_us[self.in_work].sum())

    @property
    def left_part(self) -> float:
        """Share of the time of the work that is lost and left."""
        return float(self.left_us.sum()) / max(1.0, self.work_us)

    @property
    def mean(self) -> float:
        """Mean utilization in the work, in percent."""
        lost = float(self.lost_us[self.in_work].sum())
        return 100 * (1 - lost / max(1.0, self.work_us))


#: Upper bound of the lost time claimed per sample, in microseconds, for each GPU of a node.
Claim = Callable[[Sequence[Samples]], Sequence[FloatArray]]


class Claimed(Struct, frozen=True, kw_only=True):
    """What a cause claimed, over all nodes."""

    #: GPU time in seconds, and its share of the time of all GPUs.
    gpu_s: float
    share: float
    #: The GPUs, as ``node/device``, and their nodes.
    devices: tuple[str, ...]
    nodes: tuple[str, ...]
    #: Snapshots of these nodes with a claim, and all of these nodes during the work.
    snapshots: int
    of_snapshots: int
    #: First and last moment; both 0 if nothing was claimed.
    start_us: int
    end_us: int

    @property
    def seen(self) -> str:
        """Share of the snapshots with a claim: ``62.4%``."""
        return share(self.snapshots / self.of_snapshots)

    @property
    def names(self) -> tuple[str, ...]:
        """The GPUs as sentences name them: ``algo-1 gpu0``."""
        return tuple(" ".join(name.rsplit("/", 1)) for name in self.devices)


def moments(claimed: Claimed, result: RuleResult, names: tuple[str, ...] = ()) -> tuple[Fact, ...]:
    """Where (on its nodes, or on devices by their ``names``) and when a cause claimed time, and that the rule itself would want more data."""
    facts: list[Fact] = [Where(names or claimed.nodes), When(claimed.start_us, claimed.end_us)]
    if result.reason is not None and result.reason.kind in (ReasonKind.TOO_FEW, ReasonKind.TOO_SHORT):
        needed, have = result.reason.amounts
        facts.append(Note(f"The rule itself needs {needed}; {result.reason.whose} has {have}"))
    return tuple(facts)


class Cause(Struct, frozen=True, kw_only=True, eq=False):
    """A reason why GPU time was lost."""

    #: Of the part of the bar, and of the finding.
    key: str
    precedence: Precedence
    #: When the time was lost, after an amount of hours: "while the CPU was saturated".
    when: str
    #: Given the part of a node, its GPUs' panel and (n,) the time that each snapshot stands for: the claim of that node;
    #: None where the cause claims nothing there. It must be picklable. None for a cause whose amount is known without samples.
    claim: Callable[[Job, Panel, FloatArray], Claim | None] | None = None
    #: The finding on what it claimed; severity, share and amount are filled in.
    finding: Callable[[Claimed], Finding]
    #: False for what may claim time outside of the work.
    of_work: bool = True
    #: True if it claims the samples in which its evidence was seen. A stall begins and ends between two samples, so the low
    #: samples just before and after a claimed one are partly the same stall, and that part is claimed too.
    widened: bool = False
    #: The part's name in the legend: "Lost: writing to disk"; empty for those of ``TIME_PARTS``.
    label: str = ""
    #: Share of the training loop that it took, where that is known without samples of GPUs; 0 if it is not.
    of_loop: float = 0.0

    @property
    def shown(self) -> str:
        """The part's name in the legend: "Lost: CPU saturated"."""
        return self.label or named(self.key).of_device
