"""One recording of this process: what a training script calls, and what libraries call back."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from jobrecord.hooks import endings, loading, parts, stacks, startup
from jobrecord.hooks.device import DeviceSteps
from jobrecord.hooks.flops import FlopCount
from jobrecord.hooks.imports import when_imported
from jobrecord.hooks.inferred import Inferred
from jobrecord.hooks.passes import Passes, is_compiled_inside
from jobrecord.hooks.process_facts import ProcessFacts
from jobrecord.hooks.profiles import Operators, PythonProfile
from jobrecord.hooks.stacks import MAIN, Stacks
from jobrecord.hooks.steps import Steps
from jobrecord.hooks.training_log import TrainingLog
from jobrecord.traces import STEP_LANE, Trace, now, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from jobrecord.hooks.inferred import Loop
    from jobrecord.learning.classes import Classes
    from jobrecord.learning.learning import Learning
    from jobrecord.settings import Settings

#: Phases that are no part of a step.
OUTSIDE_STEPS = frozenset({"Checkpoint"})
#: Name of a checkpoint that an exception ended.
FAILED = "failed"
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

    With `is_automatic`, it begins with what the libraries call back, or when the script calls `begin`.
    """

    def __init__(self, settings: Settings, *, device_time: bool = False, is_automatic: bool = False) -> None:
        self.is_open, self.is_automatic = True, is_automatic
        self.trace = Trace(settings.out, settings.node)
        self.trace.parts = parts.states
        self.process = self.trace.more_facts = ProcessFacts()
        self._log = TrainingLog(settings.out, settings.node)
        self._learning: Learning | None = None
        #: Counts of classes that are not written yet, with their step and mode.
        self._classes: tuple[int, str, Classes] | None = None
        #: Where the numbers of the steps began, if that was told.
        self._resumed_from: int | None = None
        #: What libraries tell is used only where they tell all of it.
        self.inferred = Inferred(self._inferred_evaluation) if parts.states else None
        self.steps = Steps(self.trace, None, self._step_ended, self._step_ends)
        #: How this process and those of its loaders are sampled.
        self.plan = stacks.plan(settings)
        self.stacks = self.plan and Stacks(self.plan, MAIN, self.trace.written_as, self.thread)
        if self.stacks is not None:
            self.trace.thread_ns = self.stacks.cpu_ns
        #: Whether the script set a model to evaluate, and not to train since.
        self.evaluates = False
        #: End of the last fetch, and begin of the first one of the newest loop.
        self.last_fetch_ns = self.loop_begin_ns = 0
        self._is_fetching = False
        #: Begin and end of a checkpoint that may have further files, and how many of them are being saved.
        self._saved, self._saving = (0, 0), 0
        self._has_saved = True
        self._blocks: list[_Block] = []
        self._counts: dict[str, int] = {}
        self._passes: list[Passes] = []
        #: Whether the modules that are watched are none that the script chose.
        self._watches_by_itself = False
        self._optimizer_ns = 0
        #: Whether a trainer is within its loop.
        self._in_loop = False
        self._handles: list[Any] = []
        self._device: DeviceSteps | None = None
        #: Profilers begin with the first step, not while their libraries are imported.
        self._has_begun = False
        self._profiles = _profiles(self.trace, settings)
        self._has_flop_count = False
        when_imported(_OPTIMIZERS, self._attach)
        if not is_automatic:
            self.begin(settings, device_time=device_time)

    def begin(self, settings: Settings, *, device_time: bool) -> None:
        """Begin the first step now, with what the script chose."""
        self.is_automatic = False
        self._device = DeviceSteps(self.trace) if device_time else None
        if not self._has_begun:
            self._profiles = _profiles(self.trace, settings)
        self.steps.begin(now())
        self._begin_first()

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
        if self._watches_by_itself:
            self._watches_by_itself = False
            for passes in self._passes:
                passes.stop()
            self._passes.clear()
        self._passes.append(Passes(self.add, model, self.process.look_at))

    @harmless
    def watch_by_itself(self, model: Any) -> None:
        """Record the passes of a module that the script trains, unless it watches one."""
        if self.is_open and (self._watches_by_itself or not self._passes):
            self._watches_by_itself = True
            self._passes.append(Passes(self.add, model, self.process.look_at))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record a stretch of code. Checkpoints are no part of a step. Raises TypeError for a name that is no text."""
        if not isinstance(name, str):
            raise TypeError(f"phase() needs a name, not {type(name).__name__}")
        start, is_outside, shown = now(), name in OUTSIDE_STEPS, name
        # What saves within it is a part of it.
        self._saving += is_outside
        try:
            yield
        except BaseException:
            shown = FAILED if is_outside else name
            raise
        finally:
            end = now()
            self.add(name, shown, start, end)
            if is_outside:
                self._saving -= 1
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

    def log(self, *, step: int | None = None, mode: str | None = None, **values: Any) -> None:
        """Write numbers such as the loss, of the step that has begun or of `step`.

        Numbers on a device are written with the next record of `learn`. Raises TypeError for what is no number.
        """
        self._log.scalars(self.steps.number if step is None else int(step), self._mode(mode, "TRAIN"), values)

    def learn(
        self,
        model: Any,
        optimizer: Any,
        *,
        name: str = "",
        known: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Record statistics of the gradients, weights, updates, and activations of a model, around the optimizer's steps.

        `optimizer` may be several ones. The options are those of the first call; a name tells the tensors of a further
        model apart. Trainers give facts as `known`. Raises TypeError for what is no model, optimizer, or option.
        """
        from jobrecord.learning.learning import Learning, Options  # noqa: PLC0415 - needs PyTorch

        if self._learning is None:
            chosen, since = Options(**options), self._resumed_from
            self._learning = Learning(self._log, self.steps, self._blocks, chosen, since)
        elif not self._learning.learners:
            self._learning.begin(Options(**options))
        self._learning.learn(model, optimizer, name, dict(known or {}))

    def end_learning(self) -> None:
        """End what `learn` began."""
        if self._learning is not None:
            self._learning.end()

    def classes(self, labels: Any, predictions: Any, *, mode: str | None = None) -> None:
        """Count classes of labels and predictions, which may be scores. Raises TypeError for anything else."""
        from jobrecord.learning.classes import Classes  # noqa: PLC0415 - needs PyTorch

        now_in = self.steps.number, self._mode(mode, "EVAL")
        if self._classes is None or self._classes[:2] != now_in:
            self._write_classes()
            known = self._learning and self._learning.options.classes
            self._classes = *now_in, Classes(known or 0)
        self._classes[2].add(labels, predictions)

    def log_trees(self, trees: Mapping[str, Any]) -> None:
        """Write what boosted trees came to."""
        self._log.write({"kind": "trees", "step": self.steps.number, **trees})

    @harmless
    def _write_classes(self) -> None:
        if self._classes is not None:
            (step, mode, counts), self._classes = self._classes, None
            self._log.counts(step, mode, counts)

    def _mode(self, given: str | None, otherwise: str) -> str:
        """What is trained or evaluated now."""
        return str(given or (self._blocks[-1].mode if self._blocks else otherwise))

    def flops(self, per_step: float | str, *, precision: str = "") -> None:
        """Note the operations of a step of this process, or ``"count"`` those of one. Raises TypeError for anything else."""
        if per_step == "count":
            # A script may ask at each step.
            if not self._has_flop_count:
                self._has_flop_count = True
                self._profiles.append(FlopCount(lambda count: self.process.set_flops(count, "counted")))
        elif isinstance(per_step, Real):
            self.process.set_flops(float(per_step), "given", precision)
            self.trace.write_facts_soon()
        else:
            raise TypeError(f"flops() needs a number or 'count', not {type(per_step).__name__}")

    def config(self, values: Mapping[str, Any]) -> None:
        """Note settings of the script. Raises TypeError for anything but a mapping."""
        if not isinstance(values, Mapping):
            raise TypeError(f"config() needs a mapping, not {type(values).__name__}")
        self.process.add_config(values)
        self.trace.write_facts_soon()

    def resume(self, step: int) -> None:
        """Number the next step `step`, as after a checkpoint was loaded."""
        self.steps.resume(step)
        if not step:
            return
        self._resumed_from = step
        if self._learning is not None:
            self._log.event(step, "resume")
            self._learning.resumed(step)

    def stop(self) -> None:
        """Write what is left, and take the hooks off."""
        if not self.is_open:
            return
        self._close()
        self._write_classes()
        self.end_learning()
        self._log.close(self.steps.number)
        self.trace.close()
        endings.note_end_of(self.trace, self.steps.number)
        self.is_open = False
        self.stop_stacks()

    def stop_stacks(self) -> None:
        """End the samples of this process."""
        if self.stacks is not None:
            self.stacks.stop()
            self.stacks = None

    def fail(self, error: Exception) -> None:
        """End because of a fault of the recorder."""
        if self.is_open:
            self.is_open = False
            warn(f"recording ends: {type(error).__name__}: {error}")
            with suppress(Exception):
                self.trace.close()
            self.trace.abandon()
            self.stop_stacks()

    def abandon(self) -> None:
        """Be inert: this is the child of a fork."""
        self.is_open = False
        self.trace.abandon()
        self._log.abandon()
        if self._learning is not None:
            self._learning.is_over = True
        if self.stacks is not None:
            self.stacks.abandon()

    @harmless
    def add(self, lane: str, name: str, start_ns: int, end_ns: int) -> None:
        """Add an event of the current step."""
        if lane == "Checkpoint":
            self._log.event(self.steps.number, "checkpoint")
        self.trace.add(lane, name, start_ns, end_ns, self.steps.number)

    @harmless
    def end_step(self, at_ns: int) -> None:
        """End a training step by something other than an optimizer."""
        if self.is_open:
            self.steps.end(at_ns)

    @harmless
    def trainer_begins(self, step: int | None, at_ns: int) -> None:
        """Begin the first step of a trainer that ends the steps itself, `step` if it has numbers."""
        self.cut_step(at_ns)
        self._in_loop = True
        self._begin_first()
        self.steps.take_over()
        if step is not None:
            self.resume(step)
        self.steps.begin(at_ns)
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
    def end_mode_step(
        self, mode: str, start_ns: int, end_ns: int, args: Mapping[str, Any] | None = None
    ) -> None:
        """Add a step of evaluation or prediction."""
        number = self._counts.get(mode, 0)
        self._counts[mode] = number + 1
        lane = STEP_LANE + mode
        self.trace.add(lane, lane, start_ns, end_ns, number, args)

    def _inferred_evaluation(self, start_ns: int, end_ns: int) -> None:
        # Trainers say themselves where they evaluate.
        if not self.trace.framework:
            self.end_mode_step("EVAL", start_ns, end_ns, {"inferred": True})

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Record the saving of one of the files of a checkpoint, which is no part of a step."""
        start_ns, self._saving = now(), self._saving + 1
        try:
            yield
        except BaseException:
            self._has_saved = False
            raise
        finally:
            self._saving -= 1
            if not self._saving and self.is_open:
                self._file_saved(start_ns, now())

    def is_saved_since(self, at_ns: int) -> bool:
        """Whether a checkpoint is being saved, or was since then."""
        return self._saving > 0 or self._saved[1] > at_ns

    @harmless
    def _file_saved(self, start_ns: int, end_ns: int) -> None:
        begin_ns, _ = self._saved
        self._saved = begin_ns or start_ns, end_ns
        self.outside_ended(end_ns)

    def _end_checkpoint(self) -> None:
        """Add the checkpoint whose files were saved before what comes now."""
        (begin_ns, end_ns), self._saved = self._saved, (0, 0)
        if begin_ns:
            self.add("Checkpoint", "Checkpoint" if self._has_saved else FAILED, begin_ns, end_ns)
        self._has_saved = True

    @harmless
    def outside_ended(self, at_ns: int) -> None:
        """End something that is no part of a step."""
        self.steps.begin_after(at_ns)

    def is_elsewhere(self) -> bool:
        """Whether a fetch now is none that training waits for: of another thread, or within another fetch."""
        if self.inferred is None:
            return False
        return not self.is_open or self._is_fetching or threading.get_ident() != self.thread()

    def thread(self) -> int:
        """The thread that trains, as far as it is known."""
        return self.steps.thread or threading.main_thread().ident or 0

    @harmless
    def fetch_begins(self, loop: Loop, at_ns: int) -> None:
        """Begin a fetch, which is where a step of evaluation begins, and the very first step."""
        self._is_fetching = True
        self._end_checkpoint()
        if self._blocks:
            if (block := self._blocks[-1]).loop in (None, loop):
                self._end_block_step(block, at_ns)
                block.loop, block.begin_ns = loop, at_ns
        elif self.inferred is None:
            self.steps.first_fetch(at_ns)
        else:
            if not loop.has_fetched:
                self.loop_begin_ns = at_ns
                if not self._in_loop:
                    self.steps.begin(at_ns)
            self._begin_first()
            self.inferred.fetch_begins(loop, at_ns, evaluates=self.evaluates)

    def fetch_ended(self) -> None:
        """End a fetch, whatever it gave."""
        self._is_fetching = False

    @harmless
    def fetched(self, loop: Loop, name: str, start_ns: int, end_ns: int, batch: object) -> None:
        """Add a fetch."""
        self.last_fetch_ns = end_ns
        self.trace.add(loading.FETCH_LANE, name, start_ns, end_ns)
        if self.inferred is not None and not self._blocks:
            self.inferred.fetched(loop, batch)

    @harmless
    def fetches_ended(self, loop: Loop, notes: str, exhausted: bool) -> None:
        """End the fetches of one iterator: it is exhausted, or dropped. `notes` names those of its processes."""
        if not self.is_open:
            return
        at_ns = now()
        if self._blocks and (block := self._blocks[-1]).loop is loop:
            if not exhausted:
                self._end_block_step(block, at_ns)
            block.loop, block.begin_ns = None, 0
        if self.inferred is not None and self.inferred.ended(loop, at_ns, exhausted=exhausted):
            self.outside_ended(at_ns)
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
        self._begin_first()
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

    def _step_ends(self, args: dict[str, Any]) -> None:
        """What belongs to a step that ends."""
        self._end_checkpoint()
        if self.inferred is not None:
            self.inferred.step_ends(args)

    def _step_ended(self, number: int, at_ns: int) -> None:
        """What follows the end of a step; `number` is the next one."""
        startup.write(self.trace)
        if self._device is not None:
            self._device.mark(number - 1, at_ns)
        if self._profiles:
            self._begin_profiles(number)

    def _begin_first(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            if self._profiles:
                self._begin_profiles(self.steps.number)

    def _begin_profiles(self, step: int) -> None:
        marks = [mark for profile in self._profiles if (mark := profile.begin(step))]
        if marks:
            self.steps.args["profiled"] = "+".join(marks)
        self._profiles = [one for one in self._profiles if not (isinstance(one, FlopCount) and one.is_done)]
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
            if not self._blocks:
                self._write_classes()
            self.outside_ended(end)

    def _end_block_step(self, block: _Block, at_ns: int) -> None:
        if block.begin_ns:
            self.end_mode_step(block.mode, block.begin_ns, at_ns)
            block.begin_ns = 0

    @harmless
    def _close(self) -> None:
        self.cut_step(now())
        self._end_checkpoint()
        for handle in self._handles:
            handle.remove()
        for passes in self._passes:
            passes.stop()
        for profile in self._profiles:
            profile.close()
        self.steps.write_first()
        loading.write_workers(self.trace, loading.notes_prefix(self.trace.node), now())


def _profiles(trace: Trace, settings: Settings) -> list[Operators | PythonProfile | FlopCount]:
    found: list[Operators | PythonProfile | FlopCount] = []
    if settings.operators:
        found.append(Operators(trace, settings.operators))
    if settings.profile_steps:
        found.append(PythonProfile(trace, settings.profile_steps, settings.profiler))
    return found


class _Block:
    """A stretch of evaluation or prediction, and its step."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.begin_ns = 0
        #: The one whose fetches begin its steps.
        self.loop: Loop | None = None
