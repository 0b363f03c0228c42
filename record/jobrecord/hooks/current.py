"""The recording of this process: at most one at a time, begun by `start` or `record`."""

from __future__ import annotations

import atexit
import os
import sys
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jobrecord import facts, names, settings
from jobrecord.hooks.recording import Recording
from jobrecord.traces import warn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from jobrecord.sampler_process import SamplerProcess
    from jobrecord.settings import Settings

_recording: Recording | None = None
#: The sampler that this process started, and its settings.
_sampler: tuple[SamplerProcess, Settings] | None = None
_watches_forks = False


def start(
    out: str | Path | None = None,
    *,
    operators: tuple[int, ...] = (),
    profile_steps: tuple[int, int] | None = None,
    profiler: str = "",
    device_time: bool = False,
    force: bool = False,
) -> None:
    """Record this process until it ends, or until `stop`.

    Under ``record-job`` its folder and samples are used; otherwise this process samples the machine into `out`
    (default: ``$JOBRECORD_DIR``, then ``job-<UTC time>``). `operators` are the steps to record PyTorch's operators
    of, `profile_steps` the first and last step of the Python profile, `device_time` adds steps as the GPU sees them,
    and `force` writes into a folder that holds a recording. Raises SettingError for options that cannot be used.
    """
    global _recording  # noqa: PLW0603 - one recording in a process
    if _recording is not None and not _recording.is_automatic:
        warn("start: this process is already recorded")
        return
    read = settings.read({**os.environ, **_folder(out)})
    chosen = replace(
        read,
        operators=tuple(operators) or read.operators,
        profile_steps=profile_steps or read.profile_steps,
        profiler=profiler or read.profiler,
        force=force or read.force,
    )
    if settings.PREFIX + "RUN" not in os.environ:
        try:
            _check_nodes(out)
            chosen = _sample(chosen)
        except (OSError, settings.SettingError) as error:
            warn(f"nothing is recorded: {error}")
            return
    if _recording is None:
        _recording = _begun(chosen, device_time=device_time)
    else:
        _recording.begin(chosen, device_time=device_time)


def record_untouched() -> None:
    """Record this process, which ``record-job`` started, from the first moment on that a library calls back."""
    global _recording  # noqa: PLW0603 - one recording in a process
    if _recording is None:
        _recording = _begun(settings.read(os.environ), is_automatic=True)


def _begun(chosen: Settings, **options: bool) -> Recording:
    _watch_forks()
    atexit.register(stop)
    return Recording(chosen, **options)


def stop() -> None:
    """End the recording of this process."""
    global _recording, _sampler
    recording, _recording = _recording, None
    sampler, _sampler = _sampler, None
    if recording is not None:
        recording.stop()
        atexit.unregister(stop)
    if sampler is not None:
        for name in ("DIR", "NODE", "RUN"):
            os.environ.pop(settings.PREFIX + name, None)
        process, sampled = sampler
        facts.end(sampled, "exit", None, process.stop())
        if not sampled.quiet:
            warn(f"next: make-report --job-dir {names.word(str(sampled.out))}")


@contextmanager
def record(out: str | Path | None = None, **options: Any) -> Iterator[Any]:
    """Record a stretch of code, with the options of `start`. Within another recording it is a phase of it."""
    if _recording is not None and not _recording.is_automatic:
        with _recording.phase("record"):
            yield _recording
        return
    start(out, **options)
    try:
        # Without a recording the script goes on: the functions here then do nothing.
        yield _recording or sys.modules[__name__]
    finally:
        stop()


def current() -> Recording | None:
    """The recording of this process."""
    return _recording


def data(loader: Any) -> Any:
    """The loader, with its fetches recorded."""
    return loader if _recording is None else _recording.data(loader)


def watch(model: Any) -> None:
    """Record forward and backward passes of a module."""
    if _recording is not None:
        _recording.watch(model)


def phase(name: str) -> AbstractContextManager[None]:
    """Record a stretch of code."""
    return nullcontext() if _recording is None else _recording.phase(name)


