"""Faults that reports of this kind are known for, each with a test that would find it in our page.

``n1`` to ``n28`` are defects of the vendor's report notebook; the others were seen in public reports that it made.
What the tests of a rule or a section prove anyway is not proved again here.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from jobreport import pipeline
from jobreport.options import Options
from jobrules import RULES
from jobrules.model import SECOND_US, JobInMemory, Metric, ReasonKind, Status
from jobrules.rule import with_unit
from jobrules.rules.cpu_bottleneck import CPUBottleneck
from jobrules.rules.load_balancing import LoadBalancing
from jobrules.rules.step_outlier import StepOutlier
from tests.copies import replace
from tests.jobs import START_US, make_job, make_panel, make_steps
from tests.paths import SAMPLES
from tests.report.page.sections.html import Page
from tests.report.page.sections.jobs_with_defects import (
    CALLS,
    NAMES,
    NESTED,
    SMALL,
    STALLED,
    TICKS,
    caption,
    html_of,
    late,
    live,
    loading,
    many_gpus,
    number,
    plain,
    profiled,
    profiled_job,
    reported,
    rows,
    section,
    stalled,
    told,
    usual,
    usual_job,
    values,
    whole,
)

# --- N-1 to N-28


def test_n1_a_start_up_longer_than_the_training_is_told() -> None:
    gpu = np.repeat([0.0, 90.0], [1500, 500])
    report = reported(make_job(gpu=gpu, cpu=gpu, steps=make_steps([(750 + i, 751 + i) for i in range(249)])))

    phases = {phase.key: phase.end_us - phase.start_us for phase in report.phases.phases}
    assert phases["before"] > phases["loop"]
    assert "longer than" in told(report, "summary")
    first = report.verdict.findings[0]
    assert "12 min 30 s" in plain(first.title)
    assert plain(first.title) in told(report, "verdict")


@pytest.mark.parametrize("overlap_s", [0, 700])
def test_n2_n6_phases_end_with_the_last_step_and_are_never_negative(overlap_s: float) -> None:
    # Steps that reach past the last sample, as a sampler that stops first leaves them.
    steps = make_steps([(120, 121), (1100 + overlap_s, 1105 + overlap_s)])
    gpu = np.repeat([0.0, 50.0, 0.0], [300, 1850, TICKS - 2150])
    report = reported(make_job(gpu=gpu, steps=steps))

    phases = report.phases.phases
    assert all(phase.percent >= 0 and phase.end_us >= phase.start_us for phase in phases)
    (loop,) = [phase for phase in phases if phase.key == "loop"]
    assert loop.end_us == START_US + (1105 + overlap_s) * SECOND_US
    told_by = [(row["Phase"], row["Share"]) for row in rows(report, "summary", "Phases of the job")]
    at = [name for name, _ in told_by].index("Total")
    shares = [number(share) for _, share in told_by[:at]]
    assert told_by[at][1] == "100.0%"
    assert min(shares) >= 0
    assert round(sum(shares), 1) == 100.0


@pytest.mark.parametrize("count", [1, 2])
def test_n3_a_job_without_duration_has_a_page(count: int) -> None:
    report = reported(make_job(gpu=[50.0] * count, cpu=[50.0] * count, interval_s=1e-6))

    page = Page.of(whole(report))
    assert page.faults == []
    assert not re.search(r"\b(nan|inf)\b", page.text)


def test_n4_sentences_are_whole() -> None:
    text = told(stalled(), "summary")

    assert not re.search(r"(^|\s)\.\s|\.\.", text)


@pytest.mark.parametrize("name", NAMES)
def test_n5_tables_of_times_say_utc_and_days_come_year_first(name: str) -> None:
    html = html_of(usual(), name)

    clock = re.compile(r"\b\d\d:\d\d:\d\d\b")
    tables = [table for table in re.findall(r"<table.*?</table>", html, re.S) if clock.search(table)]
    assert [table for table in tables if "UTC" not in table.partition("</thead>")[0]] == []
    assert not re.search(r"\d\d?/\d\d?/\d{2,4}", told(usual(), name))


def test_n9_a_table_of_utilisation_needs_no_row_and_no_known_metric() -> None:
    empty = reported(JobInMemory(name="empty"))
    odd = replace(usual(), utilization=(replace(usual().utilization[0], label="Fan speed", unit="rpm"),))

    assert "No metric was recorded" in told(empty, "utilization")
    assert "Fan speed rpm" in told(odd, "utilization")


def test_n11_the_largest_is_named_and_not_the_first() -> None:
    events = profiled_job().events
    assert [
        events.names.index(a) < events.names.index(b)
        for a, b in (
            ("elementwise", "volta_sgemm"),
            ("NEGOTIATE_ALLREDUCE", "NCCL_ALLREDUCE"),
            (NESTED[0], NESTED[-1]),
            ("setup", "backward"),
        )
    ] == [True] * 4
    text = told(profiled(), "framework")

    assert "Most self time: volta_sgemm on the GPU (75.0%), cudnn_convolution on the CPU" in text
    # GPU 1.6 s and CPU 3.64 s; the GPU is first.
    assert "69.5% on the CPU" in text
    assert "NCCL_ALLREDUCE took 75.0% of Horovod's time" in text
    assert re.search(r"Outside steps: [\d.]+% of the time of rank 3[34]", text)


def test_n13_shares_of_operators_are_of_all_of_them_and_add_up() -> None:
    text = told(profiled(), "framework")
    table = rows(profiled(), "framework", "CPU operators")
    table += rows(profiled(), "framework", "More CPU operators")

    # 60 ms of 75 ms nested and 40 small ones of 0.4 ms a round; no share is of those above 2% alone.
    own_ms = 75 + SMALL * 0.4
    shares = {row["CPU operator"]: number(row["Share (%)"]) for row in table}
    assert shares[NESTED[-1]] == round(100 * 60 / own_ms, 1)
    assert shares[NESTED[0]] == round(100 * 5 / own_ms, 1)
    assert round(sum(shares.values()), 1) == 100.0
    assert "Percent of self time per device" in text
    assert "from step 9 to step 9 only" in text
    assert sum(number(row["Calls"]) for row in table) == CALLS * (len(NESTED) + SMALL)


def test_n14_cards_come_by_severity_and_without_rules_nothing_breaks() -> None:
    # Idle minutes in the work.
    gpu = np.repeat([0.0, 95.0, 0.0, 95.0], [300, 1300, 700, 300])
    report = reported(make_job(gpu=gpu, cpu=gpu))
    page = section(report, "rules")

    names = [str(a["id"])[2:] for _, a in page.elements if str(a.get("id", "")).startswith("r-")]
    cards = {card.name: card for card in report.rules}
    applies = [
        card for card in report.rules if not (card.reason and card.reason.kind is ReasonKind.NOT_APPLICABLE)
    ]
    assert {card.name for card in applies} <= set(names) <= set(cards)
    order = [Status.TRIGGERED, Status.ERROR, Status.PASSED, Status.NOT_EVALUATED]
    judging = [cards[name] for name in names if cards[name].can_trigger]
    assert [order.index(card.status) for card in judging] == sorted(
        order.index(card.status) for card in judging
    )
    assert len({card.status for card in judging}) > 2
    assert section(replace(report, rules=()), "rules").faults == []
    unknown = replace(report, rules=(replace(report.rules[0], name="MyRule"),))
    assert "MyRule" in told(unknown, "rules")


def test_n15_a_threshold_is_read_by_its_name_whatever_its_kind() -> None:
    report = reported(
        usual_job(),
        LoadBalancing(threshold=0.25),
        CPUBottleneck(cpu_threshold=70.5),
        StepOutlier(mode=None, stddev=2.5),
    )

    text = told(report, "rules")
    for parameter in ("threshold=0.25", "cpu_threshold=70.5", "mode=all", "stddev=2.5"):
        assert parameter in text


def test_n16_an_outlier_is_longer_than_mean_and_deviations_by_the_parameters() -> None:
    report = reported(profiled_job(), StepOutlier(stddev=2.5, n_outliers=5))
    first = caption(report, "steps", "steps-histogram")

    took = np.full(960, 0.25)
    took[50::80] = 40.0
    limit = took.mean() + 2.5 * took.std()
    assert "mean + 2.5σ" in first
    assert "12 of 1,920 TRAIN steps" in first
    (row,) = [
        row
        for row in rows(report, "steps", "Step durations by rank and mode")
        if row["Rank"] == "33" and row["Mode"] == "TRAIN"
    ]
    assert number(row["Outliers"]) == np.count_nonzero(took > limit) == 12
    assert number(row["σ"]) == pytest.approx(took.std(), abs=6e-4)
    assert number(row["Threshold"]) == pytest.approx(limit, rel=0.005)
    assert "n_outliers=5 steps, stddev=2.5" in told(report, "rules")


def test_n16_workers_share_the_edges_of_their_histogram_and_words_name_what_is_there() -> None:
    report = profiled()
    table = rows(report, "steps", "Steps by duration")
    assert report.steps
    (columns,) = {tuple(row)[1:] for row in table}

    # Each duration lies in one row, and the counts of every worker are those of its own steps in it.
    steps = profiled_job().steps
    for column in columns:
        _, worker, phase = column.split()
        mine = (steps.end_us - steps.start_us)[(steps.rank == worker) & (steps.mode == phase)] / SECOND_US
        for row in table:
            low, _, high = row["Duration (s)"].partition(" to ")
            least, most = number(low), number(high) if high else np.inf
            assert number(row[column]) == np.count_nonzero((mine >= least - 1e-9) & (mine < most - 1e-9))
        assert sum(number(row[column]) for row in table) == len(mine)
    figures = re.findall(r'<figure id="fig-([\w-]+)"', html_of(usual(), "steps"))
    assert figures == ["steps-histogram", "steps-last", "steps-time"]


def test_n17_low_and_fluctuating_are_told_apart_and_boxes_hold_all_samples() -> None:
    gpu = np.stack([np.full(TICKS, 20.0), np.tile([0.0, 90.0], TICKS // 2), np.full(TICKS, 30.0)], axis=1)
    gpu[:600] = 50.0
    report = reported(make_job(gpu=gpu, cpu=np.full(TICKS, 40.0)))

    text = told(report, "gpu-utilization")
    # From the ninth minute on, when 1 000 samples are seen.
    assert "36 windows, 24 low (p95 below 70%), 12 fluctuating" in text
    for i, row in enumerate(rows(report, "gpu-utilization", "Utilization of each GPU")):
        for column, quantile in (("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p95", 0.95)):
            assert number(row[column]) == np.quantile(gpu[:, i], quantile)


@pytest.mark.parametrize(("count", "shown"), [(20, 20), (40, 32)])
def test_n18_every_gpu_has_its_box_on_a_scale_of_100(count: int, shown: int) -> None:
    report = many_gpus(count)
    html = html_of(report, "gpu-utilization")

    sides = re.findall(r'<line class="median" x1="([\d.]+)%" x2="([\d.]+)%"', html)
    assert len(sides) == shown
    assert all(0 <= float(left) < float(right) <= 100 for left, right in sides)
    assert len(rows(report, "gpu-utilization", "Utilization of each GPU")) == count
    assert ("Drawn: 32 of 40 GPUs" in told(report, "gpu-utilization")) == (shown < count)
    along, up = live(report, "gpu-utilization", "Range1d")
    assert (along.get("start", 0), along["end"]) == (0, shown)
    assert (up.get("start", 0), up["end"]) == pytest.approx((0, 100), abs=1)


def test_n19_histograms_reach_100_and_are_shares_of_each_gpus_samples() -> None:
    gpu = np.full((TICKS, 2), 99.0)
    gpu[::2, 1] = np.nan
    gpu[:2, 0] = 100.0
    report = reported(make_job(gpu=gpu, cpu=np.full(TICKS, 40.0)))

    table = rows(report, "balance", "Histogram of each GPU")
    assert [number(row["Samples"]) for row in table] == [TICKS, TICKS // 2]
    assert [number(row["90 to 100"]) for row in table] == [100.0, 100.0]
    assert report.balance
    for one in report.balance.nodes[0].gpus:
        assert len(one.histogram) == 50
        assert one.histogram[-1] == 100.0
    # The last bin, which all samples lie in, ends at 100%.
    seen = 0
    for data in live(report, "balance", "ColumnDataSource"):
        columns = dict(data["data"]["entries"])
        if "left" in columns:
            seen += 1
            assert values(columns["right"])[-1] == 100
            assert [values(columns[name])[-1] for name in ("v0", "v1")] == [100, 100]
    assert seen == 1


def test_n19_one_gpu_on_the_first_node_does_not_end_the_comparison() -> None:
    alone = make_panel(Metric.GPU_UTILIZATION, np.full(TICKS, 50.0), node="a")
    pair = make_panel(Metric.GPU_UTILIZATION, np.tile([20.0, 90.0], (TICKS, 1)), node="b")
    report = reported(JobInMemory(name="two", panels=(alone, pair)))

    assert "largest distance 0.83 (b gpu0 and gpu1, threshold 0.2)" in told(report, "balance")
    assert "only one GPU" not in told(report, "balance")


@pytest.mark.parametrize(
    ("processes", "answer"), [(2, "too few"), (3, "adequate"), (5, "adequate"), (9, "too many")]
)
def test_n20_loaders_are_judged_by_the_thresholds(processes: int, answer: str) -> None:
    report = reported(replace(usual_job(), steps=make_steps([(119, 1021)]), events=loading(processes)))
    (row,) = rows(report, "data-loading", "Active loader processes per node")

    assert (row["Median"], row["Cores"], row["Dataloader"]) == (str(processes), "4", answer)
    (card,) = [card for card in report.rules if card.name == "Dataloader"]
    assert (card.status is Status.PASSED) == (answer == "adequate")


@pytest.mark.parametrize("name", ["cpu-bottlenecks", "io-bottlenecks"])
def test_n21_parts_of_the_snapshots_add_up_and_the_share_is_of_the_low_ones(name: str) -> None:
    snapshots, low, hits = STALLED
    parts = rows(stalled(), name, "Parts of the snapshots")

    assert [number(row["Snapshots"]) for row in parts] == [snapshots - low, low - hits, hits]
    assert round(sum(number(row["Share (%)"]) for row in parts), 1) == 100.0
    bar = re.findall(
        r'<rect class="\w+" x="([\d.]+)%" width="([\d.]+)%"', html_of(stalled(), name).partition("</svg>")[0]
    )
    assert [float(width) for _, width in bar] == [number(row["Share (%)"]) for row in parts]
    text = told(stalled(), name)
    assert "2,129 of 3,000 snapshots with a GPU below 10% (71.0%)" in text
    assert "2,129 of 3,019 snapshots of the whole job (70.5%; threshold 50%)" in text


def test_n23_times_that_are_zero_draw_no_broken_figure() -> None:
    report = profiled()
    assert report.framework
    time = report.framework
    before, loop = report.phases.phases
    after = replace(loop, key="after", start_us=loop.end_us)
    phases = (
        replace(before, end_us=before.start_us, percent=0.0),
        replace(loop, percent=100.0),
        replace(after, end_us=after.start_us, percent=0.0),
    )
    nothing = [replace(part, seconds=0.0, percent=0.0) for part in (*time.steps, *time.general)]
    report = replace(
        report,
        phases=replace(report.phases, phases=phases),
        framework=replace(time, steps=tuple(nothing), general=tuple(nothing), horovod=tuple(nothing)),
    )

    for name in ("summary", "framework"):
        places = re.findall(r' (?:x|width|x1|x2|y|height)="(-?[a-z\d.]+)%"', html_of(report, name))
        assert places
        assert all(float(place) >= 0 for place in places)
        assert not re.search(r"(?i)\b(nan|inf)\b", section(report, name).text)


def test_n24_titles_are_told_once() -> None:
    html = whole(profiled())

    titles = [
        plain(re.sub(r"<[^>]*>", "", text)) for text in re.findall(r"<h[23][^>]*>(.*?)</h[23]>", html, re.S)
    ]
    assert [title for title, times in Counter(titles).items() if times > 1] == []
    labels = re.findall(r'<div class="draw[^"]*" role="img" aria-label="([^"]*)"', html)
    assert len(labels) > 20
    assert [label for label, times in Counter(labels).items() if times > 1] == []
    horovod = caption(profiled(), "framework", "framework-horovod")
    assert "NCCL_ALLREDUCE" in horovod
    assert "phases" not in horovod
    assert "Horovod" not in caption(profiled(), "framework", "framework-general")


def test_n27_overlapping_series_stand_apart_without_the_legend() -> None:
    # Two lines in one plot differ in more than color, and their numbers stand in a table.
    histogram = html_of(profiled(), "steps").partition('id="fig-steps-last"')[0]
    key = re.findall(r'data-series="(s\d)"', histogram)
    assert len(set(key)) == 3
    dashes = [str(one.get("line_dash")) for one in live(profiled(), "balance", "Line")]
    assert len(dashes) == len(set(dashes)) == 2
    assert len(rows(profiled(), "balance", "Histogram of each GPU")) == 2
    assert len(rows(profiled(), "steps", "Steps by duration")[0]) == 1 + 3

    # More than four have a plot each, with the mean of all.
    multiples = re.findall(r'id="(live-balance(?:-\d+)?)"', html_of(many_gpus(20), "balance"))
    assert len(multiples) == 8
    assert len(live(many_gpus(20), "balance", "Line")) == 8
    assert len(rows(many_gpus(20), "balance", "Histogram of each GPU")) == 20


# --- seen in public reports


def test_seen_bottlenecks_before_the_patience_are_listed_as_the_card_says() -> None:
    # After 20 s of work 600 snapshots are bottlenecks; the rule looks from the 1 001st on.
    early = np.repeat([False, True, False], [40, 600, TICKS - 640])
    report = reported(make_job(gpu=np.where(early, 1.0, 95.0), cpu=np.where(early, 99.0, 30.0)))

    (card,) = [card for card in report.rules if card.name == "CPUBottleneck"]
    looks = [120 * minute for minute in range(1, 21) if 120 * minute > 1000]
    assert (
        (card.evaluated, card.violating) == (len(looks), sum(600 / seen > 0.5 for seen in looks)) == (12, 1)
    )
    text = told(report, "cpu-bottlenecks")
    assert "600 of 2,400 snapshots of the whole job (25.0%; threshold 50%)" in text
    assert "above the threshold in 1 of 12 checks" in text
    (run,) = rows(report, "cpu-bottlenecks", "Longest bottlenecks")
    assert (run["Start (UTC)"], number(run["Length (s)"])) == ("22:14:20", 300)
    # The docs say that start-up counts, and nothing of samples that are left out.
    details = CPUBottleneck.documentation().details
    assert "start-up included" in details
    assert not re.search(r"skip|ignor|not counted", details)


def test_seen_low_use_is_told_as_a_share_of_time_beside_the_p95_of_the_job() -> None:
    # Busy for most of the job: its p95 is high, though some windows are low.
    gpu = np.repeat([95.0, 4.0, 95.0], [1500, 1200, 1500])
    report = reported(make_job(gpu=gpu, cpu=gpu))

    (card,) = [card for card in report.rules if card.name == "LowGPUUtilization"]
    assert card.status is Status.TRIGGERED
    assert f"of {card.evaluated} windows" in plain(card.headline)
    assert plain(card.headline) in told(report, "rules")
    (row,) = rows(report, "gpu-utilization", "Utilization of each GPU")
    assert row["p95"] == "95.0"
    assert number(row["Idle (%)"]) == pytest.approx(100 * 1200 / 4200, abs=0.05)


def test_seen_rises_of_memory_utilisation_are_no_headline() -> None:
    memory = np.tile(np.repeat([10.0, 20.0], 60), TICKS // 120)
    report = reported(
        replace(
            usual_job(),
            panels=tuple(
                make_panel(Metric.GPU_MEMORY_ACTIVITY, memory)
                if p.metric is Metric.GPU_MEMORY_ACTIVITY
                else p
                for p in usual_job().panels
            ),
        )
    )

    (card,) = [card for card in report.rules if card.name == "GPUMemoryIncrease"]
    assert card.status is Status.TRIGGERED
    assert "gpu-memory-increase" not in {finding.key for finding in report.verdict.findings}
    assert plain(card.headline) not in told(report, "verdict")
    assert plain(card.headline) in told(report, "rules")


@pytest.mark.parametrize("wait", ["idle", "warm-up", "no GPU"])
@pytest.mark.parametrize("start_s", [600, 1440])
def test_seen_a_first_step_that_comes_late_is_a_finding(wait: str, start_s: int) -> None:
    # After 25 and 60% of the job.
    report = late(wait, start_s)

    titles = [plain(finding.title) for finding in report.verdict.findings]
    assert [title for title in titles if f"{start_s // 60} min" in title]


def test_seen_rows_of_the_heat_map_stand_at_their_own_time() -> None:
    # The GPU is sampled in the second half only, and half as often as the cores.
    gpu = make_panel(
        Metric.GPU_UTILIZATION, np.full(600, 55.0), interval_s=1.0, start_us=START_US + 600 * SECOND_US
    )
    cpu = make_panel(Metric.CPU_UTILIZATION, np.repeat([[15.0], [35.0]], 1200, axis=0), prefix="cpu")
    report = reported(JobInMemory(name="halves", panels=(cpu, gpu)))

    paths = painted(html_of(report, "devices"))
    wide = max(end for _, runs in paths for _, end in runs)
    assert [(step, runs) for step, runs in paths if step == "q5"] == [("q5", [(wide / 2, wide)])]
    (lower,) = [runs for step, runs in paths if step == "q3"]
    assert lower == [(wide / 2, wide)]
    (ground,) = [runs for step, runs in paths if step == "q1"]
    assert ground == [(0, wide)]


def painted(html: str) -> list[tuple[str, list[tuple[float, float]]]]:
    """Step of the color, and start and end of each run of cells, of the heat map."""
    return [
        (
            step,
            [
                (float(start), float(start) + float(length))
                for start, length in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)", path)
            ],
        )
        for step, path in re.findall(r'<path class="(\w+)" d="([^"]*)"', html.partition("</figure>")[0])
        if re.fullmatch(r"q\d|l|full", step)
    ]


def test_seen_colors_of_the_heat_map_are_of_100_percent() -> None:
    # Nothing is used more than 35%: no cell has a color of the upper steps.
    use = np.tile(np.repeat([5.0, 35.0], 600), 2)
    report = reported(make_job(gpu=use, cpu=use))

    assert {step for step, _ in painted(html_of(report, "devices"))} == {"q0", "q3"}
    scales = live(report, "devices", "LinearColorMapper")
    assert scales
    # Above stand the full cores: 101 and their mean.
    assert {(one["low"], one["high"]) for one in scales} == {(-0.5, 100.5), (-0.5, 201.5)}


def test_seen_defaults_on_the_page_are_the_defaults_in_force() -> None:
    text = told(usual(), "rules")

    cards = {card.name: card for card in usual().rules}
    judged = [
        kind for kind in RULES if kind.can_trigger and cards[kind.__name__].status is not Status.NOT_EVALUATED
    ]
    assert len(judged) >= 8
    for kind in judged:
        rule = kind()
        card = cards[kind.__name__]
        mine = text.partition(f"About this rule: {card.name}")[2].partition("About this rule")[0]
        for parameter in card.parameters:
            assert parameter.value == parameter.default
            assert getattr(rule, parameter.name) == parameter.value
            value = with_unit(parameter.value, parameter.unit).replace("\u00a0", " ")
            assert f"{parameter.name}={value}" in mine


def test_seen_no_account_of_the_job_directory_reaches_the_page(tmp_path: Path) -> None:
    (sample,) = [path for path in SAMPLES if path.name == "cpu-only"]
    account = "123456789012"
    job_dir = tmp_path / f"sagemaker-eu-west-1-{account}" / "cpu-only"
    shutil.copytree(sample, job_dir)
    config = (
        f'"S3OutputPath": "s3://sagemaker-eu-west-1-{account}/out", "ProfilingIntervalInMilliseconds": 500'
    )
    arn = f"arn:aws:sagemaker:eu-west-1:{account}:processing-job/x"
    (job_dir / "profilerconfig.json").write_text(f'{{{config}, "ProcessingJobArn": "{arn}"}}')

    made = pipeline.make_report(job_dir, tmp_path / "report", Options(formats=("json", "md")))

    texts = [
        whole(made.report),
        *(path.read_text() for path in (tmp_path / "report").rglob("*") if path.is_file()),
    ]
    assert len(texts) > 2
    for text in texts:
        assert account not in text
        assert "arn:aws" not in text
        assert str(tmp_path) not in text
