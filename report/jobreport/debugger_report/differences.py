"""Differences from SageMaker Debugger: the one list of what its rules are known to get wrong.

Only what changes a number or its meaning. A card of a report on rule results shows the entries that concern its
number; ``docs/differences.md`` shows all of them.
"""

from __future__ import annotations

from msgspec import Struct


class Difference(Struct, frozen=True, kw_only=True):
    """One difference, for a reader who knows either number."""

    #: ``GMI-2``; stays for good, so that it can be cited. ``J-…`` is a choice of jobreport, no defect.
    id: str
    #: The rule, or ``all``.
    rule: str
    #: What SageMaker Debugger does, as a sentence.
    theirs: str
    #: What jobreport does.
    ours: str


def _of(rule: str, *rows: tuple[str, str, str]) -> tuple[Difference, ...]:
    return tuple(Difference(id=id_, rule=rule, theirs=theirs, ours=ours) for id_, theirs, ours in rows)


DIFFERENCES: tuple[Difference, ...] = (
    *_of(
        "all",
        (
            "C-1",
            "No count includes samples of the last, partial minute. A job within one minute has no result.",
            "All samples count.",
        ),
        ("C-2", "A sample on the boundary of two minutes counts twice.", "Windows share no sample."),
        ("C-3", "An event counts once in each minute that it touches.", "Each event counts once."),
        (
            "C-4",
            "Devices sampled microseconds apart belong to different snapshots.",
            "Samples are joined to snapshots first.",
        ),
        ("C-5", "Means are divided by the devices of all nodes.", "Means are divided by the node's devices."),
        (
            "C-6",
            "`Datapoints` is the length of the last series.",
            "`Datapoints` is that of the longest series; `DatapointsPerSeries` has all.",
        ),
        ("C-8", "After a million samples, the history is forgotten.", "There is no limit."),
        (
            "C-14",
            "At outliers and bottlenecks, the CPU and GPU operator shares (`ratio`) are swapped.",
            "Each share belongs to its own operators.",
        ),
        (
            "C-11",
            "The clock stands still inside the report, so times of last triggers and a late start are missed.",
            "All rules share one clock.",
        ),
        (
            "C-13",
            "One NaN makes every later quantile NaN, and the rule never triggers.",
            "NaN is left out and counted.",
        ),
        (
            "C-15",
            "An operator's time includes the operators that it calls, so the same time is listed several times.",
            "The sums are the same; `CPU_self_total` and `GPU_self_total` have the self time.",
        ),
        (
            "C-16",
            "A tensor whose name contains cpu, gpu, or Step counts as an operator or a step.",
            "Tensors of Horovod and SMDataParallel are recognized by their file.",
        ),
        ("C-17", "`phase_time` is always empty.", "`phase_time` has the microseconds of each mode."),
        (
            "C-18",
            "The rule treats GPU memory activity as memory in use.",
            "GPU memory activity is the share of time in which memory was read or written: in 14 jobs with 17 GPUs, it "
            "follows GPU utilization (correlation 0.91 to 1.00) and is 0 in all but 3 of 17,668 samples of idle GPUs. "
            "Its jumps are info. Counts and thresholds are the same.",
        ),
        (
            "J-1",
            "A minute without new samples is checked again on the old ones.",
            "Such a minute is not checked.",
        ),
    ),
    *_of(
        "LowGPUUtilization",
        (
            "LGU-1",
            "The counter adds up low and fluctuating utilization, over all GPUs and minutes.",
            "The sum is the same; `low` and `fluctuating` have their own counts.",
        ),
        ("LGU-2", "A p95 equal to its threshold is neither low nor fluctuating.", "It can be fluctuating."),
        ("LGU-3", "A GPU that was never used counts as low.", "Never-used GPUs are a finding of their own."),
        (
            "LGU-4",
            "Boxes end at the last trigger; `gpu_95` and `gpu_5` cover only its window.",
            "Boxes cover the whole job and the training loop.",
        ),
        (
            "LGU-5",
            "A window longer than the job so far is checked on fewer samples.",
            "The same; `window_used` has their number.",
        ),
    ),
    *_of(
        "CPUBottleneck",
        (
            "CPU-1",
            "Times with only memory or network samples count as snapshots.",
            "Only snapshots with a GPU sample count.",
        ),
        (
            "CPU-2",
            "Snapshots of all nodes count together, so patience ends earlier with more nodes.",
            "Each node is checked on its own snapshots.",
        ),
        (
            "CPU-4",
            "Events at bottlenecks count with their whole duration, once per bottleneck.",
            "Only the time at bottlenecks counts.",
        ),
        ("CPU-6", "Without a GPU, the rule counts snapshots and passes.", "Not evaluated."),
        (
            "CPU-7",
            "Start-up counts, although GPUs are idle then.",
            "The training loop has its own count, too.",
        ),
        ("CPU-3", "Simultaneous bottlenecks of two nodes share an entry.", "Each entry has its `node`."),
        (
            "CPU-5",
            "A snapshot on the boundary of two minutes is split.",
            "Snapshots are made before minutes.",
        ),
    ),
    *_of(
        "IOBottleneck",
        ("IO-2", "`CPUs` are cores that wait for I/O. CPU-1 to CPU-7 apply, too.", "As for CPUBottleneck."),
    ),
    *_of(
        "BatchSize",
        (
            "BS-1",
            "Whiskers of GPU memory activity are those of GPU utilization.",
            "Whiskers are those of GPU memory activity.",
        ),
        ("BS-2", "The time of the last trigger is always the start of the job.", "The time is correct."),
        (
            "BS-6",
            "A GPU that was never used counts as a small batch.",
            "Never-used GPUs are a finding of their own.",
        ),
        (
            "BS-4",
            "A GPU without samples of GPU memory activity stops the rule.",
            "The GPU is checked by the other two metrics.",
        ),
        ("BS-5", "A core without a sample counts as 0%.", "The mean covers the sampled cores."),
    ),
    *_of(
        "GPUMemoryIncrease",
        (
            "GMI-1",
            "Windows overlap: with 10 samples, a jump must exceed about 25 points to pass a threshold of 5, and "
            "noise often does.",
            "A window is compared with the window before it.",
        ),
        (
            "GMI-2",
            "Every sample of a jump counts.",
            "`RuleTriggered` counts jumps, `Violations` their samples.",
        ),
        ("GMI-5", "The time of the last trigger is the start of its minute.", "The time is the sample's."),
        ("GMI-3", "Only the last jump of a GPU is kept.", "`events` has up to 100."),
    ),
    *_of(
        "LoadBalancing",
        (
            "LB-1",
            "The rule never compares two GPUs, so it cannot trigger.",
            "All pairs of a node are compared.",
        ),
        ("LB-2", "Histograms end at 98%: higher samples are missing.", "Histograms have 50 bins, to 100%."),
        (
            "LB-4",
            "A GPU with more samples has more weight in a distance.",
            "Shares are compared, not counts.",
        ),
        (
            "LB-6",
            "Idle time before and after training makes GPUs look similar.",
            "Only samples of the training loop are compared, if steps are known.",
        ),
        (
            "LB-5",
            "GPUs of different nodes are matched by their position in a list.",
            "`node_distances` compares the mean distributions of up to 1,000 nodes.",
        ),
        (
            "J-2",
            "Any number of samples makes a histogram.",
            "A GPU needs 450 samples in the training loop, or `patience`: with fewer, similar GPUs look different.",
        ),
    ),
    *_of(
        "StepOutlier",
        ("SO-1", "`Violations` adds up all outliers so far, every minute.", "Each outlier counts once."),
        ("SO-2", "Only the last mode of a rank is kept, often evaluation.", "All modes are kept."),
        (
            "SO-3",
            "A step counts in every minute that it touches, which changes mean, deviation, and outliers.",
            "Each step counts once.",
        ),
        (
            "SO-5",
            "For events at outliers, training and evaluation steps with the same number are confused.",
            "Steps of different modes are separate.",
        ),
        (
            "SO-6",
            "Events at outliers count on all ranks, with their whole duration.",
            "Only the outlier's own rank and time count.",
        ),
        (
            "SO-8",
            "One very long step raises mean and deviation so far that no other step is an outlier.",
            "The threshold is the same; median and median deviation are added.",
        ),
        ("SO-4", "`mode` adds events to the steps.", "`mode` selects the steps of that mode."),
        ("SO-7", "If all steps take equally long, the histogram starts below 0.", "It has one narrow bin."),
        (
            "SO-9",
            "The first step, which compiles, is an outlier like any other.",
            "The same; `first_step_s` has its duration.",
        ),
    ),
    *_of(
        "Dataloader",
        (
            "DL-1",
            "Processes that begin an event in a second are counted, mostly the training process alone.",
            "Active loader processes are counted.",
        ),
        (
            "DL-2",
            "Batch fetches and lifetimes of loader processes are mixed.",
            "Batch fetches and lifetimes are separate.",
        ),
        (
            "DL-3",
            "Cores with equal names on several nodes count once, processes count on all nodes.",
            "Each node is checked by itself.",
        ),
        ("DL-4", "Settings are those of the last loader.", "All loaders are listed."),
        (
            "DL-5",
            "`prefetch` is never set for TensorFlow.",
            "It is set if TensorFlow's data events are recorded.",
        ),
        (
            "DL-6",
            "The number of loaders is a median, cut to a whole number.",
            "The same; `dataloaders_mean` is added.",
        ),
        (
            "DL-7",
            "With fewer than 11 seconds of data loading, the rule passes.",
            "Not evaluated, with the number of seconds.",
        ),
        (
            "DL-8",
            "TensorFlow's data pipeline is ignored.",
            "Its threads are counted in the same way, marked `experimental`.",
        ),
    ),
    *_of(
        "MaxInitializationTime",
        (
            "MIT-1",
            "The rule cannot trigger: its clock stands still inside the report.",
            "The start of the first step is compared.",
        ),
        (
            "MIT-3",
            "First and last step are the first and last delivered, not in time.",
            "They are the earliest and the latest of all ranks.",
        ),
        ("MIT-4", "Training ends at the start of the last step.", "Training ends at its end."),
        ("MIT-6", "A step counts once per minute that it touches.", "Each step counts once."),
        ("MIT-2", "A job without recorded steps passes.", "Not evaluated."),
        ("MIT-5", "Time runs from the full minute before the job.", "Time runs from the first record."),
    ),
    *_of(
        "OverallSystemUsage",
        ("OSU-1", "There is neither p90 nor mean.", "Both are added, with the number of snapshots."),
        (
            "OSU-2",
            "Network is the sum of bytes received and sent per second, labeled bytes.",
            "The sum is the same; both parts are added.",
        ),
        (
            "OSU-3",
            "The mean over a node's devices hides a single busy or idle device.",
            "Each GPU has its own row.",
        ),
        (
            "OSU-5",
            "All figures include start-up and wind-down.",
            "The same; `TrainingLoop` has those of the training loop.",
        ),
        (
            "OSU-6",
            "GPU memory activity is divided by the GPUs with samples of GPU utilization.",
            "It is divided by the GPUs with samples of it.",
        ),
    ),
    *_of(
        "OverallFrameworkMetrics",
        (
            "OFM-1",
            "With at most one GPU, time outside steps (`others`) is about half of the true value.",
            "`others` is the time that no step of the rank covers.",
        ),
        (
            "OFM-2",
            "With several ranks, `others` is too small, sometimes negative.",
            "Each rank is computed by itself, then summed.",
        ),
        (
            "OFM-5",
            "Operators are those of the few profiled steps.",
            "The same; the profiled steps are shown next to them.",
        ),
        (
            "OFM-6",
            "The lifetime of loader processes counts as work and hides the rest.",
            "Lifetimes are separate.",
        ),
        (
            "OFM-3",
            "Time outside steps is divided by the number of GPU lanes, which depends on what was profiled.",
            "GPU lanes have no effect.",
        ),
        ("OFM-7", "`Datapoints` is always 0.", "`Datapoints` is the number of events."),
    ),
)


def notes(*ids: str) -> tuple[str, ...]:
    """What SageMaker Debugger does, a sentence per id, for a card."""
    by_id = {one.id: one for one in DIFFERENCES}
    return tuple(by_id[id_].theirs for id_ in ids)


def page() -> str:
    """All differences as Markdown, one row each."""
    blocks = [
        "# Differences from SageMaker Debugger",
        "Generated by `make docs` from `jobreport/debugger_report/differences.py`. Only what changes a number or its "
        "meaning. Thresholds, counters, and the keys of the JSON are those of SageMaker Debugger; extra keys are "
        "jobreport's. A report from SageMaker Debugger's rule results alone shows its numbers, with the sentences "
        "that concern them.",
    ]
    for rule in dict.fromkeys(one.rule for one in DIFFERENCES):
        rows = [f"| {one.id} | {one.theirs} | {one.ours} |" for one in DIFFERENCES if one.rule == rule]
        head = "Every rule" if rule == "all" else rule
        blocks.append(
            "\n".join([f"## {head}\n", "| | SageMaker Debugger | jobreport |", "|---|---|---|", *rows])
        )
    return "\n\n".join(blocks) + "\n"