def eval() -> AbstractContextManager[None]:
    """Record each batch of `data` as a step of evaluation; without `data`, the block as one step."""
    return nullcontext() if _recording is None else _recording.eval()


def predict() -> AbstractContextManager[None]:
    """Record each batch of `data` as a step of prediction; without `data`, the block as one step."""
    return nullcontext() if _recording is None else _recording.predict()


def batch(*, samples: int | None = None, tokens: int | None = None) -> None:
    """Note the size of the batch of the step that has begun."""
    if _recording is not None:
        _recording.batch(samples=samples, tokens=tokens)


def config(values: Mapping[str, Any]) -> None:
    """Note settings of the script, for the report and comparisons."""
    if recording := _told():
        recording.config(values)


def flops(per_step: float | str, *, precision: str = "") -> None:
    """Note the operations of a step of this process, for the share of the peak; ``"count"`` counts one step."""
    if recording := _told():
        recording.flops(per_step, precision=precision)


def log(*, step: int | None = None, mode: str | None = None, **values: Any) -> None:
    """Write numbers such as the loss, of the step that has begun or of `step`."""
    if recording := _told():
        recording.log(step=step, mode=mode, **values)


def learn(model: Any, optimizer: Any, *, name: str = "", **options: Any) -> None:
    """Record statistics of a model's tensors around the steps of its optimizer."""
    if recording := _told():
        recording.learn(model, optimizer, name=name, **options)


def classes(labels: Any, predictions: Any, *, mode: str | None = None) -> None:
    """Count classes of labels and predictions."""
    if _recording is not None:
        _recording.classes(labels, predictions, mode=mode)


def step() -> None:
    """End a training step."""
    if _recording is not None:
        _recording.step()


def resume(step: int) -> None:
    """Number the next step `step`."""
    if _recording is not None:
        _recording.resume(step)


def _told() -> Recording | None:
    """The recording; under ``record-job`` it may begin with what the script says, before a library is imported."""
    if (
        _recording is None
        and settings.PREFIX + "RUN" in os.environ
        and settings.read(os.environ).steps == "auto"
    ):
        record_untouched()
    return _recording


def _folder(out: str | Path | None) -> dict[str, str]:
    """The variable of the folder: that of ``record-job`` before `out`, and one for all ranks that a launcher started here."""
    variable = settings.PREFIX + "DIR"
    given = os.environ.get(variable)
    if given and settings.PREFIX + "RUN" in os.environ:
        return {}
    if out is not None:
        return {variable: str(out)}
    return {} if given or "LOCAL_RANK" not in os.environ else {variable: _folder_of_ranks()}


def _folder_of_ranks() -> str:
    """The same folder in all ranks of this machine: named for when their launcher started."""
    import psutil  # noqa: PLC0415 - not under record-job

    started_s = psutil.Process(os.getppid()).create_time()
    return time.strftime("job-%Y%m%d-%H%M%S", time.gmtime(started_s))


def _check_nodes(out: str | Path | None) -> None:
    if out is None and settings.PREFIX + "DIR" not in os.environ and (names.node_count(os.environ) or 1) > 1:
        raise settings.SettingError("this job has several nodes: give the same folder on all of them")


def _sample(chosen: Settings) -> Settings:
    """Start the sampler, in one process of each node. Returns the settings with the node's name."""
    global _sampler  # noqa: PLW0603 - one recording in a process
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return chosen
    from jobrecord.sampler_process import SamplerProcess  # noqa: PLC0415 - not under record-job

    chosen = facts.claim(chosen, os.environ)
    variables = settings.for_processes(chosen)
    _sampler = SamplerProcess({**os.environ, **variables}, os.getpid()), chosen
    # Processes that this one starts know by them that samples are taken.
    os.environ.update(variables)
    return chosen


def _watch_forks() -> None:
    global _watches_forks  # noqa: PLW0603 - once in a process
    if not _watches_forks and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)
        _watches_forks = True


def _forget() -> None:
    """Be inert in the child of a fork: rows, file, and sampler are its parent's."""
    global _recording, _sampler  # noqa: PLW0603 - one recording in a process
    if _recording is not None:
        _recording.abandon()
    _recording = _sampler = None
