"""What made the start-up long, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobrules.analyses import start_up as parts
from jobrules.model import Note
from jobrules.text import duration, percent, took

if TYPE_CHECKING:
    from jobrules.model import Fact, Job

START_ADVICE = ("Stream or stage the data, use a smaller container image, and cache compiled kernels.",)
COMPILE_ADVICE = "Keep compiled code: set TORCHINDUCTOR_CACHE_DIR to a folder that outlives the job."
#: What helps, by the part that takes longest.
_ADVICE = {
    parts.BEFORE: "Use a smaller container image, and install nothing when the job starts.",
    "process group": "Start all ranks at the same time: the first ones wait for the last.",
    "CUDA start": "Load only the GPU libraries that the job uses (CUDA_MODULE_LOADING=LAZY), and keep the driver loaded (persistence mode).",
    "model weights": "Keep the weights on a local disk, in the safetensors format.",
    "model to device": "Make the model on its device: torch.set_default_device, or device= in its layers.",
    "data set": "Keep the prepared data set on a local disk, and load only the part that a rank needs.",
    parts.FIRST_FETCH: "The first batch waits for loader processes to start: shorten what the data set does when it is made.",
    parts.FIRST_COMPILE: COMPILE_ADVICE,
}
_IMPORT_ADVICE = "Import less, from a local disk: `python -X importtime` lists what takes long."


def start_facts(job: Job) -> tuple[tuple[Fact, ...], tuple[str, ...]]:
    """The largest part of the start-up as evidence, and what helps."""
    found = parts.start_up(job)
    if found is None:
        return (), START_ADVICE
    largest, length_us = found.largest, found.end_us - found.begin_us
    share = percent(100 * largest.us / length_us)
    evidence = Note(f"Largest part of {duration(length_us)}: {largest.name}, {took(largest.us)} ({share})")
    advice = _IMPORT_ADVICE if largest.name.startswith("import ") else _ADVICE.get(largest.name)
    return (evidence,), (advice,) if advice else START_ADVICE
