"""What each cause claims, and what it does not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from jobrules.model import SECOND_US, Events, Job, Loader, Metric, Steps, in_words
from jobrules.model.profiles import Function, Profile
from jobrules.text import clock
from tests.copies import replace
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps
from tests.verdicts import found, keys, parts, verdict_of

N = 600
#: Cores of a node.
CORES = 8
GIB = 2.0**30


def while_idle(idle_cores: list[float], *, gpu: float = 2.0, every: int = 5, n: int = N) -> Job:
    """One GPU; in one of so many seconds it is at ``gpu`` and the cores are as given, else at 95% and they are free."""
    low = np.arange(n) % every == 1
    cores = np.where(low[:, None], idle_cores, 20.0)
    return make_job(gpu=np.where(low, gpu, 95.0), cpu=cores, interval_s=1)


# The CPU


@pytest.mark.parametrize(
    ("cores", "key"),
    [
        ([95.0] * 8, "cpu-bottleneck"),
        ([95.0] * 4 + [5.0] * 4, "cpu-bottleneck"),
        ([95.0] * 3 + [5.0] * 5, "saturated-process"),
        ([95.0] + [5.0] * 7, "saturated-process"),
        ([90.0] * 3 + [5.0] * 5, None),
        # Their mean.
        ([80.0] * 8, "cpu-bottleneck"),
        ([79.0] * 8, None),
        # A single series is the mean of an unknown number of cores.
        ([95.0], "cpu-bottleneck"),
        ([79.0], None),
    ],
)
def test_half_of_the_cores_or_their_mean_is_a_saturated_cpu_and_fewer_are_one_process(
    cores: list[float], key: str | None
) -> None:
    verdict = verdict_of(while_idle(cores))

    assert keys(verdict)[0] == (key or "unexplained")
    claimed = {part for part in parts(verdict) if part in ("cpu-bottleneck", "saturated-process")}
    assert claimed == ({key} if key else set())
    if key:
        # A fifth of the time at 2%, less the last second, which ends the job.
        assert parts(verdict)[key] == pytest.approx(98 / 5, abs=0.1)
        assert f"{found(verdict, key).share:.3f}" == f"{parts(verdict)[key] / 100:.3f}"


@pytest.mark.parametrize(
    ("mean", "gpu", "claims"),
    [(90.0, 60.0, True), (89.0, 60.0, False), (95.0, 70.0, False), (95.0, 10.0, True), (85.0, 10.0, False)],
)
def test_an_active_gpu_is_slowed_where_nearly_all_of_the_cpu_is_in_use(
    mean: float, gpu: float, claims: bool
) -> None:
    verdict = verdict_of(while_idle([mean] * CORES, gpu=gpu, every=2))

    assert ("cpu-bottleneck" in parts(verdict)) is claims


@pytest.mark.parametrize(("free", "claims"), [(12, True), (8, False)])
def test_a_low_gpu_waits_for_io_if_a_core_always_does(free: int, claims: bool) -> None:
    """Was: raise the batch size."""
    gpu, wait = np.full(N, 37.0), np.full((N, CORES), 1.0)
    wait[:, :2] = 85.0
    wait[::free] = 1.0
    amounts = parts(verdict_of(make_job(gpu=gpu, cpu=[[20.0] * CORES] * N, io_wait=wait, interval_s=1)))

    assert "batch-size" not in amounts
    assert ("io-bottleneck" in amounts) is claims
    if claims:
        # With the samples in between.
        assert amounts["io-bottleneck"] == pytest.approx(63, abs=6)


def test_waiting_for_io_comes_before_a_saturated_cpu() -> None:
    gpu, wait = [1.0, 1.0, 95.0] * 200, [80.0, 1.0, 1.0] * 200
    job = make_job(gpu=gpu, cpu=[99.0] * N, io_wait=wait, interval_s=1)

    amounts = parts(verdict_of(job))

    assert amounts["io-bottleneck"] == pytest.approx(33, abs=0.2)
    assert amounts["cpu-bottleneck"] == pytest.approx(33, abs=0.2)


@pytest.mark.parametrize(
    ("cores", "claims"),
    [
        # Was: not 130% of three cores, whose mean is rounded.
        ([[40.0, 45.0, 45.0]], True),
        ([[41.0, 45.0, 45.0]], False),
        # One core in most of the samples, and more on average.
        ([[25.0] * 4] * 6 + [[62.5] * 4] * 4, False),
    ],
)
def test_one_process_uses_up_to_130_percent_of_a_core_on_average(
    cores: list[list[float]], claims: bool
) -> None:
    cpu = np.resize(cores, (N, len(cores[0])))

    assert ("one-process" in parts(verdict_of(make_job(gpu=[45.0] * N, cpu=cpu, interval_s=1)))) is claims


def test_advice_for_a_saturated_cpu_is_not_more_processes_and_for_one_process_it_is() -> None:
    crowded = found(verdict_of(while_idle([95.0] * 8)), "cpu-bottleneck")
    single = found(verdict_of(while_idle([95.0] + [5.0] * 7)), "saturated-process")

    assert "only if some cores are free" in " ".join(crowded.advice)
    assert "num_workers" in single.advice[0]
    assert "All 8\u00a0cores" in in_words(crowded.evidence)
    some = found(verdict_of(while_idle([95.0] * 5 + [5.0] * 3)), "cpu-bottleneck")
    assert "5 of 8\u00a0cores" in in_words(some.evidence)


@pytest.mark.parametrize("together", [True, False])
def test_a_node_waits_for_the_saturated_cpu_of_another_one_on_its_clock(together: bool) -> None:
    """Was: no cause found, for the GPUs of the other node."""
    late_us, spans = 90 * SECOND_US, [(1.0 + i, 1.6 + i) for i in range(N - 5)]
    stalled = np.arange(N) % 5 < 2
    panels, steps = [], []
    for node, start_us in (("a", START_US), ("b", START_US + late_us)):
        idle = stalled if together or node == "b" else np.arange(N) % 4 < 2
        cores = np.where((stalled & (node == "b"))[:, None], 99.0, np.full(CORES, 20.0))
        for metric, values in (
            (Metric.GPU_UTILIZATION, np.where(idle, 0.0, 95.0)),
            (Metric.CPU_UTILIZATION, cores),
        ):
            panels.append(make_panel(metric, values, node=node, interval_s=1, start_us=start_us))
        steps.append(make_steps(spans, node=node, start_us=start_us))
    verdict = verdict_of(make_job(extra=panels, steps=joined_steps(*steps)))

    assert parts(verdict)["cpu-bottleneck"] == pytest.approx(40 if together else 20, abs=0.5)
    saturated = "The CPU was saturated on b; GPUs of other nodes idled"
    assert (saturated in in_words(found(verdict, "cpu-bottleneck").evidence)) is together


@pytest.mark.parametrize(("length_s", "first"), [(2, "num_workers"), (9, "num_workers"), (12, "checkpoints")])
def test_long_stalls_beside_one_full_core_are_first_of_all_checkpoints(length_s: int, first: str) -> None:
    idle = np.arange(N) % (5 * length_s) < length_s
    cores = np.where(idle[:, None], [95.0] + [5.0] * 7, 20.0)
    job = make_job(gpu=np.where(idle, 0.0, 95.0), cpu=cores, interval_s=1)

    finding = found(verdict_of(job), "saturated-process")

    assert first in finding.advice[0]
    assert ("Typical length of a stretch: 12" in in_words(finding.evidence)) is (length_s == 12)


@pytest.mark.parametrize(
    ("metric", "cores", "key"),
    [
        (Metric.CPU_UTILIZATION, CORES, "cpu-bottleneck"),
        (Metric.CPU_UTILIZATION, 1, "saturated-process"),
        (Metric.IO_WAIT, 2, "io-bottleneck"),
    ],
)
def test_a_stall_that_begins_and_ends_between_two_samples_is_claimed_whole(
    metric: Metric, cores: int, key: str
) -> None:
    # Tenths of a second, averaged to samples of a second; stalls of 2.3 s begin at any of them.
    stalled = (np.arange(10 * N) % 67 < 23).reshape(-1, 10).mean(axis=1)
    busy = np.where(np.arange(CORES) < cores, 100.0, 5.0)
    used = stalled[:, None] * busy + (1 - stalled[:, None]) * 5.0
    panels = {Metric.CPU_UTILIZATION: np.full_like(used, 20.0), Metric.IO_WAIT: np.zeros_like(used)} | {
        metric: used
    }
    cpu, waiting = panels.values()
    verdict = verdict_of(make_job(gpu=97 * (1 - stalled), cpu=cpu, io_wait=waiting, interval_s=1))

    assert keys(verdict) == [key]
    assert parts(verdict)[key] == pytest.approx(97 * stalled.mean(), abs=2)


def test_a_stall_does_not_reach_over_a_pause_of_the_sampler() -> None:
    # Ten samples, of which the last is stalled; then 100 s without any, and the first of the next ten is low.
    at = np.arange(N)
    stalled, low = at % 10 == 9, at % 10 == 0
    time_us = (START_US + (at + 100 * (at // 10)) * SECOND_US).tolist()
    panels = [
        make_panel(Metric.GPU_UTILIZATION, np.select([stalled, low], [2.0, 40.0], 95.0), time_us=time_us),
        make_panel(Metric.CPU_UTILIZATION, np.where(stalled[:, None], [99.0] * CORES, 20.0), time_us=time_us),
    ]
    verdict = verdict_of(make_job(extra=panels))

    # 98% of one second in 110.
    assert verdict.explains["CPUBottleneck"] == pytest.approx(0.98 / 110, abs=0.0005)


# Data loading


def loading(
    fetch_s: float,
    gpu: list[float],
    *,
    until: float = N,
    cores: list[float] | np.ndarray | None = None,
    workers: int | None = 0,
    step_s: float | None = None,
    io_wait: np.ndarray | None = None,
) -> Job:
    """A second per step: a fetch at its beginning, recorded up to a time, then the step."""
    seconds = range(int(until))
    iterator = "_SingleProcessDataLoaderIter" if workers == 0 else "_MultiProcessingDataLoaderIter"
    fetches = [("DataLoaderIter", f"{iterator}::fetch", float(t), t + fetch_s) for t in seconds]
    loader = Loader(
        node="algo-1",
        rank="33",
        iterator=iterator,
        start_us=START_US - SECOND_US,
        num_workers=workers,
        pin_memory=True,
    )
    length = step_s if step_s is not None else 1 - fetch_s
    steps = make_steps([(t + 1 - length, t + 1.0) for t in range(N)])
    return make_job(
        gpu=(gpu * N)[:N],
        cpu=None if cores is None else np.broadcast_to(cores, (N, CORES)),
        io_wait=io_wait,
        interval_s=1,
        steps=steps,
        events=make_events(fetches, loaders=[loader] if workers is not None else []),
    )


@pytest.mark.parametrize(
    ("fetch_s", "gpu", "percent"),
    [
        # Of the idle half as much as was waited; then all of it and the rest from the others.
        (0.4, [2.0, 90.0], 40),
        (0.4, [2.0, 50.0], 40),
        (0.4, [2.0, 50.0, 50.0, 50.0, 50.0], 40),
        # A GPU that loses less than training waits is busy meanwhile: what its busy samples lose is usual.
        (0.9, [2.0, 90.0, 90.0, 90.0, 90.0], 0.98 * 20),
        (0.1, [94.0, 95.0], 0),
        # Less than a twentieth of the time is usual.
        (0.06, [2.0, 90.0], 6),
        (0.04, [2.0, 90.0], 0),
    ],
)
def test_fetches_outside_of_steps_are_waits_and_idle_samples_go_first(
    fetch_s: float, gpu: list[float], percent: float
) -> None:
    verdict = verdict_of(loading(fetch_s, gpu))

    assert parts(verdict).get("data-loading", 0.0) == pytest.approx(percent, abs=0.3)
    if gpu == [2.0, 50.0]:
        # The other half keeps all that it lost.
        assert parts(verdict)["low"] == pytest.approx(25, abs=0.2)


def test_moments_in_which_no_batch_was_fetched_are_no_waits() -> None:
    # Every 100 s training saves for 20 s; in each other second it waits 0.4 s for a batch.
    saving = np.arange(N) % 100 < 20
    seconds = np.flatnonzero(~saving).tolist()
    job = make_job(
        gpu=np.where(saving, 0.0, 55.0),
        interval_s=1,
        steps=make_steps([(t + 0.4, t + 1.0) for t in seconds]),
        events=make_events([("DataLoaderIter", "_Single::fetch", t, t + 0.4) for t in seconds]),
    )
    verdict = verdict_of(job)

    assert parts(verdict)["data-loading"] == pytest.approx(0.4 * 80, abs=1)
    # But for the samples next to a fetch.
    assert found(verdict, "unexplained").share == pytest.approx(0.16, abs=0.01)


def test_whole_steps_hold_their_fetches_however_long_evaluation_takes() -> None:
    starts = range(0, N, 2)
    steps = replace(make_steps([(t, t + 1.0) for t in starts]), whole=True)
    fetches = [("DataLoaderIter", "_Single::fetch", t, t + 0.4) for t in starts]
    gpu = np.tile([60.0, 0.0], N // 2)
    with_gpu = verdict_of(make_job(gpu=gpu, interval_s=1, steps=steps, events=make_events(fetches)))
    without = verdict_of(
        make_job(cpu=[[50.0] * 4] * N, interval_s=1, steps=steps, events=make_events(fetches))
    )

    # 0.4 s of 2 s; of the GPU as much as it lost in steps.
    assert parts(with_gpu)["data-loading"] == pytest.approx(20, abs=0.5)
    main = found(without, "data-loading")
    assert main.share_of == "of the training loop"
    # The script evaluates, or does something else, for half of the time.
    assert keys(without) == ["between-steps", "data-loading"]
    assert main.share == pytest.approx(0.2, abs=0.0015)
    assert not any("GPU" in advice for advice in main.advice)


def test_steps_of_nearly_all_of_the_time_hold_their_fetches() -> None:
    verdict = verdict_of(loading(0.4, [2.0, 90.0], step_s=1.0))

    assert keys(verdict)[0] == "data-loading"
    assert "Steps hold their batch fetches" in in_words(verdict.findings[0].evidence)


def two_ranks(other_s: float, gpu: list[float] | None, cores: float = 50.0) -> Job:
    """Steps of a second in which rank 33 waits 0.4 s for its batch, and rank 34 as long as given."""
    job = loading(0.4, gpu or [2.0, 90.0], cores=np.full((N, CORES), cores))
    fetches = [("DataLoaderIter", "_Single::fetch", float(t), t + other_s) for t in range(N)]
    return replace(
        job,
        panels=job.panels if gpu else tuple(p for p in job.panels if not p.metric.of_gpus),
        events=Events.joined((job.events, make_events(fetches, rank="34"))),
        steps=joined_steps(job.steps, make_steps([(t + other_s, t + 1.0) for t in range(N)], rank="34")),
    )


@pytest.mark.parametrize(("other_s", "says"), [(0.1, True), (0.3, False)])
@pytest.mark.parametrize("gpu", [[2.0, 90.0], None])
def test_the_rank_that_waits_longest_decides(other_s: float, gpu: list[float] | None, says: bool) -> None:
    # The others wait for it in each step.
    verdict = verdict_of(two_ranks(other_s, gpu))

    main = found(verdict, "data-loading")
    assert main.share == pytest.approx(0.4, abs=0.003)
    assert main.title.startswith("Training waits for data on rank 33: a batch fetch takes 0.4\u00a0s") is says
    evidence = in_words(main.evidence)
    assert ("Rank 33 waited for 40.0% of the recorded time, rank 34 for 10.0%" in evidence) is says
    assert ("rank" in evidence.partition("Also seen as")[0]) is says


def test_more_loader_processes_are_no_advice_for_saturated_cores() -> None:
    def advice(cores: float) -> str:
        verdict = verdict_of(two_ranks(0.4, None, cores))
        return " ".join(found(verdict, "data-loading").advice)

    assert "Set ``num_workers`` above 0" in advice(50.0)
    assert "Set" not in advice(98.0)
    assert "More loader processes will not help: the cores are already used by 98.0%" in advice(98.0)


@pytest.mark.parametrize(
    ("rest", "percent"),
    [
        # As much is lost: it is explained alike.
        ([2.0, 90.0], 40),
        # Within a third of it, and beyond.
        ([20.0, 90.0], 200 / 6 * 0.4 + 400 / 6 * 0.45 * 0.4 / 0.54),
        ([90.0, 90.0], 200 / 6 * 0.4),
        ([2.0, 2.0], 200 / 6 * 0.4),
    ],
)
def test_what_was_recorded_for_a_part_speaks_for_the_rest_if_that_looks_the_same(
    rest: list[float], percent: float
) -> None:
    job = loading(0.4, [2.0, 90.0] * 100 + rest * 200, until=200)
    verdict = verdict_of(job)

    assert parts(verdict)["data-loading"] == pytest.approx(percent, abs=0.4)
    evidence = in_words(found(verdict, "data-loading").evidence).replace("\u00a0", " ")
    assert "recorded for 3 min 19 s of 9 min 59 s of work" in evidence or "of 10 min of work" in evidence
    same = percent > 200 / 6 * 0.4
    assert ("13.3% of GPU time seen there; the rest of the loop looks the same: " in evidence) is same


def test_where_the_rest_differs_moments_of_one_full_core_are_still_data_loading() -> None:
    gpu = [2.0, 90.0] * 100 + [2.0, 2.0] * 200

    def amount(core_while_active: float) -> float:
        core = np.where(np.array(gpu) < 10, 95.0, core_while_active)
        cores = np.column_stack((core, np.full((N, CORES - 1), 5.0)))
        return parts(verdict_of(loading(0.4, gpu, until=200, cores=cores)))["data-loading"]

    # Where fetches were recorded, such moments are half of the time, more than the fetches.
    assert amount(20.0) == pytest.approx(100 / 6 * 0.98 + 400 / 6 * 0.98, abs=0.4)
    # A core that is always full shows nothing.
    assert amount(95.0) == pytest.approx(200 / 6 * 0.4, abs=0.4)


def shares(*, idle: list[int], active: list[int]) -> tuple[float, str]:
    """Percent claimed for saturated processes, and what the page says of cores, by their numbers in each sample."""
    gpu = [2.0] * len(idle) + [90.0] * len(active)
    order = np.random.default_rng(1).permutation(len(gpu))
    cpu = np.where(np.arange(CORES) < np.array([*idle, *active])[:, None], 97.0, 20.0)
    verdict = verdict_of(make_job(gpu=np.array(gpu)[order], cpu=cpu[order], interval_s=1))
    said = " ".join(in_words(one.evidence) for one in verdict.findings)
    return parts(verdict).get("saturated-process", 0.0), said


@pytest.mark.parametrize(
    ("idle", "active", "percent", "said"),
    [
        # A process that works alone; the main thread may spin at the same time.
        ([1] * 200, [0] * 400, 200 / 6 * 0.98, ""),
        ([2] * 200, [1] * 400, 200 / 6 * 0.98, ""),
        ([1] * 200, [0, 0, 0, 1] * 100, 200 / 6 * 0.98, ""),
        (
            [2, 1] * 100,
            [1] * 400,
            100 / 6 * 0.98,
            "100.0% of the samples of idle GPUs and in 100.0% of the others",
        ),
        # It only spins.
        (
            [1] * 200,
            [1] * 400,
            0,
            "100.0% of the samples of idle GPUs and in 100.0% of the others, so that alone explains nothing",
        ),
        ([1, 0] * 100, [1, 0] * 200, 0, "50.0% of the samples of idle GPUs and in 50.0%"),
        ([3] * 200, [3] * 400, 0, "so that alone explains nothing"),
        ([0] * 200, [0] * 400, 0, ""),
        ([1] * 600, [], 0, "saturated in 100.0% of the samples, but no GPU was ever active to compare with"),
    ],
)
def test_a_core_that_is_as_often_saturated_while_gpus_work_explains_nothing(
    idle: list[int], active: list[int], percent: float, said: str
) -> None:
    claimed, text = shares(idle=idle, active=active)

    assert claimed == pytest.approx(percent, abs=0.3)
    assert said in text if said else "A core was saturated in" not in text
    # Without an active GPU nothing is ruled out.
    assert ("not the cause: CPU utilization" in text) is (bool(active) and not percent)


def test_the_mean_of_the_cores_rules_out_no_single_one() -> None:
    verdict = verdict_of(make_job(gpu=[2.0, 90.0] * 300, cpu=[20.0] * N, interval_s=1))

    said = in_words(found(verdict, "unexplained").evidence)
    assert "Recorded, and not the cause" not in said
    assert "Not recorded: CPU utilization per core, I/O wait," in said


def profiled(loader_s: float) -> Profile:
    functions = (
        Function(
            file="/lib/torch/utils/data/_utils/fetch.py",
            line=1,
            name="fetch",
            calls=9,
            self_s=loader_s,
            total_s=loader_s,
        ),
        Function(
            file="/lib/torch/nn/functional.py",
            line=1,
            name="linear",
            calls=9,
            self_s=10 - loader_s,
            total_s=10,
        ),
    )
    return Profile(
        node="algo-1",
        rank="33",
        profiler="cProfile",
        start_us=START_US,
        end_us=START_US + 10 * SECOND_US,
        begin="",
        end="",
        functions=functions,
        count=2,
        self_s=10.0,
    )


@pytest.mark.parametrize(("loader_s", "key"), [(6.0, "data-loading"), (4.0, "saturated-process")])
def test_a_main_thread_that_spends_most_of_its_time_in_loaders_loads_data_itself(
    loader_s: float, key: str
) -> None:
    job = replace(while_idle([95.0] + [5.0] * 7), profiles=(profiled(loader_s),))
    verdict = verdict_of(job)

    assert keys(verdict) == [key]
    assert parts(verdict)[key] == pytest.approx(98 / 5, abs=0.1)
    assert "num_workers" in found(verdict, key).advice[0]


@pytest.mark.parametrize(
    ("workers", "advice"),
    [
        (0, "Set ``num_workers`` above 0 (8 to start with: cores divided by training processes)."),
        (2, "Raise ``num_workers`` from 2 to about 8: the node has 8 cores."),
        (8, "Make loading cheaper: lighter transforms, cached or packed data, decoding on the GPU."),
    ],
)
def test_advice_follows_from_the_number_of_workers(workers: int, advice: str) -> None:
    verdict = verdict_of(loading(0.4, [2.0, 90.0], cores=[20.0] * CORES, workers=workers))

    finding = found(verdict, "data-loading")
    assert finding.advice[0].replace("\u00a0", " ") == advice
    assert ("``num_workers`` is 0" in in_words(finding.evidence)) is (workers == 0)
    assert keys(verdict)[0] == "data-loading"


@pytest.mark.parametrize(
    ("while_waiting", "key", "advice"),
    [
        # A GPU that idles meanwhile is an I/O bottleneck, one that does not is none.
        (2.0, "io-bottleneck", "Pack small files"),
        (15.0, "data-loading", "Use faster storage"),
    ],
)
def test_fetches_that_wait_for_io_are_one_finding_and_storage_its_advice(
    while_waiting: float, key: str, advice: str
) -> None:
    wait = np.full((N, CORES), 5.0)
    # A core waits in most of the fetches, but not always.
    wait[~np.isin(np.arange(N) % 10, (1, 3)), 0] = 95
    verdict = verdict_of(loading(0.5, [while_waiting, 90.0], workers=4, io_wait=wait))

    (finding,) = verdict.findings
    assert finding.key == key
    assert finding.advice[0].startswith(advice)
    assert finding.share == pytest.approx((100 - while_waiting) / 200, abs=0.01)


# GPUs that wait for one another


def held(metric: Metric, *, slow_use: float = 95.0) -> Job:
    """Four GPUs; the last one is held back in the second half, in which the others are used for 60%."""
    late = np.arange(N) >= N / 2
    gpu = np.where(late[:, None], [60.0, 60.0, 60.0, slow_use], 95.0)
    reason = np.where(late[:, None], [0.0, 0.0, 0.0, 100.0], 0.0)
    clock = np.where(reason > 0, 1000.0, 1900.0)
    extra = [
        make_panel(m, values, interval_s=1) for m, values in ((metric, reason), (Metric.GPU_CLOCK, clock))
    ]
    return make_job(gpu=gpu, interval_s=1, extra=extra)


@pytest.mark.parametrize(
    ("metric", "key"),
    [(Metric.GPU_THERMAL_SLOWDOWN, "thermal-throttling"), (Metric.GPU_POWER_CAP, "power-cap")],
)
def test_gpus_lose_what_they_are_used_less_while_another_is_held_back(metric: Metric, key: str) -> None:
    verdict = verdict_of(held(metric))
    even = verdict_of(held(metric, slow_use=60.0))

    # For half of the time three of four are used 35% less.
    assert parts(verdict)[key] == pytest.approx(0.35 / 2 * 75, abs=0.2)
    assert keys(verdict)[0] == key
    assert "load-balancing" not in parts(verdict)
    assert key not in parts(even)


def test_gpus_wait_for_one_of_another_node_on_its_clock() -> None:
    late_us = 90 * SECOND_US
    spans = [(1.0 + i, 1.6 + i) for i in range(N - 5)]
    hot = np.arange(N) >= N / 2
    panels, steps = [], []
    for node, start_us in (("a", START_US), ("b", START_US + late_us), ("c", START_US)):
        gpu = np.where(hot, 95.0 if node == "b" else 60.0, 95.0)
        panels.append(make_panel(Metric.GPU_UTILIZATION, gpu, node=node, interval_s=1, start_us=start_us))
        steps.append(make_steps(spans, node=node, start_us=start_us))
        if node == "b":
            slow = np.where(hot, 100.0, 0.0)
            panels.append(
                make_panel(Metric.GPU_THERMAL_SLOWDOWN, slow, node=node, interval_s=1, start_us=start_us)
            )
    verdict = verdict_of(make_job(extra=panels, steps=joined_steps(*steps)))

    assert parts(verdict)["thermal-throttling"] == pytest.approx(0.35 / 2 * 200 / 3, abs=0.3)


def test_uneven_load_is_the_distance_to_the_most_used_gpu_of_the_job() -> None:
    one = verdict_of(make_job(gpu=[[90.0, 60.0]] * N, interval_s=1))
    assert parts(one)["load-balancing"] == pytest.approx(15, abs=0.1)
    assert found(one, "load-balancing").title.endswith("60.0% to 90.0% on average")
    assert found(one, "load-balancing").devices == ("algo-1/gpu1",)

    other = make_job(gpu=[[60.0, 40.0]] * N, interval_s=1, node="algo-2")
    two = verdict_of(make_job(gpu=[[90.0, 80.0]] * N, interval_s=1, extra=other.panels))
    assert parts(two)["load-balancing"] == pytest.approx((0 + 10 + 30 + 50) / 4, abs=0.1)


@pytest.mark.parametrize(
    ("idle", "key", "title"),
    [
        ({"b/gpu1": (300, N)}, "gpu-stopped", "b gpu1 stopped at {}; the other 3\u00a0GPUs worked on"),
        (
            {"b/gpu0": (300, N), "b/gpu1": (302, N)},
            "gpu-stopped",
            "2\u00a0GPUs of b stopped at {}; the other 2\u00a0GPUs worked on",
        ),
        (
            {"a/gpu1": (300, N), "b/gpu0": (400, N), "b/gpu1": (302, N)},
            "gpu-stopped",
            "3\u00a0GPUs of 2\u00a0nodes stopped one by one, the first at {}; the other GPU worked on",
        ),
        ({"a/gpu1": (0, 300)}, "gpu-late", "a gpu1 did not work until {}; the other 3\u00a0GPUs did"),
        # Not idle, or not at the end.
        ({"a/gpu1": (300, 500)}, "load-balancing", ""),
    ],
)
def test_a_gpu_that_is_idle_at_one_end_of_the_work_stopped_or_began_late(
    idle: dict[str, tuple[int, int]], key: str, title: str
) -> None:
    """Was: give every rank equal data, with a mean that never was."""
    panels = []
    for node in "ab":
        gpu = np.full((N, 2), 95.0)
        for device in (0, 1):
            gpu[slice(*idle.get(f"{node}/gpu{device}", (0, 0))), device] = 1.0
        panels.append(make_panel(Metric.GPU_UTILIZATION, gpu, node=node, interval_s=1))

    verdict = verdict_of(make_job(extra=panels))

    main = verdict.findings[0]
    assert main.key == key
    at_s = min(299 if start == 0 else start for start, _ in idle.values())
    assert not title or main.title == title.format(clock(START_US + at_s * SECOND_US))
    lost_s = sum(end - start for start, end in idle.values())
    assert parts(verdict)[key] == pytest.approx(95 * lost_s / N / 4, abs=2)
    assert ("load-balancing" in keys(verdict)) is (not title)


@pytest.mark.parametrize("nodes", [("a", "a"), ("a", "b")])
def test_uneven_load_is_what_causes_before_it_leave(nodes: tuple[str, str]) -> None:
    # The second GPU idles in half of the seconds, beside a full CPU.
    stalled = np.arange(N) % 2 == 1
    gpu = np.column_stack((np.full(N, 90.0), np.where(stalled, 2.0, 90.0)))
    cpu = np.where(stalled[:, None], [99.0] * 8, 20.0)
    panels = [
        make_panel(Metric.GPU_UTILIZATION, gpu[:, [one == node for one in nodes]], node=node, interval_s=1)
        for node in dict.fromkeys(nodes)
    ]
    panels.append(make_panel(Metric.CPU_UTILIZATION, cpu, node=nodes[1], interval_s=1))
    amounts = parts(verdict_of(make_job(extra=panels)))

    assert amounts["cpu-bottleneck"] == pytest.approx(98 / 4, abs=0.1)
    assert amounts.get("load-balancing", 0.0) == pytest.approx(0, abs=0.1)


# Small batches


@pytest.mark.parametrize(
    ("what", "claims"),
    [
        ("steady", True),
        ("cpu in use", False),
        ("often idle", False),
        ("often full", False),
        ("stalled", False),
        ("waits for I/O", False),
    ],
)
def test_a_small_batch_needs_room_on_the_cpu_and_a_gpu_that_is_steadily_low(what: str, claims: bool) -> None:
    gpu, cpu, wait = np.full(N, 45.0), np.full((N, CORES), 30.0), np.zeros((N, CORES))
    # A spinning main thread is no reason against it.
    cpu[:, 0] = 100.0
    if what == "cpu in use":
        cpu[:, 1:] = 66.0
    if what == "often idle":
        gpu[::9] = 3.0
    if what == "often full":
        gpu[::18] = 90.0
    if what == "stalled":
        # Less than a tenth of the samples, more than a tenth of the loss.
        gpu[::11], wait[::11] = 2.0, 90.0
        gpu[gpu > 10] = 66.0
    if what == "waits for I/O":
        wait[::9] = 90.0
    verdict = verdict_of(make_job(gpu=gpu, cpu=cpu, io_wait=wait, interval_s=1))

    assert ("batch-size" in keys(verdict)) is claims
    if claims:
        assert parts(verdict)["batch-size"] == pytest.approx(55, abs=0.1)
    else:
        assert not re.search("batch", " ".join(verdict.findings[0].advice))


@pytest.mark.parametrize(
    ("in_use_gib", "advice"),
    [(None, "it was not recorded"), (40, "memory is free"), (70, "The batch cannot grow")],
)
def test_memory_in_use_decides_on_a_larger_batch(in_use_gib: float | None, advice: str) -> None:
    used, total = (
        make_panel(metric, [gib * GIB] * N, interval_s=1)
        for metric, gib in ((Metric.GPU_MEMORY_USED, in_use_gib or 0), (Metric.GPU_MEMORY_TOTAL, 80))
    )
    job = make_job(
        gpu=[45.0] * N,
        cpu=[[30.0] * 8] * N,
        memory=[10.0] * N,
        interval_s=1,
        extra=[used, total] if in_use_gib else [],
    )
    finding = found(verdict_of(job), "batch-size")

    assert advice in finding.advice[0]
    # Activity is no memory in use.
    assert "memory" not in finding.title.lower()


# Steps


def outliers(many: int, *, node: str = "algo-1") -> Steps:
    """A step of a second every ten seconds, some of which take nine."""
    spans = [(10.0 * i, 10.0 * i + (9 if i % 10 == 5 and i < 10 * many else 1)) for i in range(150)]
    return make_steps(spans, node=node)


def test_outlier_steps_claim_what_their_node_lost_in_them() -> None:
    steps = joined_steps(outliers(12, node="a"), outliers(4, node="b"))
    panels = [make_panel(Metric.GPU_UTILIZATION, [12.0] * 1500, node=node, interval_s=1) for node in "ab"]
    verdict = verdict_of(make_job(extra=panels, steps=steps))

    # Twelve steps of 9 s on one of two nodes, which ten samples at 12% may describe: they claim no more than the 8 s
    # beyond the median. The four of the other node are no more than are allowed.
    amount = 12 * min(10 * 0.88, 8) / 3000
    assert parts(verdict)["step-outlier"] == pytest.approx(100 * amount, abs=0.1)
    assert "step-outlier" not in keys(verdict)
    assert verdict.explains["StepOutlier"] == pytest.approx(amount, abs=0.001)


def beside_others(by_job: float, gpu: list[float] | None) -> Job:
    """A loop that waits 0.7 s of each second for its batch, on eight cores that other processes fill."""
    job = loading(0.7, gpu or [2.0, 90.0], cores=np.full((N, CORES), 97.0))
    panels = job.panels if gpu else tuple(p for p in job.panels if not p.metric.of_gpus)
    of_job = make_panel(Metric.JOB_CPU, np.full(N // 5, by_job), interval_s=5, prefix="cpu")
    return replace(job, panels=(*panels, of_job))


@pytest.mark.parametrize("by_job", [0.08, 0.3, 2.9])
@pytest.mark.parametrize("gpu", [[2.0, 90.0], None])
def test_measured_waits_come_before_the_load_of_others(by_job: float, gpu: list[float] | None) -> None:
    main = verdict_of(beside_others(by_job, gpu)).findings[0]

    assert main.key == "data-loading"
    assert f"the job's processes used {by_job:.1f} of 8\u00a0cores, all together 7.8" in in_words(
        main.evidence
    )
    assert main.advice[0].startswith("Set ``num_workers`` above 0")
    assert "other processes" in main.advice[-1]


def test_a_cpu_that_the_job_itself_saturates_is_the_cause() -> None:
    main = verdict_of(beside_others(7.2, [2.0, 90.0])).findings[0]

    assert main.key == "cpu-bottleneck"
