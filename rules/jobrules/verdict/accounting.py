"""The time of each device: used, lost to a cause, or not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from jobrules.measures.clock_offsets import Clocks
from jobrules.measures.sample_weights import sample_weights
from jobrules.measures.work import Work
from jobrules.measures.work_span import IDLE_PERCENT, worked
from jobrules.model import (
    SECOND_US,
    BoolArray,
    FloatArray,
    IntArray,
    Job,
    Metric,
    OfGPU,
    Panel,
    natural_sorted,
)
from jobrules.model.claims import Cause, Claim, Claimed, Samples
from jobrules.model.order import quantiles

#: Below this a GPU does not do what it could; the loss above it is usual.
LOW_PERCENT = 70.0

#: What a GPU does when nothing holds it up: this quantile of its samples that no cause claimed. Of short stalls, samples
#: that are partly one may be as many as those without.
USUAL = 0.75

#: Less is the rounding of an amount.
ROUNDING_US = 1.0

#: Time without a cause, by the utilization of the device: below 10%, below 70%, and above.
UNEXPLAINED = ("idle", "low", "busy")


class Loss(Struct, frozen=True, kw_only=True):
    """What one cause claimed on one node."""

    snapshots: int = 0
    #: First and last moment on the clock of the node.
    start_us: int = 0
    end_us: int = 0


class DeviceTime(OfGPU, frozen=True, kw_only=True):
    """How the time of one device was spent, in microseconds; each moment counts once."""

    #: False if it was never used.
    worked: bool
    used: float
    #: Lost by the key of the cause, and without any by ``UNEXPLAINED``.
    lost: dict[str, float]
    unmeasured: float

    @property
    def total(self) -> float:
        """The time from the first to the last record of the job."""
        return self.used + sum(self.lost.values()) + self.unmeasured


class NodeTime(Struct, frozen=True, kw_only=True):
    """How the time of the devices of one node was spent."""

    node: str
    devices: tuple[DeviceTime, ...]
    #: By the key of the cause.
    losses: dict[str, Loss]
    #: Snapshots during the work.
    snapshots: int
    #: What causes raised, by their key; they claimed nothing.
    failed: dict[str, RuntimeError]


def spent_per_node(
    job: Job,
    causes: Sequence[Cause] = (),
    work: Work | None = None,
    metric: Metric = Metric.GPU_UTILIZATION,
) -> list[NodeTime]:
    """The time from the first to the last record of the job, for every device of a utilization metric.

    Lost time goes to the causes in their order: each takes what it claims of what the causes before it left. Start and
    end of the job are on the clock of each node.
    """
    # Plain tuples: ``Job.each`` looks into them for what each node needs, and for functions that other processes lack.
    asked = tuple((one.key, one.of_work, one.widened, one.claim) for one in causes if one.claim)
    return job.gathered(_spent, metric, asked, Clocks.of(job), work)


def claimed(cause: Cause, nodes: Sequence[NodeTime]) -> Claimed:
    """What a cause claimed over all nodes."""
    own = [node for node in nodes if node.losses[cause.key].snapshots]
    losses = [node.losses[cause.key] for node in own]
    whole = sum(device.total for node in nodes for device in node.devices)
    lost = sum(device.lost[cause.key] for node in own for device in node.devices)
    return Claimed(
        gpu_s=lost / SECOND_US,
        share=lost / whole if whole else 0.0,
        devices=tuple(
            device.name for node in own for device in node.devices if device.lost[cause.key] >= ROUNDING_US
        ),
        nodes=natural_sorted([node.node for node in own]),
        snapshots=sum(loss.snapshots for loss in losses),
        of_snapshots=sum(node.snapshots for node in own),
        start_us=min((loss.start_us for loss in losses), default=0),
        end_us=max((loss.end_us for loss in losses), default=0),
    )


class _Asked(NamedTuple):
    """What is needed of a cause to ask for its claims, on any machine."""

    key: str
    of_work: bool
    widened: bool
    claim: Callable[[Job, Panel, FloatArray], Claim | None]


class _Ledger:
    """The lost time of the devices of one node, from which causes take in their order."""

    def __init__(self, panel: Panel, devices: Sequence[Samples], causes: Sequence[_Asked]) -> None:
        self.devices = list(devices)
        self.lost = [dict.fromkeys((cause.key for cause in causes), 0.0) for _ in devices]
        #: By cause, the snapshots with a claim, and for each device the claimed samples.
        self.hits = {cause.key: np.zeros(len(panel.time_us), np.bool_) for cause in causes}
        self.claimed = {
            cause.key: [np.zeros(len(one.values), np.bool_) for one in devices] for cause in causes
        }

    def take(self, key: str, amounts: Sequence[FloatArray]) -> None:
        """Give up to these amounts of what is left of each sample to a cause."""
        for i, (device, amount) in enumerate(zip(self.devices, amounts, strict=True)):
            taken = np.clip(amount, 0.0, device.left_us)
            some = taken >= ROUNDING_US
            self.lost[i][key] += float(taken.sum())
            self.devices[i] = replace(device, left_us=device.left_us - taken)
            self.hits[key][device.rows] |= some
            self.claimed[key][i] |= some


def _spent(
    part: Job, metric: Metric, asked: Sequence[tuple[Any, ...]], clocks: Clocks, work: Work | None
) -> Iterator[NodeTime]:
    causes = [_Asked(*one) for one in asked]
    for panel in part.panels_of(metric):
        span_us = clocks.span_us(panel.node)
        weight_us = sample_weights(panel.time_us, *span_us).weight_us
        in_work = work.holds(panel.time_us, panel.node) if work else np.zeros(len(panel.time_us), np.bool_)
        every = [_samples(panel, column, span_us, weight_us, in_work) for column in range(len(panel.devices))]
        ledger = _Ledger(panel, [samples for samples, _ in every], causes)
        failed = _take_all(ledger, part, panel, weight_us, causes)
        yield NodeTime(
            node=panel.node,
            devices=tuple(
                _time(one, own, unmeasured_us)
                for one, own, (_, unmeasured_us) in zip(ledger.devices, ledger.lost, every, strict=True)
            ),
            losses={key: _loss(panel.time_us[hit]) for key, hit in ledger.hits.items()},
            snapshots=int(np.count_nonzero(in_work)),
            failed=failed,
        )


def _take_all(
    ledger: _Ledger, part: Job, panel: Panel, weight_us: FloatArray, causes: Sequence[_Asked]
) -> dict[str, RuntimeError]:
    """Let each cause take what it claims; the edges of stalls go after the last cause that has some. Errors by cause."""
    failed: dict[str, RuntimeError] = {}
    stalls = [cause.key for cause in causes if cause.widened]
    for cause in causes:
        shown = [_as_shown(one, cause) for one in ledger.devices]
        # A cause of a user's own may raise anything.
        try:
            bounds = _claimed_of(cause.claim(part, panel, weight_us), shown)
            ledger.take(cause.key, [np.minimum(b, one.left_us) for b, one in zip(bounds, shown, strict=True)])
        except (Exception, SystemExit) as error:  # noqa: BLE001
            # Not any exception can be sent from one process to another.
            failed[cause.key] = RuntimeError(f"{type(error).__name__}: {error}")
        if stalls and cause.key == stalls[-1]:
            _take_edges(ledger, stalls)
    return failed


def _as_shown(device: Samples, cause: _Asked) -> Samples:
    """Without what is left outside of the work, which is none of a cause of the work."""
    return replace(device, left_us=np.where(device.in_work, device.left_us, 0.0)) if cause.of_work else device


def _take_edges(ledger: _Ledger, stalls: Sequence[str]) -> None:
    """Give the samples in which a stall begins or ends to the cause of the stall."""
    for key in stalls:
        pairs = zip(ledger.claimed[key], ledger.devices, strict=True)
        ledger.take(key, [_edges(claimed, device) for claimed, device in pairs])


def _edges(claimed: BoolArray, gpu: Samples) -> FloatArray:
    """Lost time of the low samples just before and after claimed ones, as far as it is more than usual.

    A GPU that is idle for a part of a sample, and as usual for the rest, has the usual value times the rest.
    """
    # Where a sample does not hold until the next one, nothing was measured in between.
    joined = gpu.weight_us[:-1] >= np.diff(gpu.time_us) - ROUNDING_US
    near = np.append(False, claimed[:-1] & joined) | np.append(claimed[1:] & joined, False)
    unclaimed = gpu.in_work & (gpu.left_us == gpu.lost_us)
    near &= unclaimed & (gpu.values >= IDLE_PERCENT) & (gpu.values < LOW_PERCENT)
    if not near.any():
        return np.zeros(len(near))
    usual = max(IDLE_PERCENT, float(quantiles(gpu.values[unclaimed], (USUAL,))[0]))
    return np.where(near, gpu.weight_us * np.maximum(0.0, 1 - gpu.values / usual), 0.0)


def _loss(time_us: IntArray) -> Loss:
    """From the times of the snapshots with a claim."""
    if not len(time_us):
        return Loss()
    return Loss(snapshots=len(time_us), start_us=int(time_us[0]), end_us=int(time_us[-1]))


def _claimed_of(claim: Claim | None, gpus: Sequence[Samples]) -> Sequence[FloatArray]:
    """The claims of all GPUs of a node; ``ValueError`` if they do not fit."""
    if claim is None:
        return [np.zeros(len(gpu.values)) for gpu in gpus]
    found = [np.asarray(one, np.float64) for one in claim(gpus)]
    if [len(one) for one in found] != [len(gpu.values) for gpu in gpus]:
        raise ValueError("a claim needs an array for each GPU, with a value for each sample")
    if not all(np.isfinite(one).all() for one in found):
        raise ValueError("a claim needs finite numbers")
    return found


def _samples(
    panel: Panel, column: int, span_us: tuple[int, int], weight_us: FloatArray, in_work: BoolArray
) -> tuple[Samples, float]:
    """The samples of one device with nothing claimed, and its time that was not measured."""
    time_us, values = panel.series(column)
    rows: IntArray | slice = slice(None)
    if len(time_us) == len(panel.time_us):
        unmeasured_us = max(0.0, span_us[1] - span_us[0] - float(weight_us.sum()))
    else:
        rows = np.flatnonzero(~np.isnan(panel.values[:, column]))
        weights = sample_weights(time_us, *span_us)
        weight_us, unmeasured_us = weights.weight_us, weights.unmeasured_us
    values = np.ascontiguousarray(values)
    lost_us = weight_us * (1 - values / 100)
    samples = Samples(
        panel=panel,
        column=column,
        rows=rows,
        time_us=time_us,
        values=values,
        weight_us=weight_us,
        in_work=in_work[rows],
        lost_us=lost_us,
        left_us=lost_us,
    )
    return samples, unmeasured_us


def _time(samples: Samples, lost: dict[str, float], unmeasured_us: float) -> DeviceTime:
    left, values = samples.left_us, samples.values
    # As if the known causes had taken nothing: what is left of a sample is explained by none of them.
    # Rounded: a sample of 10% that nothing claims is not idle.
    without = np.round(100 * (1 - left / np.maximum(samples.weight_us, 1.0)), 6)
    # What is left of an idle sample is idle, however much of it was claimed.
    without = np.where(values < IDLE_PERCENT, values, without)
    idle, busy = without < IDLE_PERCENT, without >= LOW_PERCENT
    rest = (left[idle], left[~idle & ~busy], left[busy])
    return DeviceTime(
        node=samples.panel.node,
        device=samples.panel.devices[samples.column],
        worked=bool(worked(values)),
        used=float(samples.weight_us.sum() - samples.lost_us.sum()),
        lost=lost | {key: float(part.sum()) for key, part in zip(UNEXPLAINED, rest, strict=True)},
        unmeasured=unmeasured_us,
    )
