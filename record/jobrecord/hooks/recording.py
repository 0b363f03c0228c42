"""One recording of this process: what a training script calls, and what libraries call back."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from numbers import Integral
from typing import TYPE_CHECKING, Any

from jobrecord.hooks import loading
from jobrecord.hooks.device import DeviceSteps
from jobrecord.hooks.imports import when_imported
from jobrecord.hooks.passes import Passes, is_compiled_inside
from jobrecord.hooks.profiles import Operators, PythonProfile
from jobrecord.hooks.steps import Steps
from jobrecord.traces import STEP_LANE, Trace, now, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from jobrecord.settings import Settings

#: Phases that are no part of a step.
OUTSIDE_STEPS = frozenset({"Checkpoint"})
_OPTIMIZERS = "torch.optim.optimizer"


def harmless(method: Callable[..., None]) -> Callable[..., None]:
    """Let no fault of a hook reach the training script: the recording ends instead."""

    def guarded(self: Recording, *args: Any) -> None:
        try:
            method(self, *args)
        except Exception as error:  # noqa: BLE001 - the training must go on, whatever it is
            self.fail(error)

    # What PyTorch's compiler asks functions for: it is not to trace them, as in a compiled step of an optimizer.
    guarded._torchdynamo_disable = True  # type: ignore[attr-defined]
    return guarded


class Recording:
    """Steps, phases, and data loading of this process, written into the folder of the settings.

    `begins` says whether the first step begins now; otherwise it begins with the first optimizer step.
    """

    def __init__(self, settings: Settings, *, device_time: bool = False, begins: bool = True) -> None:
        self.is_open = True
        self.trace = Trace(settings.out, settings.node)
        self.steps = Steps(self.trace, now() if begins else None, self._step_ended)
        self._blocks: list[_Block] = []
        self._counts: dict[str, int] = {}
        self._passes: list[Passes] = []
        self._optimizer_ns = 0
        #: Whether a trainer is within its loop.
        self._in_loop = False
        self._handles: list[Any] = []
        self._device = DeviceSteps(self.trace) if device_time else None
        self._profiles: list[Operators | PythonProfile] = []
        if settings.operators:
            self._profiles.append(Operators(self.trace, settings.operators))
        if settings.profile_steps:
            self._profiles.append(PythonProfile(self.trace, settings.profile_steps, settings.profiler))
        when_imported(_OPTIMIZERS, self._attach)
        self._begin_profiles(0)

    def data(self, loader: Any) -> Any:
        """The loader, with its fetches recorded. Raises TypeError if it is not iterable."""
        if not (hasattr(type(loader), "__iter__") or hasattr(type(loader), "__getitem__")):
            raise TypeError(f"data() needs something iterable, not {type(loader).__name__}")
        recorded = loading.Loader(self, loader)
        return iter(recorded) if hasattr(type(loader), "__next__") else recorded

    def watch(self, model: Any) -> None:
        """Record forward and backward passes of a module, and the optimizer. Raises TypeError if it is none."""
        if not callable(getattr(model, "register_forward_pre_hook", None)):
            raise TypeError(f"watch() needs a torch.nn.Module, not {type(model).__name__}")
        if is_compiled_inside(model):
            warn("watch: the module is compiled in place, and hooks would be a part of it; it is not watched")
            return
        passes = Passes(self.add, model)
        self._passes.append(passes)
        self._handles += passes.handles

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record a stretch of code. Checkpoints are no part of a step. Raises TypeError for a name that is no text."""
        if not isinstance(name, str):
            raise TypeError(f"phase() needs a name, not {type(name).__name__}")
        start = now()
        try:
            yield
        finally:
            end = now()
            self.add(name, name, start, end)
            if name in OUTSIDE_STEPS:
                self.outside_ended(end)

    @contextmanager
    def eval(self) -> Iterator[None]:
        """Record each batch of `data` as a step of evaluation, or all as one; none of it is part of a training step."""
        yield from self._block("EVAL")

    @contextmanager
    def predict(self) -> Iterator[None]:
        """Record each batch of `data` as a step of prediction, or all as one; none of it is part of a training step."""
        yield from self._block("PREDICT")

    def step(self) -> None:
        """End a training step. From the first call on, optimizers do not end steps."""
        self.end_step(now())

    def batch(self, *, samples: int | None = None, tokens: int | None = None) -> None:
        """Note the size of the batch of the step that has begun; several of one step add up.

        Raises TypeError for anything but whole numbers.
        """
        for name, count in (("samples", samples), ("tokens", tokens)):
            if count is None:
                continue
            # To read a tensor would wait for its device.
            if not isinstance(count, Integral):
                raise TypeError(f"batch() needs whole numbers, not {type(count).__name__}: {name}")
            self.steps.args[name] = self.steps.args.get(name, 0) + int(count)

    def resume(self, step: int) -> None:
        """Number the next step `step`, as after a checkpoint was loaded."""
        self.steps.resume(step)

    def stop(self) -> None:
        """Write what is left, and take the hooks off."""
        if not self.is_open:
            return
        self._close()
        self.trace.close()
        self.is_open = False

    def fail(self, error: Exception) -> None:
        """End because of a fault of the recorder."""
        if self.is_open:
            self.is_open = False
            warn(f"recording ends: {type(error).__name__}: {error}")
            with suppress(Exception):
                self.trace.close()
            self.trace.abandon()

    def abandon(self) -> None:
        """Be inert: this is the child of a fork."""
        self.is_open = False
        self.trace.abandon()

    @harmless
    def add(self, lane: str, name: str, start_ns: int, end_ns: int) -> None:
        """Add an event of the current step."""
        self.trace.add(lane, name, start_ns, end_ns, self.steps.number)

    @harmless
    def end_step(self, at_ns: int) -> None:
        """End a training step by something other than an optimizer."""
        if self.is_open:
            self.steps.end(at_ns)

    @harmless
    def trainer_begins(self, step: int, at_ns: int) -> None:
        """Begin step `step` of a trainer that ends the steps itself."""
        self.cut_step(at_ns)
        self._in_loop = True
        self.steps.take_over()
        self.steps.resume(step)
        self.steps.begin_after(at_ns)

    @harmless
    def trainer_ended(self) -> None:
        """End the loop of a trainer."""
        self._in_loop = False

    @harmless
    def cut_step(self, at_ns: int) -> None:
        """End the step of a trainer that an exception ended."""
        if self._in_loop:
            self._in_loop = False
            self.steps.args["cut"] = True
            self.steps.end(at_ns)

    @harmless
    def end_mode_step(self, mode: str, start_ns: int, end_ns: int) -> None:
        """Add a step of evaluation or prediction."""
        number = self._counts.get(mode, 0)
        self._counts[mode] = number + 1
        lane = STEP_LANE + mode
        self.trace.add(lane, lane, start_ns, end_ns, number)

    @harmless
    def outside_ended(self, at_ns: int) -> None:
        """End something that is no part of a step."""
        self.steps.begin_after(at_ns)

    @harmless
    def fetch_begins(self, fetches: object, at_ns: int) -> None:
        """Begin a fetch, which is where a step of evaluation begins, and the very first step."""
        if not self._blocks:
            self.steps.first_fetch(at_ns)
        elif (block := self._blocks[-1]).fetches in (None, fetches):
            self._end_block_step(block, at_ns)
            block.fetches, block.begin_ns = fetches, at_ns

    @harmless
    def fetched(self, name: str, start_ns: int, end_ns: int) -> None:
        """Add a fetch."""
        self.trace.add(loading.FETCH_LANE, name, start_ns, end_ns)

    @harmless
    def fetches_ended(self, fetches: object, notes: str, exhausted: bool) -> None:
        """End the fetches of one iterator: it is exhausted, or dropped. `notes` names those of its processes."""
        if not self.is_open:
            return
        if self._blocks and (block := self._blocks[-1]).fetches is fetches:
            if not exhausted:
                self._end_block_step(block, now())
            block.fetches, block.begin_ns = None, 0
        if notes:
            loading.write_workers(self.trace, notes, now())

    @harmless
    def _attach(self, optimizers: ModuleType) -> None:
        """Let optimizers say when they step, if this PyTorch has hooks for that."""
        if self.is_open and hasattr(optimizers, "register_optimizer_step_post_hook"):
            self._handles += [
                optimizers.register_optimizer_step_pre_hook(self._optimizer_begins),
                optimizers.register_optimizer_step_post_hook(self._optimizer_stepped),
            ]

    @harmless
    def _optimizer_begins(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not self.is_open:
            return
        at_ns = now()
        self.steps.optimizer_begins(at_ns)
        if self._passes:
            self._optimizer_ns = at_ns
            for passes in self._passes:
                passes.end_backward(at_ns)

    @harmless
    def _optimizer_stepped(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not self.is_open:
            return
        at_ns = now()
        if self._optimizer_ns:
            name = type(optimizer).__name__
            self.trace.add("Optimizer", name, self._optimizer_ns, at_ns, self.steps.number)
            self._optimizer_ns = 0
        self.steps.optimizer_stepped(optimizer, at_ns)

    def _step_ended(self, number: int, at_ns: int) -> None:
        """What follows the end of a step; `number` is the next one."""
        if self._device is not None:
            self._device.mark(number - 1, at_ns)
        if self._profiles:
            self._begin_profiles(number)

    def _begin_profiles(self, step: int) -> None:
        marks = [mark for profile in self._profiles if (mark := profile.begin(step))]
        if marks:
            self.steps.args["profiled"] = "+".join(marks)
        if self._profiles:
            # What profilers take to start and to stop is no part of a step.
            self.steps.begin_after(now())

    def _block(self, mode: str) -> Iterator[None]:
        block, start, before = _Block(mode), now(), self._counts.get(mode)
        self._blocks.append(block)
        try:
            yield
        finally:
            self._blocks.remove(block)
            end = now()
            self._end_block_step(block, end)
            if self._counts.get(mode) == before:
                self.end_mode_step(mode, start, end)
            self.outside_ended(end)

    def _end_block_step(self, block: _Block, at_ns: int) -> None:
        if block.begin_ns:
            self.end_mode_step(block.mode, block.begin_ns, at_ns)
            block.begin_ns = 0

    @harmless
    def _close(self) -> None:
        self.cut_step(now())
        for handle in self._handles:
            handle.remove()
        for profile in self._profiles:
            profile.close()
        self.steps.write_first()
        loading.write_workers(self.trace, loading.notes_prefix(self.trace.node), now())


class _Block:
    """A stretch of evaluation or prediction, and its step."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.begin_ns = 0
        #: The iterator whose fetches begin its steps.
        self.fetches: object = None
