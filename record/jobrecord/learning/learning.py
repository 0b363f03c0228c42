"""What this process learns: when a step is recorded, what the head says, and what is written."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from jobrecord.hooks.training_log import MAX_LEARNING_BYTES, MAX_WAITING, now_us
from jobrecord.learning import model as models
from jobrecord.learning.learner import Learner
from jobrecord.learning.rows import lines
from jobrecord.learning.statistics import SAMPLE, fetched
from jobrecord.traces import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrecord.hooks.steps import Steps
    from jobrecord.hooks.training_log import TrainingLog
    from jobrecord.learning.rows import Row

#: The first steps are recorded all; and records over which the cost is measured.
FIRST_STEPS, _MEASURED = 10, 5
#: Remarks, and overflows since the last look.
_MOST = 100
#: The smallest loss scale above 0.
_LEAST = 2.0**-149
COMPILED = "activations: the model is compiled"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `learn` is called with."""

    every: int = 100
    #: A ``GradScaler``, for its overflows.
    scaler: Any = None
    activations: bool | str = "auto"
    inputs: bool = False
    #: ``"accumulate"`` where gradients are gone before the optimizer steps.
    gradients: bool | str = True
    updates: bool = True
    histograms: bool = True
    #: ``"all"``: ranks with the same weights write all, too.
    ranks: str = "auto"
    #: Share of the time that records may take.
    budget: float = 0.02
    pad_id: int | None = None
    #: How many the model tells apart.
    classes: int | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError("learn() needs every >= 1")


