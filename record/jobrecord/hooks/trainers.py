"""What callbacks of frameworks have in common: the trainer owns the loop, and says where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobrecord.hooks import current, loading
from jobrecord.hooks.training_log import is_number
from jobrecord.traces import now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jobrecord.hooks.recording import Recording

#: Fetch of a batch and copy to the device, which the frameworks do together.
INPUT = "Trainer::input"


class TrainerMarks:
    """Marks of a trainer's loop. Each lies between two moments that the `framework` calls back at."""

    def __init__(self, framework: str, is_needed: Callable[[], bool] = lambda: True) -> None:
        self._framework, self._is_needed = framework, is_needed
        #: The last moment from which on the trainer does something else.
        self._latest_ns = now()
        #: The loader, until the first of its fetches that only this knows of.
        self._loader: Any = None

    def training_begins(self, loader: Any, step: int | None, model: Any = None, precision: str = "") -> None:
        """Begin the first step, numbered `step` if that is known; from here on the trainer ends steps, and no optimizer."""
        self._begin()
        self._loader = loader
        if recording := self._recording():
            recording.trainer_begins(step, self._latest_ns)
            if model is not None:
                recording.process.look_at(model, precision)

    def learn(self, model: Any, optimizer: Any, options: Mapping[str, Any], **known: Any) -> None:
        """Learn from a model until `learning_ended`. Of the head, `known` is what the trainer knows."""
        if recording := self._recording():
            recording.learn(model, optimizer, known=known, **options)

    def learning_ended(self) -> None:
        """End what `learn` began."""
        if recording := self._recording():
            recording.end_learning()

    def logged(self, step: int, mode: str, values: Mapping[str, Any]) -> None:
        """Write the numbers among what a trainer logs."""
        numbers = {name: one for name, one in values.items() if is_number(one)}
        if numbers and (recording := self._recording()):
            recording.log(step=step, mode=mode, **numbers)

    def boosted(self, gains: Mapping[str, float], depths: list[int], max_depth: int | None) -> None:
        """Write what boosted trees came to."""
        if recording := self._recording():
            recording.log_trees({"importance": dict(gains), "depths": depths, "max_depth": max_depth})

    def evaluation_begins(self) -> None:
        """Begin an evaluation, whose first step begins with a fetch."""
        self._begin()

    def _begin(self) -> None:
        if current.current() is None and self._is_needed():
            current.start()
        self.mark()
        if recording := self._recording():
            recording.trace.framework = self._framework

    def _recording(self) -> Recording | None:
        return current.current() if self._is_needed() else None

    def mark(self) -> None:
        """Note that the trainer does something else from now on."""
        self._latest_ns = now()

    def fetched(self) -> None:
        """End a fetch, which began at the last mark, unless the loader recorded it itself."""
        recording = self._recording()
        if recording is None or recording.last_fetch_ns > self._latest_ns:
            return
        if self._loader is not None:
            args, self._loader = loading.settings(self._loader), None
            recording.trace.add(
                loading.SETUP_LANE, "Trainer.__init__", self._latest_ns, self._latest_ns, args=args
            )
        recording.trace.add(loading.FETCH_LANE, INPUT, self._latest_ns, now())

    def step_ended(self) -> None:
        """End a training step."""
        self.mark()
        if recording := self._recording():
            recording.end_step(self._latest_ns)

    def evaluated(self, mode: str = "EVAL") -> None:
        """End a step of evaluation, which began at the last mark, or with the first fetch of its loop."""
        began_ns, self._latest_ns = self._latest_ns, now()
        if recording := self._recording():
            recording.trace.framework = self._framework
            recording.end_mode_step(mode, max(began_ns, recording.loop_begin_ns), self._latest_ns)

    def outside_ended(self) -> None:
        """End something that is no part of a step."""
        self.mark()
        if recording := self._recording():
            recording.outside_ended(self._latest_ns)

    def saved(self) -> None:
        """Note the moment of a checkpoint, unless its saving was recorded."""
        if (recording := self._recording()) and not recording.is_saved_since(self._latest_ns):
            at_ns = now()
            recording.add("Checkpoint", "Checkpoint", at_ns, at_ns)

    def training_ended(self) -> None:
        """End training after whole steps."""
        if recording := self._recording():
            recording.trainer_ended()

    def cut(self) -> None:
        """End the step that an exception ended."""
        self.mark()
        if recording := self._recording():
            recording.cut_step(self._latest_ns)


def learning_options(learning: bool | Mapping[str, Any]) -> dict[str, Any]:
    """The options of a callback's `learning`, which may be true."""
    return {} if isinstance(learning, bool) else dict(learning)
