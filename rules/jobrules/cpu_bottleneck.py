"""CPUBottleneck: a GPU idles while a CPU core is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jobrules.measures.bottleneck_snapshots import BottleneckCriteria
from jobrules.model import Metric
from jobrules.rule import Amount, Rule, percent, samples

if TYPE_CHECKING:
    from jobrules.model import Job, RuleResult


@dataclass(frozen=True, kw_only=True)
class CPUBottleneck(Rule):
    """A GPU idles while a CPU core is full.

    What it checks
        Counts the snapshots of a node in which any GPU is used less than ``gpu_threshold`` while any
        core is used more than ``cpu_threshold``. Looks at their share once a minute, over all
        snapshots so far that hold a GPU sample: triggers when it is above ``threshold``, of all nodes
        with more than ``patience`` such snapshots together. A minute without a GPU sample is not
        judged again. One idle GPU and one full core suffice, and the start-up counts too.

    Why it matters
        A GPU that waits for the CPU costs what a busy one costs. One core is enough to hold it up:
        Python code runs on one core at a time. The rule sees that both happen at once, not that one
        causes the other.

    What to do
        Raise ``num_workers``, so that more processes load and transform the data, or prepare it before
        training or on the GPU. Look at what the full cores do in the training loop. If every core is full,
        more processes will not help: take a machine with more cores for each GPU.
    """

    title: ClassVar[str] = "A GPU idles while a CPU core is full"
    requires: ClassVar[tuple[Metric, ...]] = (Metric.GPU_UTILIZATION, Metric.CPU_UTILIZATION)
    section: ClassVar[str] = "cpu-bottlenecks"

    threshold: float = percent(50.0, "share of GPU snapshots that are bottlenecks")
    cpu_threshold: float = percent(90.0, "a core used more than this is full")
    gpu_threshold: float = percent(10.0, "a GPU used less than this idles")
    patience: Amount = samples(1000, "GPU snapshots of a node that are seen before it is judged")

    def check(self, job: Job) -> RuleResult:
        """``triggered`` counts minutes, ``violations`` and ``datapoints`` count snapshots of all nodes."""
        return self.question.answer(self, job)

    @property
    def question(self) -> BottleneckCriteria:
        """The rule with its thresholds, as the two bottleneck rules share it."""
        return BottleneckCriteria(
            key="cpu",
            metric=Metric.CPU_UTILIZATION,
            core_threshold=self.cpu_threshold,
            gpu_threshold=self.gpu_threshold,
            threshold=self.threshold,
            patience=self.patience,
            core_did="was full",
            cores_did="were full",
            many_advice=(
                "Take a machine with more cores for each GPU, or prepare the data at less cost. Cache it, prepare "
                "it before training, or on the GPU; more loading processes will not help: {cores} are full."
            ),
            few_advice=(
                "Move loading out of the training process: ``num_workers`` above 0 loads batches on other cores. "
                "If it is so already, look for what a single thread does: collating, logging, evaluation."
            ),
        )
