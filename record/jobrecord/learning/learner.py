"""Statistics around the steps of one optimizer: gradients and weights before it, updates after it."""

from __future__ import annotations

from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch

from jobrecord.learning import model as models
from jobrecord.learning import statistics
from jobrecord.learning.activations import Activations, Hook, inputs_of
from jobrecord.learning.rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobrecord.learning.learning import Learning

#: Tensors of a record: the largest parameters.
MAX_TENSORS = 20_000
#: Of the records of another rank that has the same weights, those with their norms.
_NORMS_EVERY = 10
#: Characters of what a fault says.
_MAX_WHY = 100


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let no fault reach the training: nothing more is learned then. What it takes is counted."""

    def run(self: Learner, *args: Any, **kwargs: Any) -> Any:
        self.since_ns = perf_counter_ns()
        try:
            with torch.no_grad():
                return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the training must go on, whatever it is
            self.learning.fail(error)
            return None
        finally:
            self.cost_ns += perf_counter_ns() - self.since_ns

    # The compiler is not to trace it, as in a compiled step of an optimizer.
    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    return run


class Learner:
    """What is recorded of one model and the optimizer that trains it, whose hooks hold it: it goes with the optimizer."""

    def __init__(
        self, learning: Learning, model: Any, optimizer: Any, prefix: str, *, holds: bool, norms: bool
    ) -> None:
        self.learning, self.model, self._optimizer = learning, model, ref(optimizer)
        self._prefix = prefix
        #: Whether parameters without an optimizer are its own, and whether only norms of weights are recorded.
        self._holds, self._norms = holds, norms
        #: What was taken since the last record, before the call that began at `since_ns`.
        self.cost_ns = self.since_ns = 0
        self._records = 0
        #: Whether its optimizer's rates are those of the training.
        self.leads = False
        self._last = -1
        #: Parameters that are in a group of any optimizer.
        self._optimized = members(optimizer)
        #: The record that has begun: rows, samples of weights, and calls of a closure.
        self._rows: list[Row] = []
        self._before: list[tuple[tuple[str, Any, str], Any]] = []
        self._is_begun = False
        self._closure_calls: int | None = None
        #: Gradients as they came, where they are gone before the optimizer steps.
        self._accumulated: dict[str, Row | None] = {}
        self._inputs: list[Row] = []
        self._activations: Activations | None = None
        self._handles = [
            optimizer.register_step_pre_hook(self._begins),
            optimizer.register_step_post_hook(self._stepped),
        ]

    @property
    def optimizer(self) -> Any:
        """What trains the model."""
        return self._optimizer()

    def watch(self, *, activations: bool) -> None:
        """Add the hooks of modules."""
        options, remark = self.learning.options, self.learning.remark
        if activations:
            found = self._activations = Activations(
                self.model, self._prefix, self._hook, histograms=options.histograms
            )
            if found.left_out:
                remark(f"activations: {found.left_out} of {found.left_out + found.count} modules")
            if not found.count:
                remark("activations: the model has no module of an activation")
        if self._holds:
            call = Hook(_weak(self._enters), lambda: True)
            self._handles.append(self.model.register_forward_pre_hook(call, with_kwargs=True))
        if options.gradients == "accumulate":
            self._handles += [
                one.register_post_accumulate_grad_hook(_weak(self._accumulates, name, module))
                for name, one, module in self.learning.parameters(self.model)
                if id(one) in self._optimized
            ]

    def _hook(self, call: Callable[..., None], name: str) -> Hook:
        return Hook(_weak(self._run, call, name), _weak(self.is_due))

    @guarded
    def _run(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - gradients and weights are still recorded
            why = next(iter(str(error).splitlines()), "")[:_MAX_WHY]
            self.learning.remark(f"activations: {type(error).__name__}: {why}")
            if self._activations is not None:
                self._activations.remove()
                self._activations = None

    def remove(self, *, is_stepping: bool = False) -> None:
        """Take the hooks off; those of an optimizer that runs them stay, as it does not expect that."""
        for handle in self._handles[2:] if is_stepping else self._handles:
            handle.remove()
        if self._activations is not None:
            self._activations.remove()
        self._rows, self._before, self._accumulated, self._inputs = [], [], {}, []

    def spent_ns(self) -> int:
        """What was taken since the last call."""
        spent, now_ns = self.cost_ns - self.since_ns, perf_counter_ns()
        self.cost_ns, self.since_ns = 0, now_ns
        return spent + now_ns

    def is_due(self) -> bool:
        """Whether the step that has begun is recorded, and was not yet."""
        step = self.learning.step
        learning = self.learning
        return step != self._last and learning.is_due(step) and not (learning.blocks or _is_captured())

    @guarded
    def _enters(self, model: Any, args: Any, kwargs: Any) -> None:
        options = self.learning.options
        self.learning.look_at_precision(model)
        if options.inputs and not (self._norms or self._inputs) and self.is_due():
            pad_id = options.pad_id
            if pad_id is None:
                pad_id = getattr(getattr(model, "config", None), "pad_token_id", None)
            self._inputs = list(inputs_of(args, kwargs, pad_id, histograms=options.histograms))

    @guarded
    def _accumulates(self, name: str, module: str, parameter: Any) -> None:
        if self.is_due():
            self._accumulated[name] = self._gradient(name, parameter, module, later=False)

    @guarded
    def _begins(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        # A step that failed is none.
        self._is_begun = False
        if self.learning.is_over:
            return None
        has_overflow = self.learning.look_at_scaler(optimizer)
        if not self.is_due():
            return None
        options = self.learning.options
        self._is_begun, self._records = True, self._records + 1
        self._rows, self._before, self._closure_calls = [], [], None
        own, closure = self._own(), None
        if not self._norms or self._records % _NORMS_EVERY == 1:
            weights = ((one, statistics.local(one[1])) for one in own)
            self._rows = [self._row(*one, "parameter", held).summarize(later=True) for one, held in weights]
        if not self._norms:
            for row in self._rows:
                row.sample(histogram=options.histograms)
            if options.updates:
                self._before = [(one, statistics.sample(_elements(one[1])).clone()) for one in own]
            closure = next(filter(callable, [kwargs.get("closure"), *args[1:2]]), None)
            if options.gradients and closure is None and not has_overflow():
                self._rows += self._gradients(own)
        Row.fetch(self._rows)
        if closure is None:
            return None
        # What a closure computes is known after it: an optimizer that calls it once steps by those gradients.
        self._closure_calls = 0
        counted = partial(self._call, closure)
        if "closure" in kwargs:
            return args, kwargs | {"closure": counted}
        return (args[0], counted, *args[2:]), kwargs

    def _call(self, closure: Callable[[], Any]) -> Any:
        self._closure_calls = (self._closure_calls or 0) + 1
        return closure()

    @guarded
    def _stepped(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not self._is_begun or self.learning.is_over:
            return
        self._is_begun, self._last = False, self.learning.step
        options, before, rows = self.learning.options, self._before, self._inputs
        self._before, self._inputs = [], []
        if self._closure_calls == 1 and options.gradients:
            rows += self._gradients(self._own())
        elif self._closure_calls is not None and options.gradients:
            self.learning.remark("gradients: closure")
        for (name, one, module), taken in before:
            moved = statistics.sample(_elements(one)) - taken
            row = self._row(name, one, module, "update", statistics.local(one))
            norms = (torch.linalg.vector_norm(values) for values in (moved, taken))
            row.sample(moved, histogram=options.histograms).add("ratio", *norms)
            rows.append(row)
        if self._activations is not None:
            rows += self._activations.taken(self._last)
            if self._activations.count and not self._activations.has_seen and self._last:
                self.learning.remark("activations: no module was called, as in a model that is compiled")
        Row.fetch(rows)
        rows, self._rows = self._rows + rows, []
        self.learning.write(self, rows, self._frozen())

    def _own(self) -> list[tuple[str, Any, str]]:
        """Parameters that train: those of the optimizer, and with `holds` those of none. Groups may change."""
        mine = members(self.optimizer)
        self._optimized = {one for learner in self.learning.learners for one in members(learner.optimizer)}
        others = self._optimized - mine
        found = [
            one
            for one in self.learning.parameters(self.model)
            if one[1].requires_grad
            and (id(one[1]) in mine or (self._holds and id(one[1]) not in others))
            and not models.is_copy(one[1])
        ]
        if len(found) > MAX_TENSORS:
            self.learning.remark(f"tensors: {len(found) - MAX_TENSORS} of {len(found)} parameters")
            found = sorted(found, key=lambda one: one[1].numel(), reverse=True)[:MAX_TENSORS]
        return found

    def _frozen(self) -> list[Row]:
        """Parameters that do not train, which are named and not measured."""
        every = self.learning.parameters(self.model) if self._holds else []
        frozen = [one for one in every if not one[1].requires_grad]
        return [self._row(*one, "parameter", torch.empty(0, dtype=one[1].dtype)) for one in frozen]

    def _gradients(self, own: list[tuple[str, Any, str]]) -> list[Row]:
        if self._accumulated:
            found, self._accumulated = self._accumulated, {}
            return [row for row in found.values() if row is not None]
        return [row for one in own if (row := self._gradient(*one, later=True)) is not None]

    def _gradient(self, name: str, parameter: Any, module: str, *, later: bool) -> Row | None:
        gradient = parameter.grad
        if gradient is None:
            return None
        if not statistics.is_dense(gradient):
            self.learning.remark("gradients: some are sparse")
            return None
        row = self._row(name, parameter, module, "gradient", statistics.local(gradient))
        # A fused optimizer unscales by itself.
        scale = getattr(self.optimizer, "grad_scale", None)
        row.summarize(scale if isinstance(scale, torch.Tensor) else None, later=later)
        return row.sample(histogram=self.learning.options.histograms)

    def _row(self, name: str, parameter: Any, module: str, collection: str, held: Any) -> Row:
        return Row(
            self._prefix + name,
            collection,
            held,
            # Where it is that of a part, the whole is not known.
            shape=[] if self.learning.hides_shapes else list(parameter.shape),
            trainable=parameter.requires_grad,
            optimized=id(parameter) in self._optimized,
            m=module,
        )


def members(optimizer: Any) -> set[int]:
    """The parameters in the groups of an optimizer, which a script may change; none of one that is gone."""
    return {id(one) for group in getattr(optimizer, "param_groups", ()) for one in group["params"]}


def _weak(method: Any, *first: Any) -> Callable[..., Any]:
    """A method that does not hold its object, so that what a model's hooks call does not keep the model."""
    held, function = ref(method.__self__), method.__func__

    def call(*args: Any) -> Any:
        found = held()
        return None if found is None else function(found, *first, *args)

    return call


def _is_captured() -> bool:
    """Whether what runs becomes a CUDA graph, which nothing may wait for."""
    return torch.cuda.is_available() and bool(torch.cuda.is_current_stream_capturing())


def _elements(parameter: Any) -> Any:
    return statistics.flat(statistics.local(parameter))
