"""What callbacks of frameworks have in common: the trainer owns the loop, and says where it is."""

from __future__ import annotations

from typing import Any

from jobrecord.hooks import current, loading
from jobrecord.traces import now

#: Fetch of a batch and copy to the device, which the frameworks do together.
INPUT = "Trainer::input"


class TrainerMarks:
    """Marks of a trainer's loop. Each lies between two moments that the framework calls back at."""

    def __init__(self) -> None:
        #: The last moment from which on the trainer does something else.
        self._latest_ns = now()

    def training_begins(self, loader: Any, step: int) -> None:
        """Begin the first step, numbered `step`; from here on the trainer ends steps, and no optimizer."""
        if current.current() is None:
            current.start()
        self.mark()
        if recording := current.current():
            recording.trainer_begins(step, self._latest_ns)
            args = loading.settings(loader)
            recording.trace.add(
                loading.SETUP_LANE, "Trainer.__init__", self._latest_ns, self._latest_ns, args=args
            )

    def mark(self) -> None:
        """Note that the trainer does something else from now on."""
        self._latest_ns = now()

    def fetched(self) -> None:
        """End a fetch, which began at the last mark."""
        if recording := current.current():
            recording.fetched(INPUT, self._latest_ns, now())

    def step_ended(self) -> None:
        """End a training step."""
        self.mark()
        if recording := current.current():
            recording.end_step(self._latest_ns)

    def evaluated(self) -> None:
        """End a step of evaluation, which began at the last mark."""
        began_ns, self._latest_ns = self._latest_ns, now()
        if recording := current.current():
            recording.end_mode_step("EVAL", began_ns, self._latest_ns)

    def outside_ended(self) -> None:
        """End something that is no part of a step."""
        self.mark()
        if recording := current.current():
            recording.outside_ended(self._latest_ns)

    def saved(self) -> None:
        """Note the moment of a checkpoint."""
        if recording := current.current():
            at_ns = now()
            recording.add("Checkpoint", "Checkpoint", at_ns, at_ns)

    def training_ended(self) -> None:
        """End training after whole steps."""
        if recording := current.current():
            recording.trainer_ended()

    def cut(self) -> None:
        """End the step that an exception ended."""
        self.mark()
        if recording := current.current():
            recording.cut_step(self._latest_ns)
