"""Reports built by code: jobs that every section must be able to show."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import Any

from msgspec import UNSET

from jobreport.cost.one_job import job_cost
from jobreport.document import SCHEMA_VERSION, JobFacts, NodeFacts, Parameter, Report, RuleCard
from jobreport.remarks import Quality, Remark, SourceQuality
from jobrules.analyses.framework import FrameworkTime, Operator, Operators, Slice
from jobrules.analyses.gpu_utilization import Box
from jobrules.analyses.time_lines import Columns, TimeLine, time_line
from jobrules.analyses.utilization import UsageRow
from jobrules.measures.sample_weights import Gap
from jobrules.model import Finding, Measure, Note, Reason, ReasonKind, Severity, Status
from jobrules.model.time_parts import TimePart, named
from jobrules.rule import NO_STEPS
from jobrules.verdict.findings import Verdict
from jobrules.verdict.not_evaluated import NotEvaluated
from jobrules.verdict.phases import JobPhases, Phase, missing
from jobrules.verdict.time_use import TimeUse
from tests.copies import replace
from tests.report.page.sections import example_captures, example_close_ups, example_cost, example_nodes
from tests.report.page.sections.example_balance import balance
from tests.report.page.sections.example_bottlenecks import stalls
from tests.report.page.sections.example_data_loading import data_loading, memory_use
from tests.report.page.sections.example_devices import devices
from tests.report.page.sections.example_steps import share_of_peak, step_times, throughput

START_US = 1_763_107_200_000_000  # 2025-11-14 08:00:00 UTC
MINUTE_US = 60_000_000
HOSTILE = "</script><script>alert(1)</script>"
FORMULA = "$$\\frac{a}{b}$$"
ENTITY = '"&lt;img src=x onerror=alert(2)>'

Curve = Callable[[float], float | None]


def line(
    node: str, key: str, label: str, devices: int, count: int, curve: Curve, unit: str = "%"
) -> TimeLine:
    """A time line of ``count`` columns; the curve runs from 0 to 1 and is None in a gap."""
    mean = [curve(i / max(count - 1, 1)) for i in range(count)]
    spread = 6.0 if devices > 1 else 0.0
    limit = 100.0 if unit == "%" else math.inf
    return time_line(
        node=node,
        key=key,
        label=label,
        unit=unit,
        devices=devices,
        mean=tuple(None if v is None else round(v, 1) for v in mean),
        low=tuple(None if v is None else round(max(0.0, v - spread), 1) for v in mean),
        high=tuple(None if v is None else round(min(limit, v + spread), 1) for v in mean),
    )


def box(node: str, device: str, middle: float, basis: str = "whole job") -> Box:
    low, high = max(0.0, middle - 20), min(100.0, middle + 20)
    return Box(
        node=node,
        device=device,
        metric="gpu_utilization",
        unit="%",
        basis=basis,
        n=3600,
        mean=middle,
        min=max(0.0, low - 10),
        p5=low,
        p25=max(0.0, middle - 10),
        p50=middle,
        p75=min(100.0, middle + 10),
        p95=high,
        p99=high,
        max=high,
        lower=low,
        upper=high,
        below_10=0.125,
        from_10_to_90=0.625,
        above_90=0.25,
    )


def usage(node: str, label: str, middle: float, unit: str = "%", n: int = 3600) -> UsageRow:
    values = {
        q: middle * f
        for q, f in zip(("min", "p50", "p90", "p95", "p99", "max"), (0, 1, 1.1, 1.15, 1.2, 1.25), strict=True)
    }
    if unit == "%":
        values = {q: min(100.0, v) for q, v in values.items()}
    return UsageRow(node=node, label=label, unit=unit, n=n, mean=middle, **values)


def card(name: str, status: Status, **facts: object) -> RuleCard:
    known: dict[str, object] = {
        "name": name,
        "title": "GPU utilization is low",
        "checks": "Whether the 95th percentile stays below ``threshold_p95`` in a window.",
        "why": "An idle GPU is paid for like a busy one.",
        "advice": ("Raise ``num_workers``.", "It does not help where the disk is slow."),
        "parameters": (
            Parameter(name="threshold_p95", value=60.0, unit="%", help="limit of the p95", default=70.0),
            Parameter(name="window", value=500, unit="samples", help="samples judged together", default=500),
        ),
        "can_trigger": True,
        "status": status,
        "reason": None,
        "headline": "GPU use was low in 75.0% of windows",
        "measure": None,
        "triggered": 0,
        "violations": 0,
        "datapoints": 3600,
        "evaluated": 0,
        "violating": 0,
        "counted": "windows",
        "severity": 0.0,
        "first_us": None,
        "last_us": None,
        "section": "gpu-utilization",
    }
    return RuleCard(**(known | facts))  # type: ignore[arg-type]


LOW = Finding(
    key="batch-size",
    severity=Severity.CRITICAL,
    title="CPU, GPU and GPU memory are all little used in 75.0% of the windows judged",
    evidence=(Note("All GPUs, 08:05:00 to 08:55:00\u00a0UTC"),),
    advice=("Raise `num_workers` from 1 to 4 per process.", "It gains nothing where the disk is slow."),
    rules=("BatchSize", "LowGPUUtilization"),
    section="gpu-utilization",
    share=0.404,
    share_of="of GPU time",
    gpu_s=3.23 * 3600,
    start_us=START_US + 5 * MINUTE_US,
    end_us=START_US + 55 * MINUTE_US,
)
LATE = Finding(
    key="start-up",
    severity=Severity.INFO,
    title="No GPU worked in the first 5\u00a0min",
    evidence=(Note("08:00:00 to 08:05:00\u00a0UTC"),),
    advice=("Stage the data.",),
    rules=(),
    section="summary",
    share=0.083,
    share_of="of GPU time",
    gpu_s=0.66 * 3600,
)


def use(
    device: str,
    count: int,
    hours: float,
    shares: Sequence[tuple[str, float]],
    digits: int = 2,
    findings: Collection[str] = (),
) -> TimeUse:
    """Parts from key and percent; those with a key in ``findings`` have a finding of that key."""
    parts = tuple(
        TimePart(
            key=key,
            label=named(key).of_device,
            role=named(key).role,
            amount=round(hours * percent / 100, digits),
            percent=percent,
            finding=key if key in findings else "",
        )
        for key, percent in shares
    )
    return TimeUse.of_parts(device=device, count=count, hours=hours, digits=digits, parts=parts)


def framework(name: str, *, forward_only: bool = False) -> FrameworkTime:
    """Framework time in which one phase, one operator and one collective have a given name."""
    return FrameworkTime(
        steps=(
            Slice(name="TRAIN", seconds=1200.0, percent=60.0),
            Slice(key="outside-steps", name="Outside steps", seconds=700.0, percent=35.0),
            Slice(name=name, seconds=100.0, percent=5.0),
        ),
        general=(
            Slice(name="Forward", seconds=3.0, percent=75.0),
            Slice(name=name, seconds=1.0, percent=25.0),
        ),
        operators=(
            Operators(
                device="GPU",
                rows=(
                    Operator(name=name, calls=4, self_s=0.003, total_s=0.003, percent=75.0, call_s=0.00075),
                    Operator(name="reduce", calls=1, self_s=5e-7, total_s=5e-7, percent=0.0, call_s=5e-7),
                ),
                others=1,
                others_calls=1,
                others_s=0.001,
                others_percent=25.0,
                self_s=0.004,
                self_percent=100.0,
                calls=6,
            ),
        ),
        horovod=(Slice(name=name, seconds=0.5, percent=100.0),),
        first_step=5,
        last_step=6,
        forward_only=forward_only,
        **example_close_ups.more_framework(name),
    )


def report(name: str, *nodes: NodeFacts, start: int = START_US, end: int = START_US, **facts: Any) -> Report:
    """A report of a job of one phase, without any results; ``facts`` are fields of it, ``job`` those of its job."""
    job = {"sources": ("system samples",), "steps": 0, "finished": None} | facts.pop("job", {})
    known: dict[str, Any] = {
        "command": f"make-report --job-dir {name}",
        "verdict": Verdict(use=None, findings=(), not_evaluated=(), rules=0),
        "phases": phases("none", ("whole", "Whole job", start, end, 100.0 if end > start else 0.0)),
        "columns": Columns(start_us=start, width_us=1, count=0),
        "quality": Quality(),
    } | dict.fromkeys(("utilization", "time_lines", "boxes", "rules"), ())
    return Report(
        schema_version=SCHEMA_VERSION,
        version="0.1.0",
        job=JobFacts(
            name=name,
            start_us=start,
            end_us=end,
            nodes=nodes,
            **job,
        ),
        **(known | facts),
    )


def phases(basis: str, *parts: tuple[str, str, int, int, float], **facts: Any) -> JobPhases:
    """Phases from key, label, start, end, and percent."""
    return JobPhases(
        basis=basis,
        phases=tuple(
            Phase(key=key, label=label, start_us=start, end_us=end, percent=percent)
            for key, label, start, end, percent in parts
        ),
        **({"gaps": (), "first_work_us": None, "last_work_us": None} | facts),
    )


@cache
def gpu_job() -> Report:
    """One node, eight GPUs, an hour; rules triggered, passed, not evaluated, and failed, and a summary."""
    node, count = "algo-1", 600
    start, end = START_US, START_US + 60 * MINUTE_US
    work = start + 5 * MINUTE_US, end - MINUTE_US

    def gpu(x: float) -> float:
        return 0.0 if x < 0.083 else 45 + 30 * math.sin(60 * x)

    found = report(
        "resnet50",
        NodeFacts(name=node, gpus=8, cores=32, interval_s=0.5, first_us=start, last_us=end),
        end=end,
        job={"steps": 1200, "finished": True},
        verdict=Verdict(
            use=use(
                "GPU",
                8,
                8.0,
                (
                    ("used", 41.0),
                    ("batch-size", 40.4),
                    ("start-up", 8.3),
                    ("wind-down", 1.7),
                    ("idle", 4.6),
                    ("low", 4.0),
                ),
                findings=("batch-size", "start-up"),
            ),
            findings=(LOW, LATE),
            not_evaluated=(
                NotEvaluated(rule="MaxInitializationTime", status=Status.NOT_EVALUATED, reason=NO_STEPS),
                NotEvaluated(
                    rule="IOBottleneck",
                    status=Status.ERROR,
                    reason=Reason(kind=ReasonKind.ERROR, what="ValueError: odd samples"),
                ),
            ),
            rules=5,
        ),
        phases=phases(
            "steps",
            ("before", "Start-up", start, work[0], 8.3),
            ("loop", "Training loop", *work, 90.0),
            ("after", "Wind-down", work[1], end, 1.7),
            first_work_us=work[0],
            last_work_us=work[1],
        ),
        utilization=(
            usage(node, "GPU", 43.0),
            usage(node, "CPU", 39.0),
            usage(node, "CPU, busiest core", 76.0),
            usage(node, "I/O wait", 2.0),
            usage(node, "CPU memory", 41.0),
            usage(node, "GPU memory utilization", 75.0),
            usage(node, "Network", 41e6, "B/s"),
        ),
        columns=Columns(start_us=start, width_us=6_000_000, count=count),
        time_lines=(
            line(node, "gpu_utilization", "GPU", 8, count, gpu),
            line(node, "cpu_utilization", "CPU", 32, count, lambda x: 40 + 10 * math.cos(20 * x)),
            line(node, "gpu_memory_activity", "GPU memory utilization", 8, count, lambda x: 75.0),
            line(node, "io_wait", "I/O wait", 32, count, lambda x: 2.0),
            line(node, "host_memory", "CPU memory", 1, count, lambda x: 40 + 5 * x),
            line(node, "network", "Network", 1, count, lambda x: 4e7 * (1 + x), "B/s"),
        ),
        boxes=tuple(
            box(node, f"gpu{i}", 41.0 + i + 5 * (basis == "training loop"), basis)
            for i in range(8)
            for basis in ("whole job", "training loop")
        ),
        rules=(
            card(
                "LowGPUUtilization",
                Status.TRIGGERED,
                measure=Measure(
                    value=75.0, limits=(0.0,), scale=100.0, unit="% of windows", limit_text="triggers on any"
                ),
                evaluated=480,
                violating=360,
                severity=0.75,
                first_us=LOW.start_us,
                last_us=LOW.end_us,
            ),
            card(
                "BatchSize",
                Status.TRIGGERED,
                evaluated=60,
                violating=20,
                severity=0.33,
                headline="Everything was little used",
            ),
            card(
                "GPUMemoryIncrease",
                Status.PASSED,
                evaluated=60,
                headline="GPU memory rose by 0.7 points at most",
                measure=Measure(
                    value=0.7,
                    limits=(5.0,),
                    bad="above",
                    scale=8.0,
                    unit="points",
                    limit_text="limit 5 points",
                ),
            ),
            card(
                "MaxInitializationTime",
                Status.NOT_EVALUATED,
                reason=NO_STEPS,
                headline="Not evaluated: no step events",
            ),
            card(
                "IOBottleneck",
                Status.ERROR,
                reason=Reason(kind=ReasonKind.ERROR, what="ValueError: odd samples"),
                headline="The rule stopped: ValueError: odd samples",
            ),
            card(
                "OverallSystemUsage",
                Status.PASSED,
                can_trigger=False,
                headline="3600 snapshots of 1 node",
                parameters=(),
            ),
        ),
        framework=framework("conv2d"),
        devices=devices(node, gpus=8, cores=8, gap=False),
        steps=step_times("TRAIN"),
        throughput=throughput(),
        share_of_peak=share_of_peak(),
        balance=balance("gpu"),
        close_ups=example_close_ups.chosen("algo-1"),
        profiles=example_close_ups.profiles("train"),
        data_loading=data_loading(node),
        gpu_memory=memory_use(node, "gpu0", count),
        bottlenecks=stalls("DataLoader"),
        nodes=example_nodes.nodes((node,)),
        quality=Quality(
            sources=(
                SourceQuality(
                    source="system samples",
                    files=24,
                    rows=1_054_080,
                    remarks=(
                        Remark(
                            code="file.not_json", count=1, place="system/a.json:7", fields={"unit": "lines"}
                        ),
                        Remark(code="samples.percent", count=17),
                    ),
                ),
            ),
            remarks=(Remark(code="directory.unknown", count=2, place="notes.txt"),),
        ),
        goodput=example_cost.goodput(),
    )
    return replace(found, cost=job_cost(found, example_cost.pricing()))


@cache
def hostile_job() -> Report:
    """Two nodes with names that want to be markup, a gap on one of them, no steps."""
    first, second, count = HOSTILE, FORMULA + ENTITY, 240
    start, end = START_US, START_US + 40 * MINUTE_US
    gap = Gap(node=second, start_us=start + 10 * MINUTE_US, end_us=start + 15 * MINUTE_US)
    work = start + 2 * MINUTE_US

    def holed(x: float) -> float | None:
        return None if 0.25 <= x < 0.375 else 50 + 20 * math.sin(40 * x)

    found = report(
        HOSTILE + "\u202e" + "x" * 300,
        NodeFacts(name=first, gpus=2, cores=8, interval_s=1.0, first_us=start, last_us=end),
        NodeFacts(name=second, gpus=2, cores=16, interval_s=0.5, first_us=start, last_us=end),
        end=end,
        job={"finished": False},
        command=f"make-report --job-dir '{HOSTILE}'",
        verdict=Verdict(
            use=use(
                "GPU",
                4,
                2.67,
                (
                    ("used", 45.0),
                    ("start-up", 5.0),
                    ("idle", 43.7),
                    ("unmeasured", 6.3),
                ),
            ),
            findings=(
                Finding(
                    key="x",
                    severity=Severity.WARNING,
                    title=f"{HOSTILE} did nothing",
                    evidence=(Note(f"{FORMULA} and `{HOSTILE}`"),),
                    advice=(HOSTILE,),
                    rules=("LowGPUUtilization", "<b>"),
                    section='"><script>',
                    share=0.5,
                    share_of="of windows",
                ),
            ),
            not_evaluated=(
                NotEvaluated(
                    rule="IOBottleneck",
                    status=Status.ERROR,
                    reason=Reason(kind=ReasonKind.ERROR, what=HOSTILE),
                ),
            ),
            rules=2,
        ),
        phases=phases(
            "gpu",
            ("before", "Before the first GPU work", start, work, 5.0),
            ("loop", "First to last GPU work", work, end, 95.0),
            gaps=(gap,),
            missing=missing((gap,), (start, end)),
            first_work_us=work,
            last_work_us=end,
        ),
        utilization=(usage(first, "GPU", 50.0), usage(first, "CPU", 85.0), usage(second, "GPU", 75.0)),
        columns=Columns(start_us=start, width_us=10_000_000, count=count),
        time_lines=(
            line(first, "gpu_utilization", "GPU", 2, count, lambda x: 50.0),
            line(first, "network", "Network", 1, count, lambda x: 900.0, "B/s"),
            line(second, "gpu_utilization", "GPU", 2, count, holed),
        ),
        boxes=tuple(box(node, name, 50.0) for node in (first, second) for name in (HOSTILE, "$$x$$")),
        rules=(
            card(
                "LowGPUUtilization",
                Status.TRIGGERED,
                headline=HOSTILE,
                evaluated=10,
                violating=5,
                severity=0.5,
            ),
            card(
                "IOBottleneck",
                Status.ERROR,
                reason=Reason(kind=ReasonKind.ERROR, what=HOSTILE),
                headline=HOSTILE,
            ),
        ),
        framework=framework(HOSTILE),
        devices=devices(HOSTILE, nodes=2, gpu=HOSTILE),
        steps=step_times(HOSTILE),
        balance=balance(HOSTILE),
        close_ups=example_close_ups.chosen(HOSTILE),
        profiles=example_close_ups.profiles(HOSTILE),
        captures=example_captures.ranks(3, HOSTILE)[0],
        across_ranks=example_captures.ranks(3, HOSTILE)[1],
        data_loading=data_loading(HOSTILE),
        gpu_memory=memory_use(second, HOSTILE, count, range(60, 90)),
        bottlenecks=stalls(HOSTILE, (first, second), count),
        nodes=example_nodes.nodes((first, second)),
        quality=Quality(
            sources=gpu_job().quality.sources,
            remarks=(Remark(code="file.unreadable", count=1, place=HOSTILE, fields={"error": HOSTILE}),),
        ),
    )
    return replace(found, cost=job_cost(found, example_cost.pricing(HOSTILE + "\u202e", "\u202e" + HOSTILE)))


@cache
def cpu_job() -> Report:
    """One node without a GPU; one rule passed, no finding."""
    node, count = "algo-1", 100
    end = START_US + 10 * MINUTE_US
    parts = (("used", 30.0), ("core-idle", 70.0))
    return report(
        "cpu",
        NodeFacts(name=node, gpus=0, cores=1, interval_s=1.0, first_us=START_US, last_us=end),
        end=end,
        verdict=Verdict(use=use("CPU", 1, 0.167, parts, 3), findings=(), not_evaluated=(), rules=1),
        utilization=(usage(node, "CPU", 30.0, n=600), usage(node, "I/O wait", 1.0, n=600)),
        columns=Columns(start_us=START_US, width_us=6_000_000, count=count),
        time_lines=(line(node, "cpu_utilization", "CPU", 1, count, lambda x: 30.0),),
        rules=(card("Dataloader", Status.PASSED, evaluated=1, headline="Enough loaders", section="rules"),),
        quality=Quality(sources=(SourceQuality(source="system samples", files=1, rows=1200),)),
    )


@cache
def single_sample() -> Report:
    """A job with a single snapshot: no duration, nothing to draw, None wherever it is allowed."""
    lacks = NotEvaluated(rule="A", status=Status.NOT_EVALUATED, reason=NO_STEPS)
    return report(
        "one",
        NodeFacts(name="n", gpus=1, cores=0, interval_s=None, first_us=START_US, last_us=START_US),
        job={"sources": ()},
        verdict=Verdict(use=None, findings=(), not_evaluated=(lacks,), rules=1),
        utilization=(usage("n", "GPU", 12.0, n=1),),
        columns=Columns(start_us=START_US, width_us=100_000, count=1),
        time_lines=(line("n", "gpu_utilization", "GPU", 1, 1, lambda x: 12.0),),
        rules=(card("A", Status.NOT_EVALUATED, reason=NO_STEPS),),
    )


@cache
def empty_job() -> Report:
    """A job with nothing but a name."""
    return report("nothing", job={"sources": ()})


@cache
def idle_job() -> Report:
    """GPUs that never worked."""
    base = gpu_job()
    start, end = base.job.start_us, base.job.end_us
    idle: dict[str, Any] = dict.fromkeys(
        ("mean", "min", "p5", "p25", "p50", "p75", "p95", "p99", "max", "lower", "upper", "above_90"), 0.0
    )
    return replace(
        base,
        verdict=Verdict(
            use=use(
                "GPU",
                8,
                8.0,
                (
                    ("used", 0.0),
                    ("gpu-never-used", 100.0),
                ),
                findings=("gpu-never-used",),
            ),
            findings=(
                replace(
                    LOW,
                    key="gpu-never-used",
                    title="8 of 8\u00a0GPUs never worked",
                    share=1.0,
                    gpu_s=8 * 3600.0,
                ),
            ),
            not_evaluated=(),
            rules=5,
        ),
        phases=phases("none", ("whole", "Whole job", start, end, 100.0)),
        utilization=(replace(usage("algo-1", "GPU", 0.0), max=0.0), usage("algo-1", "CPU", 30.0)),
        time_lines=(line("algo-1", "gpu_utilization", "GPU", 1, 600, lambda x: 0.0),),
        boxes=tuple(replace(box("algo-1", f"gpu{i}", 0.0), below_10=1.0, **idle) for i in range(8)),
        cost=UNSET,
    )


def _steady(value: float, _: float) -> float:
    return value


@cache
def many_nodes(nodes: int = 16, gpus: int = 8) -> Report:
    """More nodes than are drawn one by one; node-07 and the three after it differ from the others."""
    base = gpu_job()
    names = [f"node-{i:02}" for i in range(nodes)]
    level = {name: 70.0 + (0.1 * i) for i, name in enumerate(names)}
    level |= {"node-07": 20.0, "node-08": 30.0, "node-09": 40.0, "node-10": 95.0}
    return replace(
        base,
        job=replace(
            base.job,
            name="big",
            nodes=tuple(replace(base.job.nodes[0], name=name, gpus=gpus) for name in names),
        ),
        utilization=tuple(usage(name, "GPU", level[name]) for name in names),
        time_lines=tuple(
            line(name, "gpu_utilization", "GPU", gpus, 600, partial(_steady, level[name]))
            for name in names[7:11]
        ),
        nodes=example_nodes.ranked(
            level, dict.fromkeys(names[7:11], "mean GPU far from the median node"), START_US
        ),
        boxes=tuple(box(name, f"gpu{i}", level[name]) for name in names for i in range(gpus)),
    )


@cache
def captures() -> Report:
    """A job of nothing but traces of four ranks."""
    found, across = example_captures.ranks()
    return replace(empty_job(), captures=found, across_ranks=across)


ALL: dict[str, Callable[[], Report]] = {
    "gpu": gpu_job,
    "hostile": hostile_job,
    "cpu": cpu_job,
    "single": single_sample,
    "empty": empty_job,
    "idle": idle_job,
    "many": many_nodes,
    "captures": captures,
}
