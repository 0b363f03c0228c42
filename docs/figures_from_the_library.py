"""Where each number of a figure comes from: the figures of sample pages, computed again from the frames of a job.

    python docs/figures_from_the_library.py [JOB ...]

Each function below takes an opened job and its report, and gives the numbers that a figure plots, once as
``report.json`` has them and once from the frames with plain pandas. For each figure of the pages it prints how many numbers
were compared and their largest difference; the exit status is 1 if one differs.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from jobreport import open_job
from jobreport.page import sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jobreport import JobFrames

SAMPLES = Path(__file__).parent.parent / "sample_data"
#: Samples of CPU and GPU, steps, traces, and loaders; PyTorch captures; logs of GPUs; eight GPUs; no GPU.
JOBS = ("cpu-bottleneck-2gpu", "late-rank-4gpu", "throttled-4gpu", "healthy-8gpu", "cpu-only")
#: What two ways of adding up the same numbers differ by.
TOLERANCE = 1e-9

#: What ``report.json`` has, what the frames give, and how far rounding may part them: numbers, or lists of numbers.
Pairs: TypeAlias = "Iterator[tuple[Any, Any] | tuple[Any, Any, float]]"
TENTHS, HUNDREDTHS, THOUSANDTHS = 0.05, 0.005, 0.0005

# Samples in columns of time


def in_columns(samples: pd.DataFrame, columns: dict[str, int]) -> pd.DataFrame:
    """Mean of the devices' mean, lowest, and highest sample of each column of time; NaN in columns without a sample.

    A column between two samples shows the earlier one: sampling slower than the columns is no gap.
    """
    snapshot = samples.groupby("time_us")["value"].agg(["mean", "min", "max"])
    column = (snapshot.index - columns["start_us"]) // columns["width_us"]
    found = snapshot.groupby(column).agg({"mean": "mean", "min": "min", "max": "max"})
    found = found.reindex(range(columns["count"]))
    return found.where(found.bfill().isna(), found.ffill())


def of_node(job: JobFrames, metric: str, node: str, devices: Any = None) -> pd.DataFrame:
    """The samples of a metric of one node."""
    return job.samples(metric, node=node, device=devices)


def time_lines(job: JobFrames, page: Any) -> Pairs:
    """Of each metric and node. Figures show whole bytes and megahertz, and tenths of all else."""
    for line in page["time_lines"]:
        samples = of_node(job, line["key"], line["node"])
        digit = 0.5 if line["unit"] in ("B", "B/s", "MHz") else TENTHS
        found = in_columns(samples, page["columns"])
        yield line["mean"], found["mean"], digit
        # Of reasons of a slowdown, which hold or not, the lowest and highest mean of a device.
        if line["unit"] != "%" or not samples["value"].isin((0, 100)).all():
            yield line["low"], found["min"], digit
            yield line["high"], found["max"], digit
        yield line["average"], samples.groupby("time_us")["value"].mean().mean(), THOUSANDTHS
        for one in (line["apart"] or {"devices": ()})["devices"]:
            own = samples[samples["device"] == one["device"]]
            yield one["mean"], in_columns(own, page["columns"])["mean"], digit


def device_maps(job: JobFrames, page: Any) -> Pairs:
    """Whole percents of each device: a byte a column, 255 where nothing was measured, 101 more where a core is full."""
    grid = page["devices"]
    early = grid["columns"]["width_us"] // 2 if grid["samples"] else 0
    columns = grid["columns"] | {"start_us": grid["columns"]["start_us"] - early}
    for row in grid["rows"]:
        shown = np.frombuffer(base64.b64decode(row["values"]), np.uint8).reshape(len(row["devices"]), -1)
        for device, drawn in zip(row["devices"], shown, strict=True):
            samples = of_node(job, row["metric"], row["node"], device)
            percent = in_columns(samples, columns)["mean"].clip(0, 100).round()
            if row["metric"] == "cpu_utilization":
                full = samples.assign(value=samples["value"] >= grid["limit"])
                percent += 101 * (in_columns(full, columns)["mean"] >= 0.5)
            yield drawn, percent.fillna(255)


def memory_activity(job: JobFrames, page: Any) -> Pairs:
    """The band of all GPUs of a node, and lines of single ones."""
    memory = page["gpu_memory"]
    for band in memory["bands"]:
        samples = of_node(job, "gpu_memory_activity", band["node"])
        found = in_columns(samples, memory["columns"])
        for name, own in (("mean", "mean"), ("low", "min"), ("high", "max")):
            yield band[name], found[own], TENTHS
        for line in (one for one in memory["lines"] if one["node"] == band["node"]):
            own = samples[samples["device"] == line["device"]]
            yield line["mean"], in_columns(own, memory["columns"])["mean"], TENTHS


# Distributions of samples


def loop_of(job: JobFrames, node: str) -> tuple[int, int] | None:
    """From the first start to the last end of the steps of a node."""
    steps = job.steps(node=node)
    return (int(steps["start_us"].min()), int(steps["end_us"].max())) if len(steps) else None


def boxes(job: JobFrames, page: Any) -> Pairs:
    """Quantiles of samples, of the whole job or its training loop; whiskers of 1.5 times the distance of the quartiles."""
    for box in page["boxes"]:
        start, end = (
            (loop_of(job, box["node"]) or (None, None)) if box["basis"] == "training loop" else (None, None)
        )
        device = None if box["device"] == "CPU" else box["device"]
        samples = job.samples(box["metric"], node=box["node"], device=device, start=start, end=end)
        # Of all cores together, the mean of each moment.
        values = samples.groupby("time_us")["value"].mean()
        for name in ("p5", "p25", "p50", "p75", "p95", "p99"):
            yield box[name], values.quantile(float(name[1:]) / 100)
        yield [box["n"], box["mean"], box["min"], box["max"]], [
            len(values), values.mean(), values.min(), values.max()
        ]  # fmt: skip
        low, high = values.quantile(0.25), values.quantile(0.75)
        yield box["lower"], max(low - 1.5 * (high - low), values.min())
        yield box["upper"], min(high + 1.5 * (high - low), values.max())


def histograms(job: JobFrames, page: Any) -> Pairs:
    """Percent of the samples of each GPU in bins of 2% of utilization."""
    for node in page["balance"]["nodes"]:
        shares = gpu_shares(job, node)
        for gpu in node["gpus"]:
            if gpu["histogram"]:
                yield gpu["histogram"], 100 * shares[gpu["device"]], HUNDREDTHS


def gpu_shares(job: JobFrames, node: dict[str, Any]) -> pd.DataFrame:
    """Bins of the utilization of GPUs, in the training loop if steps are known: a column a GPU, each adds up to 1."""
    start, end = loop_of(job, node["node"]) or (None, None)
    samples = job.samples("gpu_utilization", node=node["node"], start=start, end=end)
    place = (samples["value"] / 2).clip(0, 49).astype(int)
    counts = pd.crosstab(place, samples["device"]).reindex(range(50), fill_value=0)
    return counts / counts.sum()


def distances(job: JobFrames, page: Any) -> Pairs:
    """Jensen-Shannon distance of the histograms of two GPUs."""

    def divergence(one: pd.Series, middle: pd.Series) -> float:
        some = one > 0
        return float((one[some] * np.log(one[some] / middle[some])).sum())

    for node in page["balance"]["nodes"]:
        shares = gpu_shares(job, node)
        for i, row in enumerate(node["distances"]):
            one = shares[node["listed"][i]]
            for other, distance in zip(node["listed"][i + 1 :], row, strict=True):
                middle = (one + shares[other]) / 2
                both = divergence(one, middle) + divergence(shares[other], middle)
                yield distance, np.sqrt(max(both, 0) / 2), 5e-7


# GPUs that are idle while a core is saturated


def snapshots(job: JobFrames, found: Any, node: str) -> pd.DataFrame:
    """Each snapshot of a node with a GPU: when it was, whether a GPU was low, and a core above its threshold."""
    core = {"cpu": "cpu_utilization", "io": "io_wait"}[found["key"]]
    gpus = of_node(job, "gpu_utilization", node).groupby("snapshot").agg({"time_us": "first", "value": "min"})
    cores = of_node(job, core, node).groupby("snapshot")["value"].max().reindex(gpus.index)
    low = gpus["value"] < found["gpu_below"]
    return gpus.assign(low=low, known=cores.notna(), hit=low & (cores > found["core_above"]))


def bottleneck_shares(job: JobFrames, page: Any) -> Pairs:
    """Moments without a low GPU, with one but no saturated core, with no sample of a core, and bottlenecks."""
    for found in page["bottlenecks"]:
        moments = pd.concat([snapshots(job, found, node) for node in job.nodes])
        hits, low, unknown = (
            int(one.sum()) for one in (moments["hit"], moments["low"], moments["low"] & ~moments["known"])
        )
        counts = [len(moments) - low, low - unknown - hits, unknown, hits]
        yield [part["count"] for part in found["split"]["parts"]], counts


def bottlenecks_over_time(job: JobFrames, page: Any) -> Pairs:
    """Percent of the moments of each column of time that are bottlenecks."""
    for found in page["bottlenecks"]:
        for course in found["courses"]:
            moments = snapshots(job, found, course["node"])
            moments = moments[moments["known"] | ~moments["low"]]
            hits = moments.assign(value=100.0 * moments["hit"])
            yield course["percent"], in_columns(hits, page["columns"])["mean"], TENTHS


# Steps, data loading, and the framework


def step_histogram(job: JobFrames, page: Any) -> Pairs:
    """Steps in bins of duration, of each rank and mode."""
    shown = page["steps"]["histogram"]
    steps = job.steps()
    place = ((steps["duration_us"] - shown["start_us"]) // shown["width_us"]).clip(upper=shown["bins"])
    for one in shown["series"]:
        own = steps["phase"] == one["mode"]
        if one["rank"]:
            own &= (steps["worker"] == one["rank"]) & (steps["node"] == one["node"])
        yield (
            [*one["counts"], one["beyond"]],
            place[own].value_counts().reindex(range(shown["bins"] + 1), fill_value=0),
        )


def steps_over_time(job: JobFrames, page: Any) -> Pairs:
    """The shortest and the longest step of each column of time, and the longest that is an outlier."""
    shown = page["steps"]["timeline"]
    steps = job.steps()
    median = steps.groupby(["node", "worker", "phase"], observed=True)["duration_us"].transform("median")
    marks = {"rule": steps["outlier"], "median": steps["duration_us"] > 2 * median}
    steps["column"] = (steps["start_us"] - shown["start_us"]) // shown["width_us"]
    for one in shown["series"]:
        own = steps[steps["phase"] == one["mode"]]
        found = own.groupby("column")["duration_us"].agg(["min", "max"]).reindex(range(shown["count"]))
        yield one["low_us"], found["min"]
        yield one["high_us"], found["max"]
        if page["steps"]["marked"]:
            marked = own[marks[page["steps"]["marked"]].loc[own.index]]
            longest = marked.groupby("column")["duration_us"].max()
            yield one["outlier_columns"], longest.index
            yield one["outlier_us"], longest


def last_steps(job: JobFrames, page: Any) -> Pairs:
    """The last steps of a rank, each from its start to the start of the next one of any mode."""
    shown = page["steps"]["last"]
    every = job.steps(node=shown["node"], worker=shown["rank"])
    own = every[every["phase"] == shown["mode"]].tail(len(shown["numbers"]))
    yield shown["numbers"], own["step"]
    following = np.searchsorted(every["start_us"], own["end_us"])
    ends = np.append(every["start_us"], own["end_us"].iloc[-1])[following]
    yield shown["total_us"], ends - own["start_us"]


def fetch_times(job: JobFrames, page: Any) -> Pairs:
    """Batches in bins of the time that training waited for them."""
    shown = page["data_loading"]["fetches"]
    fetches = job.fetches()["duration_us"]
    edges = np.array(shown["edges_s"]) * 1e6
    counts, _ = np.histogram(np.maximum(fetches, edges[0]), [*edges, np.inf])
    yield [*shown["counts"], shown["beyond"]], counts
    for name in ("p25_s", "p50_s", "p95_s"):
        yield shown[name], fetches.quantile(float(name[1:3]) / 100) / 1e6


def covered_us(spans: pd.DataFrame) -> int:
    """Time in which any of these ran."""
    spans = spans.sort_values("start_us")
    before = spans["end_us"].cummax().shift(fill_value=0)
    return int((spans["end_us"] - spans["start_us"].clip(lower=before)).clip(lower=0).sum())


def goodput(job: JobFrames, page: Any) -> Pairs:
    """The time of the job in parts: steps of all ranks together; of a job without restarts, pauses, stalls, and checkpoints."""
    steps, (start_us, end_us) = job.steps(), job.span_us
    of_number = steps[steps["phase"] == "TRAIN"].groupby("step")
    train = pd.DataFrame(
        {"start": of_number["start_us"].min(), "end": of_number["end_us"].max()}
    ).sort_values("start")
    lasted = train["end"] - train["start"].clip(lower=train["end"].cummax().shift(fill_value=0))
    first = max(0.0, lasted.iloc[0] - lasted.iloc[1:].median())
    evaluation = covered_us(steps[steps["phase"] == "EVAL"])
    parts = {
        "before-first-step": train["start"].iloc[0] - start_us,
        "first-step": first,
        "productive": lasted.sum() - first,
        "evaluation": evaluation,
        "after-last-step": end_us - steps["end_us"].max(),
    }
    parts["between-steps"] = end_us - start_us - sum(parts.values())
    for one in page["goodput"]["parts"]:
        yield one["amount"], parts.get(one["key"], 0) / 1e6, 1e-6


def time_in_steps(job: JobFrames, page: Any) -> Pairs:
    """Time of each rank from its first to its last step: outside of all of them, and in those of each mode."""
    steps = job.steps()
    kinds = page["framework"]["kinds"]
    for rank in page["framework"]["ranks"]:
        own = steps[(steps["node"] == rank["node"]) & (steps["worker"] == rank["rank"])]
        whole = own["end_us"].max() - own["start_us"].min()
        yield rank["seconds"], whole / 1e6
        of_modes = own.groupby("phase", observed=True)["duration_us"].sum()
        times = np.array([whole - covered_us(own), *of_modes.reindex(kinds[1:])])
        # Rounded so that they add up to 100.
        yield rank["percents"], 100 * times / times.sum(), 2 * TENTHS


def passes(job: JobFrames, page: Any) -> Pairs:
    """The times of the event types of both passes."""
    times = job.framework_time().groupby("name")["total_us"].sum()
    for one in page["framework"]["passes"]:
        direction = one["name"].partition(" ")[0]
        modules = times.get(f"{direction}-SubModuleInternal", 0)
        yield one["seconds"], (modules or times[times.index.str.startswith(direction)].sum()) / 1e6


def event_types(job: JobFrames, page: Any) -> Pairs:
    """Of each event type, the time in which it ran, in percent of that from its first event to its last on each rank."""
    for one in page["framework"]["event_types"]:
        if one["percent"] is not None and one["name"]:
            events = job.events(phase=one["name"])
            ranks = [own for _, own in events.groupby(["node", "worker"], observed=True) if len(own) >= 3]
            recorded = sum(own["end_us"].max() - own["start_us"].min() for own in ranks)
            yield one["percent"], 100 * sum(map(covered_us, ranks)) / recorded, TENTHS
            yield one["seconds"], events["duration_us"].sum() / 1e6


def operators(job: JobFrames, page: Any) -> Pairs:
    """The operators of each device by their own time."""
    times = job.framework_time("operator").groupby(["kind", "name"])[["self_us", "calls"]].sum()
    for device in page["framework"]["operators"]:
        own = times.loc[device["device"].lower()]
        for row in device["rows"]:
            yield (
                [row["self_s"], row["calls"]],
                [own["self_us"][row["name"]] / 1e6, own["calls"][row["name"]]],
            )
        yield device["self_s"], own["self_us"].sum() / 1e6


def phases(job: JobFrames, page: Any) -> Pairs:
    """Start-up, training loop, wind-down."""
    for one, row in zip(page["phases"]["phases"], job.phases().to_dict("records"), strict=True):
        yield (
            [one["start_us"], one["end_us"], one["percent"]],
            [row["start_us"], row["end_us"], 100 * row["share"]],
        )


#: Of longer curves, only the lowest and highest of several samples are drawn.
MAX_SAMPLES = 400


def close_up(key: str) -> Callable[[JobFrames, Any], Any]:
    """A stretch of time in detail: means of samples, and the time that each row of events covers."""

    def pairs(job: JobFrames, page: Any) -> Pairs:
        shown = next(one for one in page["close_ups"] if one["key"] == key)
        window = job.window(shown["start_us"], shown["end_us"])
        for curve in shown["curves"]:
            moments = window.samples(curve["key"], node=shown["node"]).groupby("time_us")["value"].mean()
            yield curve["samples"], len(moments)
            yield curve["mean"], moments.mean(), THOUSANDTHS
            if curve["samples"] <= MAX_SAMPLES and not shown["unmeasured_us"]:
                ticks = np.frombuffer(base64.b64decode(curve["ticks"]), "<i4")
                yield ticks, (moments.index - shown["start_us"]) // shown["tick_us"]
                percents = np.frombuffer(base64.b64decode(curve["percents"]), "<f4")
                yield percents.astype(np.float64).round(1), moments, TENTHS
        events = window.events(node=shown["node"])
        steps = job.steps(node=shown["node"])
        steps = steps[(steps["start_us"] < shown["end_us"]) & (steps["end_us"] > shown["start_us"])]
        clipped = steps.assign(
            start_us=steps["start_us"].clip(lower=shown["start_us"]),
            end_us=steps["end_us"].clip(upper=shown["end_us"]),
        )
        for lane in shown["lanes"]:
            rows = clipped if lane["kind"] == "steps" else events[events["phase"] == lane["event_type"]]
            own = rows[rows["worker"] == lane["rank"]]
            yield [lane["events"], lane["total_us"], lane["covered_us"]], [
                len(own), (own["end_us"] - own["start_us"]).sum(), covered_us(own)
            ]  # fmt: skip

    return pairs


# Captures of PyTorch's profiler


def ranks_of_steps(job: JobFrames, page: Any) -> Pairs:
    """Each step over all ranks, without waiting for other ranks."""
    steps = job.captures("steps")
    waiting = steps.groupby(["file", "number"])["exposed_waiting_ns"].max().fillna(0)
    own = (steps.groupby(["file", "number"])["host_ns"].first() - waiting).groupby("number")
    found = own.agg(["count", "min", "median", "max"])
    for one in page["across_ranks"]["steps"]:
        names = ("captures", "shortest_ns", "median_ns", "longest_ns")
        yield [one[name] for name in names], found.loc[one["number"]]


def device_parts(job: JobFrames, page: Any) -> Pairs:
    """The time of each device in parts that add up."""
    names = [
        "window_ns",
        "compute_ns",
        "exposed_communication_ns",
        "exposed_waiting_ns",
        "exposed_copies_ns",
        "idle_ns",
    ]
    shown = [device for one in page["captures"] for device in one["devices"]]
    for name in names:
        yield [one[name] for one in shown], job.captures()[name]


def idle_causes(job: JobFrames, page: Any) -> Pairs:
    """Why each device was idle."""
    idle = job.captures("idle").set_index(["file", "device", "cause"])["idle_ns"]
    for one in page["captures"]:
        for device in one["devices"]:
            for cause, ns in device["idle_by_cause_ns"].items():
                yield ns, idle[one["file"], device["device"], cause]


def step_parts(job: JobFrames, page: Any) -> Pairs:
    """The steps of each device in parts."""
    steps = job.captures("steps")
    shown = [step for one in page["captures"] for device in one["devices"] for step in device["steps"]]
    for name in (
        "window_ns",
        "compute_ns",
        "exposed_communication_ns",
        "exposed_copies_ns",
        "idle_ns",
        "exposed_waiting_ns",
    ):
        yield [one[name] for one in shown], steps[name]


def kernels(job: JobFrames, page: Any) -> Pairs:
    """The names with most time, of all devices together."""
    found = job.captures("kernels").groupby("name")["total_ns"].sum()
    shown: dict[str, int] = {}
    for device in (device for one in page["captures"] for device in one["devices"]):
        for kernel in device["kernels"]:
            shown[kernel["name"]] = shown.get(kernel["name"], 0) + kernel["total_ns"]
    yield list(shown.values()), found[list(shown)]


def waiting(job: JobFrames, page: Any) -> Pairs:
    """For which rank the others waited."""
    found = job.captures("waiting")
    for name in ("rank", "suffered_ns", "caused_ns", "last"):
        yield [one[name] for one in page["across_ranks"]["waiting"]], found[name]


FIGURES: dict[str, Callable[[JobFrames, Any], Any]] = {
    "phases": phases,
    "gpu-utilization": boxes,
    "batch-size": boxes,
    "balance": histograms,
    "distances": distances,
    "gpu-memory": memory_activity,
    "memory-in-use": time_lines,
    "nodes": time_lines,
    "power": time_lines,
    "devices-map": device_maps,
    "devices-lines": device_maps,
    "cpu-bottlenecks-split": bottleneck_shares,
    "cpu-bottlenecks-time": bottlenecks_over_time,
    "steps-histogram": step_histogram,
    "steps-time": steps_over_time,
    "steps-last": last_steps,
    "data-loading-fetches": fetch_times,
    "goodput": goodput,
    "framework-ranks": time_in_steps,
    "framework-passes": passes,
    "framework-general": event_types,
    "framework-operators": operators,
    **{f"close-ups-{key}": close_up(key) for key in ("first-steps", "last-steps", "worst-minute")},
    "profiled-steps-ranks": ranks_of_steps,
    "profiled-time-parts": device_parts,
    "idle-time-causes": idle_causes,
    "profiled-steps-parts": step_parts,
    "kernels-kernels": kernels,
    "communication-waiting": waiting,
}
#: Figures whose numbers the frames do not have, by the beginning of their names.
NOT_IN_FRAMES = {
    "communication-skew": "single collectives are reduced while a trace is read",
    "profiled-steps-slowest": "single events of a trace are reduced while it is read: job.trace() has them",
    "kernels-lengths": "single kernels are reduced while a trace is read",
}


def differences(pairs: Pairs) -> tuple[int, float]:
    """How many numbers were compared, and the largest difference beyond rounding; infinite where one has no number."""
    count, largest = 0, 0.0
    for shown, found, *rounding in pairs:
        one, other = (np.atleast_1d(np.asarray(values, np.float64)) for values in (shown, found))
        count += len(one)
        if one.shape != other.shape or (np.isnan(one) != np.isnan(other)).any():
            return count, np.inf
        beyond = np.abs(one - other) - sum(rounding)
        largest = max(largest, float(np.nanmax(beyond / np.maximum(1, np.abs(one)), initial=0)))
    return count, largest


def compared(name: str) -> bool:
    """Print a line for each figure of a page; whether all numbers are equal."""
    equal = True
    with open_job(SAMPLES / name) as job:
        made = job.report()
        page = json.loads(made.json)
        html = "".join(one.html for one in sections.page(made.report).values())
        for figure in dict.fromkeys(re.findall(r'id="fig-([a-z0-9-]+)"', html)):
            if reason := next((why for start, why in NOT_IN_FRAMES.items() if figure.startswith(start)), ""):
                print(f"{name}: {figure}: not recomputed: {reason}")
                continue
            count, largest = differences(FIGURES[figure](job, page))
            good = count > 0 and largest <= TOLERANCE
            equal &= good
            print(
                f"{name}: {figure}: {count:,} numbers, largest difference {largest:.0e}{'' if good else '  DIFFERS'}"
            )
    return equal


if __name__ == "__main__":
    found = [compared(name) for name in sys.argv[1:] or JOBS]
    sys.exit(not all(found))
