"""The parts of a time, each with one name and one color wherever it is shown.

Samples, traces, goodput, steps, results of SageMaker Debugger, comparison, and cost take both from ``TIME_PARTS``. A cause
of a user's own rule brings its label and has the color of ``OWN_CAUSE``.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from jobrules.model.names import OwnText
from jobrules.text import capitalized

#: Time that trains or computes; that is lost; that is neither, as outside of training or a free core; that is not known.
Role = Literal["used", "lost", "outside", "unknown"]
#: In the order in which bars have them.
ROLES: tuple[Role, ...] = get_args(Role)

#: What stands before the name of a part of device time that was not used.
_NOT_USED = {"lost": "Lost: ", "outside": "Free: "}


class NamedPart(Struct, frozen=True):
    """How a part of a time is shown."""

    #: Within a sentence: ``waiting for data``.
    name: str
    role: Role
    #: Class of ``drawing.css``: blue is used, orange lost, gray neither, hatched not known.
    fill: str
    #: What a word of the field means, where it is read first; empty for plain words.
    about: str = ""

    @property
    def title(self) -> str:
        """On its own: ``Waiting for data``."""
        return capitalized(self.name)

    @property
    def of_device(self) -> str:
        """Among the parts of the time of devices: ``Lost: waiting for data``, ``Free: core idle``, ``Used``."""
        prefix = _NOT_USED.get(self.role)
        return f"{prefix}{self.name}" if prefix else self.title


class TimePart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a whole time, which says the unit of the amount."""

    #: Of ``TIME_PARTS``, or of a cause of a user's own rule.
    key: OwnText
    label: OwnText
    role: Role
    #: The last part of a whole is the rest, which may round below 0.
    amount: Annotated[float, Meta(ge=-1e-6, lt=1e18)]
    #: Of the whole; rounded so that the parts add up to 100.0.
    percent: Annotated[float, Meta(ge=-1e-6, le=100.05)]
    #: Key of the finding that explains it; empty if none does.
    finding: OwnText = ""
    #: When it was lost, after an amount: "while the CPU was saturated"; empty if there is no cause.
    when: OwnText = ""
    #: False if nothing was recorded that could show it; its time is in another part.
    measured: bool = True


#: A cause of a user's own rule.
OWN_CAUSE = NamedPart("", "lost", "l")

_EXPOSED = "ranks exchange data and nothing is computed meanwhile"
_LATE = "the CPU gives the GPU its next kernel too late"

