"""What a job cost, and which machines could run it."""

from __future__ import annotations

import math

from msgspec import Struct

from jobrules.model import Count  # noqa: TC001 - msgspec reads the annotation
from jobrules.model.names import OwnText  # noqa: TC001 - msgspec reads the annotation
from jobrules.model.time_parts import TimePart  # noqa: TC001 - msgspec reads the annotation

#: Costs, or times, within this part of each other are about the same.
ABOUT_SAME = 0.02
#: A factor of the cost, or a part of the time, is the reason if it explains this share of the change.
MIN_EXPLAINED = 0.5


class RunCost(Struct, frozen=True, kw_only=True):
    """Cost of one run."""

    machine: OwnText
    nodes: float
    #: Billed hours of one node.
    hours: float
    per_hour: float
    spot: bool
    cost: float
    #: Of all nodes, as they were given or recorded, otherwise those of the list; 0 if none are known.
    gpus: float


class CostRow(Struct, frozen=True, kw_only=True):
    """Cost of one variant; for repeats the mean of its runs."""

    label: str
    machine: str
    nodes: float
    #: As they were given or recorded, otherwise those of the list; 0 if none are known.
    gpus: float
    #: Billed hours of all nodes.
    node_hours: float
    per_hour: float
    spot: bool
    cost: float


class Factors(Struct, frozen=True, kw_only=True):
    """Ratios to the base; their product is that of the costs."""

    time: float
    #: Number of GPUs; of machines if there are none.
    count: float
    #: Price of an hour of a GPU, or of a machine.
    price: float
    of_gpus: bool

    @property
    def main(self) -> str:
        """``time``, ``count``, or ``price``: what explains most of the change; empty if the costs are about the same.

        A factor in the other direction explains nothing, however large it is.
        """
        logs = {key: math.log(getattr(self, key)) for key in ("time", "count", "price")}
        whole = math.fsum(logs.values())
        if abs(whole) <= ABOUT_SAME:
            return ""
        key = max(logs, key=lambda one: logs[one] / whole)
        return key if logs[key] / whole >= MIN_EXPLAINED else ""


class Cost(Struct, frozen=True, kw_only=True):
    """What the variants cost, from the user's prices."""

    currency: str
    #: Name and day of the list; empty if no price is from it.
    source: str
    as_of: str
    #: Variants with prices or costs that were given for their runs.
    own_price: tuple[str, ...]
    billing: str
    rows: tuple[CostRow, ...]
    #: 1 less the ratio of the costs.
    saving: dict[str, float]
    factors: dict[str, Factors]
    #: Saved by so many runs; empty unless asked for.
    runs_per_month: float | None = None
    monthly: dict[str, float] = {}


class Candidate(Struct, frozen=True, kw_only=True):
    """A number of machines that may run the job."""

    machine: OwnText
    count: int
    #: GPUs and cores of all machines, memory of each machine and of each GPU in GiB. None if not known.
    offers: dict[OwnText, float | None]
    #: Needs that are not met, as clauses.
    fails: tuple[OwnText, ...]
    per_hour: float
    #: Of the cost if the run takes as long, or as it was measured; None for another GPU model.
    saving: float | None
    #: It pays up to this duration.
    break_even_s: float
    #: The variant that ran on these machines; empty for machines of the list alone.
    label: OwnText = ""
    #: What is not known of the needs or of the machines, as clauses.
    unknown: tuple[OwnText, ...] = ()
    #: How long the variant took that did the same work on these machines; needs are then not estimated.
    measured_s: float | None = None
    #: False if chance can make a cost that was measured as much lower.
    is_sure: bool = True

    @property
    def holds(self) -> bool:
        """Whether all needs are known, and met."""
        return not self.fails and not self.unknown


class Sizing(Struct, frozen=True, kw_only=True):
    """Which machines may run a variant."""

    #: As ``Candidate.offers``, with headroom; host memory is that of the processes of each GPU in use, if one is.
    needs: dict[OwnText, float | None]
    now: Candidate
    #: The best of the list, and the machines of the other variants.
    candidates: tuple[Candidate, ...]
    #: Why nothing is called a candidate, or what comes first; sentences.
    guards: tuple[OwnText, ...]
    #: True if the candidates may be tried.
    advised: bool
    #: True if only percentiles of each node were known.
    upper_estimate: bool


class JobCost(Struct, frozen=True, kw_only=True):
    """Cost and size of the job, from the user's prices. Amounts are not rounded."""

    #: Type of the machines; empty if nobody named it.
    machine: OwnText
    #: As the list of prices has it; empty without a list.
    currency: OwnText
    #: Where the price is from, and of which day.
    source: OwnText
    as_of: OwnText
    #: Unit that a duration is rounded up to: ``1s``, ``1min``, or ``1h``.
    billing: OwnText
    #: None if the cost is not known, because of what is ``missing``: ``machine``, ``price``,
    #: ``spot_price``, ``nodes``, or ``duration``.
    run: RunCost | None
    missing: OwnText
    #: Of so much work; None if it is not known.
    per_1000_steps: float | None
    per_million_samples: float | None
    #: Price of an hour of a GPU: that of the node over its GPUs. None without GPUs.
    per_gpu_hour: float | None
    #: The parts of the verdict's GPU time, their amounts in money; empty without GPUs.
    parts: tuple[TimePart, ...]
    #: Of the lost ones together, and what was billed beyond all parts, as for GPUs that were not recorded.
    lost: float
    rest: float
    #: None without a list of machines, or if nothing was sampled.
    sizing: Sizing | None
    #: That the machine type contradicts the recorded GPUs or cores; a sentence.
    wrong_machine: OwnText = ""


class ShareOfPeak(Struct, frozen=True, kw_only=True):
    """Operations per second of the model in the steps of ``blocks``, and what they are of the peak of all GPUs."""

    #: None if the peak is not known: of this GPU, or because the precision is not.
    mfu_percent: float | None = None
    flops_per_step: float
    flops_per_second: float
    #: ``given``, ``counted``, or ``estimated``: 6 for each parameter and token.
    source: OwnText
    #: Of the estimate.
    parameters: Count | None = None
    #: Training ranks, and those that gave or counted operations: the others are taken to do as much.
    ranks: Count
    ranks_known: Count
    gpus: Count
    #: ``bfloat16``, ``float16``, ``tf32``, ``float32``; empty if it is not known.
    precision: OwnText = ""
    #: Of all GPUs, without sparsity.
    peak_flops_per_second: float | None = None