class Learning:
    """The learners of this process, which share options, and the numbers of tensors."""

    def __init__(
        self, log: TrainingLog, steps: Steps, blocks: list[Any], options: Options, resumed_from: int | None
    ) -> None:
        #: Evaluations that have begun.
        self._log, self._steps, self.blocks = log, steps, blocks
        #: Those whose optimizers are there.
        self.learners: WeakSet[Learner] = WeakSet()
        self.is_over = False
        #: A step after an event, and what cannot be recorded.
        self._extra = resumed_from
        self._remarks: list[str] = []
        self._ids: dict[tuple[Any, ...], int] = {}
        #: Steps of fused optimizers, when they were, and whether they were skipped, on the device.
        self._overflows: list[tuple[int, int, Any]] = []
        self._looks_at_precision = True
        #: Records, what they took, and since when.
        self._records, self._cost_ns, self._since_ns = 0, 0, 0
        #: Parameters of models, and the step of which, which several optimizers share.
        self._parameters: WeakKeyDictionary[Any, tuple[int, list[tuple[str, Any, str]]]] = WeakKeyDictionary()
        self._facts: dict[str, Any] = {"resumed_from": resumed_from, "not_recorded": self._remarks}
        self.begin(options)

    def begin(self, options: Options) -> None:
        """Begin a training, the first one or the one after another."""
        self.options, self._every = options, options.every
        kept = {name: self._facts[name] for name in ("resumed_from", "not_recorded")}
        self._facts = kept | {"every": options.every, "sample": SAMPLE, "classes": options.classes}
        self._facts |= {"accumulation": None, "parameters": None, "trainable": None, "groups": []}
        is_scaled = options.scaler is not None and options.scaler.is_enabled()
        self._scaler = options.scaler if is_scaled else None
        self._scale = self._scaler.get_scale() if self._scaler is not None else 0.0
        if is_scaled:
            self._facts["amp"] = "float16"

    @property
    def step(self) -> int:
        """The step that has begun."""
        return self._steps.number

    @property
    def hides_shapes(self) -> bool:
        """Whether parameters have the shape of this rank's part."""
        return bool(self._facts.get("sharding") == "fsdp1")

    def is_due(self, step: int) -> bool:
        """Whether a step is recorded."""
        return step < FIRST_STEPS or step % self._every == 0 or step == self._extra

    def learn(self, model: Any, optimizers: Any, name: str, known: dict[str, Any]) -> None:
        """Learn from a model and what trains it. Of the head, `known` is what the caller knows better.

        Raises TypeError for what is no model or optimizer.
        """
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"learn() needs a torch.nn.Module, not {type(model).__name__}")
        several = optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]
        for one in several:
            if not hasattr(models.layers(one)[-1], "param_groups"):
                raise TypeError(f"learn() needs an optimizer of PyTorch, not {type(one).__name__}")
        try:
            for one in several:
                self._add(model, models.layers(one), f"{name}/" if name else "", known)
        except Exception as error:  # noqa: BLE001 - the training must go on, whatever it is
            self.fail(error)

    def _add(self, model: Any, layers: list[Any], prefix: str, known: dict[str, Any]) -> None:
        optimizer = layers[-1]
        if any(one.model is model and one.optimizer is optimizer for one in self.learners):
            return
        facts, is_first = self._facts, not any(one.model is model for one in self.learners)
        facts["groups"] = [*facts["groups"], *models.groups(optimizer)]
        facts.setdefault("optimizer", type(optimizer).__name__)
        facts.setdefault("sharding", models.sharding(model))
        facts |= {fact: value for fact, value in known.items() if value}
        facts["compiled"] = facts.get("compiled", False) or models.is_compiled(model)
        if self.hides_shapes:
            self.remark("shapes: FSDP1 does not tell them")
        elif is_first:
            every = [one for _, one, _ in models.parameters(model)]
            facts["parameters"] = (facts["parameters"] or 0) + sum(one.numel() for one in every)
            trainable = sum(one.numel() for one in every if one.requires_grad)
            facts["trainable"] = (facts["trainable"] or 0) + trainable
        if why := models.held_elsewhere(model, layers):
            self.remark(f"tensors: {why}")
        else:
            norms = facts["sharding"] == "ddp" and self.options.ranks == "auto" and _rank() > 0
            learner = Learner(self, model, optimizer, prefix, holds=is_first, norms=norms)
            learner.leads = not self.learners
            self.learners.add(learner)
            if facts["compiled"]:
                self.remark(COMPILED)
            asks = self.options.activations and is_first and not norms
            learner.watch(activations=bool(asks) and not facts["compiled"])
        self._log.know(**facts)
        if facts["resumed_from"] is not None and not self._ids:
            self._log.event(facts["resumed_from"], "resume")

    def parameters(self, model: Any) -> list[tuple[str, Any, str]]:
        """`models.parameters`, looked up once a step."""
        known = self._parameters.get(model)
        if known is None or known[0] != self.step:
            known = self._parameters[model] = self.step, models.parameters(model)
        return known[1]

    def remark(self, clause: str) -> None:
        """Say what is not recorded, and why, once."""
        if clause not in self._remarks and len(self._remarks) < _MOST:
            self._remarks = [*self._remarks, clause]
            self._facts["not_recorded"] = self._remarks
            self._log.know(**self._facts)

    def resumed(self, step: int) -> None:
        """Record the first step after a checkpoint was loaded."""
        self._extra = step

    def look_at_precision(self, model: Any) -> None:
        """Note, once in training, what autocast computes in."""
        if self._looks_at_precision:
            self._looks_at_precision = False
            device = next((one.device.type for one in model.parameters()), "cpu")
            self._facts["amp"] = self._facts.get("amp") or models.amp(device)
            self._log.know(**self._facts)
            if self._facts["amp"] == "float16" and self._scaler is None:
                self.remark("overflows: learn() was called without the scaler")

    def look_at_scaler(self, optimizer: Any = None) -> Callable[[], bool]:
        """Write what steps were skipped for an overflow. Returns a call that tells whether this one will be."""
        found = getattr(optimizer, "found_inf", None)
        if isinstance(found, torch.Tensor):
            # A fused optimizer skips by itself. To read it now would wait for the device.
            self._overflows.append((self.step, now_us(), found))
            if len(self._overflows) >= MAX_WAITING:
                self._write_overflows()
            return lambda: bool(found)
        if self._scaler is not None and not any(_is_fused(one.optimizer) for one in self.learners):
            scale, before = self._scaler.get_scale(), self._scale
            self._scale = scale
            if scale < before:
                # In the end it is 0.
                times = math.log(max(scale, _LEAST) / before) / math.log(self._scaler.get_backoff_factor())
                for _ in range(min(_MOST, round(times))):
                    self._log.event(self.step, "overflow", f"scale {before:g} to {scale:g}")
                self._extra = self.step
        return bool

    def write(self, learner: Learner, rows: list[Row], frozen: list[Row]) -> None:
        """Write a record with what waits for one, in a thread."""
        step, time_us = self.step, now_us()
        self._log.wait()
        self._log.write_waiting()
        self._write_overflows()
        if learner.leads:
            self._write_rates(step, learner.optimizer)
        first = len(self._ids)
        named = [row for row in [*frozen, *rows] if self._ids.setdefault(row.key, len(self._ids)) >= first]
        named = list({row.key: row for row in named}.values())
        names = {"kind": "names", "first": first}
        names["tensors"] = [{"n": row.name, "c": row.collection} | row.facts for row in named]
        ids = [self._ids[row.key] for row in rows]
        where = {"where": "accumulate"} if self.options.gradients == "accumulate" else {}
        cost_ns = learner.spent_ns()
        record = {"step": step, "mode": "TRAIN", "time_us": time_us, "cost_us": cost_ns // 1000} | where
        self._log.write_later(lambda: [names] * bool(named) + lines(rows, ids, **record))
        if self._log.size > MAX_LEARNING_BYTES // 2:
            self._double("the file is large")
        self._keep_budget(step, cost_ns)

    def _write_rates(self, step: int, optimizer: Any) -> None:
        """Write what the step was made with, unless the script logs it."""
        rates = {"lr": models.number(optimizer.param_groups[0].get("lr"))}
        if self._scaler is not None:
            rates["loss_scale"] = self._scaler.get_scale()
        self._log.rates(step, {name: one for name, one in rates.items() if one is not None})

    def _keep_budget(self, step: int, cost_ns: int) -> None:
        """Record half as often if records take too much of the time; the first steps are close to one another."""
        if step < FIRST_STEPS or not self._since_ns:
            self._since_ns = perf_counter_ns()
            return
        self._records, self._cost_ns = self._records + 1, self._cost_ns + cost_ns
        if self._records < _MEASURED:
            return
        share = min(1.0, self._cost_ns / (perf_counter_ns() - self._since_ns))
        if share > self.options.budget:
            self._double(f"records took {share:.1%} of the time")
            self._records, self._cost_ns, self._since_ns = 0, 0, perf_counter_ns()

    def _double(self, why: str) -> None:
        self._every *= 2
        self._facts["every"] = self._every
        self.remark(f"steps: since step {self.step} one in {self._every} is recorded: {why}")

    def _write_overflows(self) -> None:
        waiting, self._overflows = self._overflows, []
        found = fetched([one.reshape(1) for _, _, one in waiting])
        for (step, time_us, _), (is_skipped,) in zip(waiting, found, strict=True):
            if is_skipped:
                event = {"kind": "event", "step": step, "time_us": time_us, "name": "overflow", "text": ""}
                self._log.write(event)
                self._extra = self.step + 1

    def fail(self, error: Exception) -> None:
        """Learn nothing more because of a fault of the recorder."""
        if not self.is_over:
            self.is_over = True
            warn(f"learn: nothing more is recorded: {type(error).__name__}: {error}")
            self._log.event(self.step, "error", f"{type(error).__name__}: {error}")
            for learner in self.learners:
                learner.remove(is_stepping=True)

    def end(self) -> None:
        """Write what waits, and take the hooks off: a training is over."""
        # The device may be what ended it.
        with suppress(Exception):
            self.look_at_scaler()
            self._write_overflows()
        for learner in self.learners:
            learner.remove()
        self.learners.clear()


def _is_fused(optimizer: Any) -> bool:
    return any(one.get("fused") for one in getattr(optimizer, "param_groups", ()))


def _rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