TIME_PARTS = {
    # Device time by samples, and what explains its loss.
    "used": NamedPart("used", "used", "u"),
    "gpu-never-used": NamedPart("GPUs never used", "lost", "l5"),
    "no-gpu-work": NamedPart("no GPU work", "lost", "l5"),
    "unused-gpu": NamedPart("GPUs almost unused", "lost", "l10"),
    "gpu-late": NamedPart("before GPUs began", "lost", "l5"),
    "gpu-stopped": NamedPart("after GPUs stopped", "lost", "l10"),
    "start-up": NamedPart("start-up", "lost", "l2"),
    "wind-down": NamedPart("wind-down", "lost", "l6"),
    "thermal-throttling": NamedPart("waiting for a hot GPU", "lost", "l5"),
    "power-cap": NamedPart("waiting for a GPU at its power limit", "lost", "l6"),
    "slow-clock": NamedPart("waiting for a slow GPU", "lost", "l10"),
    "profiling": NamedPart("profiled steps are longer", "lost", "l8"),
    "checkpoint": NamedPart("checkpoint", "lost", "l10"),
    "io-bottleneck": NamedPart("CPU waiting for I/O", "lost", "l8"),
    "cpu-bottleneck": NamedPart("CPU saturated", "lost", "l"),
    "data-loading": NamedPart("waiting for data", "lost", "l7"),
    "evaluation": NamedPart("evaluation", "lost", "l8"),
    "slow-rank": NamedPart("waiting for a slow rank", "lost", "l10"),
    "step-outlier": NamedPart("outlier steps", "lost", "l5"),
    "saturated-process": NamedPart("CPU core saturated", "lost", "l6"),
    "one-process": NamedPart("one core per process may be the limit", "lost", "l8"),
    "load-balancing": NamedPart("uneven load", "lost", "l5"),
    "batch-size": NamedPart("GPU steadily below its capacity", "lost", "l5"),
    "code-line": NamedPart("waiting at a line of code", "lost", "l7"),
    "idle": NamedPart("unexplained, GPU idle", "lost", "l3"),
    "low": NamedPart("unexplained, GPU below 70%", "lost", "l4"),
    "busy": NamedPart("unexplained, GPU above 70%", "lost", "l9"),
    "core-idle": NamedPart("core idle", "outside", "n1"),
    "core-low": NamedPart("core active, below 70%", "outside", "f2"),
    "core-busy": NamedPart("core above 70%", "outside", "f3"),
    "unmeasured": NamedPart("not measured", "unknown", "x"),
    # The time of the job.
    "productive": NamedPart("productive", "used", "u"),
    "interruption": NamedPart("interruption", "lost", "l5"),
    "lost-work": NamedPart("lost work", "lost", "l6"),
    "first-step": NamedPart("first step", "lost", "l3"),
    "stall": NamedPart("stall", "lost", "l2"),
    "before-first-step": NamedPart("time to the first step", "outside", "f3"),
    "after-last-step": NamedPart("time after the last step", "outside", "n2"),
    "between-steps": NamedPart("between steps", "lost", "l4"),
    # Profiled time, and why devices were idle in it.
    "computing": NamedPart("computing", "used", "u"),
    "communication": NamedPart("exposed communication", "lost", "l2", _EXPOSED),
    "transfer": NamedPart("exposed transfer between ranks", "lost", "l2", _EXPOSED),
    "not-matched": NamedPart("exposed communication, not matched", "lost", "l4", _EXPOSED),
    "waiting": NamedPart("waiting for other ranks", "lost", "l3"),
    "copies": NamedPart("exposed copies", "lost", "l5", "data moves and nothing is computed meanwhile"),
    "device-idle": NamedPart("idle time", "lost", "l"),
    "launches": NamedPart("waiting for launches", "lost", "l", _LATE),
    "late-launch": NamedPart("host launched late", "lost", "l", _LATE),
    "launch-latency": NamedPart("launch latency", "lost", "l2", "from the launch of a kernel to its start"),
    "between-kernels": NamedPart("between queued kernels", "lost", "l3"),
    "synchronization": NamedPart(
        "synchronization", "lost", "l8", "the CPU waits for the GPU before it launches more"
    ),
    "memory-allocation": NamedPart("memory allocation", "lost", "l6"),
    "first-iterations": NamedPart("memory for first iterations", "lost", "l9"),
    "profiler": NamedPart("profiler overhead", "lost", "l10"),
    "other-causes": NamedPart("other causes", "lost", "l11"),
    "idle-unknown": NamedPart("idle, cause not known", "unknown", "x"),
    "device-wait": NamedPart("device wait", "unknown", "x"),
    "not-linked": NamedPart("no launch recorded", "unknown", "x"),
    # Steps by their events; data loading as above.
    "forward": NamedPart("forward pass", "used", "u"),
    "backward": NamedPart("backward pass", "used", "u2"),
    "gpu-operators": NamedPart("GPU operators", "used", "u3"),
    "cpu-operators": NamedPart("CPU operators", "used", "u4"),
    "horovod": NamedPart("Horovod", "outside", "n2"),
    "event-type": NamedPart("event type", "outside", "n1"),
    "other-events": NamedPart("other event types", "outside", "f2"),
    "no-event": NamedPart("unaccounted", "unknown", "x"),
    "in-steps": NamedPart("inside steps", "used", "u"),
    "outside-steps": NamedPart("outside steps", "outside", "f2"),
    # Phases of the job.
    "before": NamedPart("start-up", "outside", "n1"),
    "loop": NamedPart("training loop", "used", "u"),
    # The same where GPUs, or GPUs and steps, say when it began and ended.
    "gpu-work": NamedPart("GPU work", "used", "u"),
    "work": NamedPart("work", "used", "u"),
    "after": NamedPart("wind-down", "outside", "n2"),
    "last-step-and-after": NamedPart("last step and wind-down", "outside", "n2"),
    "whole": NamedPart("whole job", "outside", "n1"),
}


def named(key: str) -> NamedPart:
    """The part of a key; ``OWN_CAUSE`` for any other."""
    return TIME_PARTS.get(key, OWN_CAUSE)
