"""Where our numbers differ from the vendor's: the one list of what its rules are known to get wrong.

Only what changes a number or its meaning. The page prints the entries that matter for a number of the
vendor beside it; ``docs/differences.md`` holds them all.
"""

from __future__ import annotations

from msgspec import Struct


class Difference(Struct, frozen=True, kw_only=True):
    """One difference, for a reader who knows either number."""

    #: ``GMI-2``: kept for good, so that it can be referred to. ``J-…`` is a choice of ours, no defect of theirs.
    id: str
    #: The rule, or ``all``.
    rule: str
    #: What the vendor's number does, as a sentence.
    theirs: str
    #: What ours does.
    ours: str


def _of(rule: str, *rows: tuple[str, str, str]) -> tuple[Difference, ...]:
    return tuple(Difference(id=id_, rule=rule, theirs=theirs, ours=ours) for id_, theirs, ours in rows)


DIFFERENCES: tuple[Difference, ...] = (
    *_of(
        "all",
        (
            "C-1",
            "Stops at the start of the last minute: its samples are not in any count. A job within one minute has no result.",
            "All samples count.",
        ),
        (
            "C-2",
            "A sample exactly on the boundary of two minutes counts twice.",
            "Windows share no sample.",
        ),
        (
            "C-3",
            "An event that lasts over several minutes counts once in each, so long steps are overstated.",
            "Each event counts once.",
        ),
        (
            "C-4",
            "Devices sampled microseconds apart are not the same moment, so means over them are split.",
            "Samples are joined to snapshots first.",
        ),
        (
            "C-5",
            "Means are divided by the devices of all nodes together.",
            "Each node by its own devices.",
        ),
        (
            "C-6",
            "`Datapoints` is the length of whichever series came last.",
            "The longest series, and `DatapointsPerSeries` for each.",
        ),
        (
            "C-8",
            "Past a million samples the history is forgotten.",
            "There is no limit.",
        ),
        (
            "C-14",
            "At the moments of outliers and bottlenecks, the shares of CPU and GPU operators (`ratio`) are exchanged.",
            "Each share stands with its own operators.",
        ),
        (
            "C-11",
            "Its clock stands still inside the report, so that times of last triggers and a late start are not seen.",
            "One clock for all rules.",
        ),
        (
            "C-13",
            "One value that is no number spoils every quantile after it, and the rule stays silent.",
            "Such samples are left out and counted.",
        ),
        (
            "C-15",
            "An operator's time includes the operators it calls, so the same time is listed several times.",
            "These sums are kept; `CPU_self_total` and `GPU_self_total` count each moment of a thread once.",
        ),
        (
            "C-16",
            "A tensor whose name holds cpu, gpu or Step is taken for an operator or a step.",
            "What comes from Horovod or SMDataParallel is told by its file.",
        ),
        ("C-17", "`phase_time` is always empty.", "It holds the microseconds of each phase of steps."),
        (
            "C-18",
            "GPU memory utilization is taken for memory in use: advice on room for larger batches and on running out "
            "of memory rests on it. In 14 real jobs with 17 GPUs it follows GPU use (correlation 0.91 to 1.00) and is "
            "0 in all but 3 of 17,668 samples of idle GPUs; memory that a framework holds would stay in use.",
            "It is told as the share of time in which memory was read or written, and its rises for information. "
            "Counts and thresholds are the same.",
        ),
        (
            "J-1",
            "A minute without new samples is judged again on the old ones.",
            "It is not judged: what was not measured is no violation.",
        ),
    ),
    *_of(
        "LowGPUUtilization",
        (
            "LGU-1",
            "Counts every minute and GPU, and low and fluctuating use together.",
            "The sum is kept; `low` and `fluctuating` are counted apart.",
        ),
        ("LGU-2", "A p95 exactly at its limit is neither low nor fluctuating.", "It can be fluctuating."),
        ("LGU-3", "A GPU that never worked counts as a little used one.", "It is told apart."),
        (
            "LGU-4",
            "Boxes cover the time up to the last trigger; `gpu_95` and `gpu_5` only its last window.",
            "Boxes cover the whole job and the training loop.",
        ),
        (
            "LGU-5",
            "A window that is longer than the job so far is judged on fewer samples, unsaid.",
            "The same; `window_used` says how many.",
        ),
    ),
    *_of(
        "CPUBottleneck",
        (
            "CPU-1",
            "Moments at which only memory or network was sampled count as snapshots.",
            "Only snapshots with a GPU sample count.",
        ),
        (
            "CPU-2",
            "Snapshots of all nodes are pooled, so patience ends sooner the more nodes there are.",
            "Each node is judged by its own snapshots.",
        ),
        (
            "CPU-4",
            "What ran at a bottleneck is summed in whole durations, once for each bottleneck it touches.",
            "Only the time at bottlenecks counts.",
        ),
        (
            "CPU-6",
            "Without any GPU it counts snapshots and finds none amiss, as if all were well.",
            "Not evaluated.",
        ),
        (
            "CPU-7",
            "The start of the job counts too, when GPUs idle by nature.",
            "The training loop is counted besides.",
        ),
        (
            "CPU-3",
            "Bottlenecks of two nodes at one time share an entry.",
            "Each has its own, with its `node`.",
        ),
        (
            "CPU-5",
            "A snapshot on the boundary of two minutes is taken apart.",
            "Snapshots are made before minutes.",
        ),
    ),
    *_of(
        "IOBottleneck",
        (
            "IO-2",
            "`CPUs` are cores that wait for storage. What CPU-1 to CPU-7 say holds here too.",
            "The same, as there.",
        ),
    ),
    *_of(
        "BatchSize",
        (
            "BS-1",
            "Whiskers of GPU memory utilization are computed from GPU utilization.",
            "They are computed from GPU memory utilization.",
        ),
        ("BS-2", "The time of the last trigger is always the start of the job.", "It is the true time."),
        ("BS-6", "A GPU that never worked is taken for a batch too small.", "It is told apart."),
        (
            "BS-4",
            "A GPU without samples of GPU memory utilization stops the rule.",
            "It is judged by the other two.",
        ),
        ("BS-5", "A core without a sample counts as 0%.", "The mean is of the cores that were sampled."),
    ),
    *_of(
        "GPUMemoryIncrease",
        (
            "GMI-1",
            "Compares overlapping windows: with the default of 10 samples a jump must exceed about 25 points "
            "to pass a limit of 5, and noise passes it often.",
            "Compares a window with the one before it.",
        ),
        (
            "GMI-2",
            "Counts every sample of one increase.",
            "`RuleTriggered` counts increases, `Violations` their samples.",
        ),
        (
            "GMI-5",
            "The time of the last trigger is the minute's start.",
            "It is the time of the sample.",
        ),
        ("GMI-3", "Only the last increase of a GPU is told.", "`events` lists up to 100."),
    ),
    *_of(
        "LoadBalancing",
        ("LB-1", "Never compares two GPUs, so it cannot trigger.", "Compares all pairs of a node."),
        (
            "LB-2",
            "Histograms end at 98%: samples above it are missing.",
            "They have 50 bins, to 100%.",
        ),
        (
            "LB-4",
            "The GPU with more samples weighs more in a distance.",
            "Shares are compared, not counts.",
        ),
        (
            "LB-6",
            "Idle time before and after training makes all GPUs look alike.",
            "Samples of the training loop are compared where steps are known.",
        ),
        (
            "LB-5",
            "GPUs of different nodes are meant to be compared by their place in a list.",
            "`node_distances` compares the nodes' mean distributions, of 1,000 nodes at most.",
        ),
        (
            "J-2",
            "Any number of samples makes a histogram.",
            "The training loop needs 450 samples of a GPU, or as many as `patience`: alike GPUs look unlike with fewer.",
        ),
    ),
    *_of(
        "StepOutlier",
        (
            "SO-1",
            "`Violations` adds up all outliers so far again every minute.",
            "Each outlier counts once.",
        ),
        (
            "SO-2",
            "Of a worker's phases only the last is kept, often evaluation.",
            "All phases are kept.",
        ),
        (
            "SO-3",
            "Long steps are counted in every minute they touch, which bends mean, deviation and outliers (C-3).",
            "Each step counts once.",
        ),
        (
            "SO-5",
            "Steps of training and evaluation with the same number are confused in what ran at outliers.",
            "Phases are told apart.",
        ),
        (
            "SO-6",
            "What ran at outliers is summed over all workers in whole durations.",
            "Only the outlier's own worker, only the time inside.",
        ),
        (
            "SO-8",
            "One very long step raises mean and deviation so far that no other is an outlier.",
            "The limit is kept; median and its deviation are given besides.",
        ),
        (
            "SO-4",
            "`mode` adds events to the steps and leaves none out.",
            "It leaves only the steps of that phase.",
        ),
        (
            "SO-7",
            "Steps of one and the same duration get a histogram that reaches below 0.",
            "One narrow bin around it.",
        ),
        (
            "SO-9",
            "The first step, which compiles, is an outlier like any other.",
            "The same; `first_step_s` tells it apart.",
        ),
    ),
    *_of(
        "Dataloader",
        (
            "DL-1",
            "Counts the processes that begin an event in a second, mostly the training process alone.",
            "Counts the loading processes at work.",
        ),
        (
            "DL-2",
            "Mixes the time to fetch a batch with the life time of the loading processes.",
            "They are told apart.",
        ),
        (
            "DL-3",
            "Cores are the different names of cores on all nodes, so equal names count once; processes are summed over nodes.",
            "Each node is judged by itself.",
        ),
        ("DL-4", "Settings are those of the last loader.", "All loaders are listed."),
        (
            "DL-5",
            "`prefetch` is never told for TensorFlow.",
            "It is, where TensorFlow's data events are there.",
        ),
        (
            "DL-6",
            "The number of loaders is a median cut to a whole number.",
            "The same; `dataloaders_mean` is given besides.",
        ),
        (
            "DL-7",
            "With fewer than eleven seconds of loading it stays silent, as if all were well.",
            "Not evaluated, with the number of seconds.",
        ),
        (
            "DL-8",
            "TensorFlow's data pipeline is not looked at.",
            "Its threads are counted in the same way, marked `experimental`.",
        ),
    ),
    *_of(
        "MaxInitializationTime",
        (
            "MIT-1",
            "Cannot trigger: inside the vendor's report its clock stands still.",
            "Judged by the time of the first step.",
        ),
        (
            "MIT-3",
            "First and last step are the first and last delivered, not in time.",
            "The earliest and the latest of all workers.",
        ),
        (
            "MIT-4",
            "The end of training is the start of the last step.",
            "It is its end.",
        ),
        ("MIT-6", "Steps are counted once for each minute they touch.", "Once."),
        ("MIT-2", "A job without recorded steps looks like one that started in time.", "Not evaluated."),
        ("MIT-5", "Time runs from the full minute before the job.", "It runs from the first record."),
    ),
    *_of(
        "OverallSystemUsage",
        ("OSU-1", "There is neither p90 nor mean.", "There are both, with the number of snapshots."),
        (
            "OSU-2",
            "Network is bytes per second, receive and transmit added, and called bytes.",
            "The sum is kept; both are given besides.",
        ),
        (
            "OSU-3",
            "The mean over a node's devices hides a single busy or idle one.",
            "Each GPU has its own row.",
        ),
        (
            "OSU-5",
            "Start and end of the job are in all figures.",
            "The same; `TrainingLoop` gives those of the loop.",
        ),
        (
            "OSU-6",
            "GPU memory utilization is divided by the GPUs that have samples of GPU utilization.",
            "By those that have samples of it.",
        ),
    ),
    *_of(
        "OverallFrameworkMetrics",
        (
            "OFM-1",
            "Time outside steps (`others`) is about half of the true value with one GPU or none.",
            "The time that no step of the worker covers.",
        ),
        (
            "OFM-2",
            "With several workers `others` is too small, at times negative.",
            "Each worker by itself, then summed.",
        ),
        (
            "OFM-5",
            "Operators are those of the few profiled steps, not of the whole training.",
            "What was profiled is said beside them.",
        ),
        (
            "OFM-6",
            "The life time of loading processes counts as work and crowds out the rest.",
            "It is kept apart.",
        ),
        (
            "OFM-3",
            "Time outside steps is divided by the number of GPU lanes, which depends on what was profiled.",
            "GPU lanes play no part.",
        ),
        ("OFM-7", "`Datapoints` is always 0.", "It is the number of events."),
    ),
)


def notes(*ids: str) -> tuple[str, ...]:
    """What the vendor's numbers do, for the page: "LGU-4: Boxes cover …"."""
    by_id = {one.id: one for one in DIFFERENCES}
    return tuple(f"{id_}: {by_id[id_].theirs}" for id_ in ids)


def page() -> str:
    """All differences as Markdown, a line each."""
    blocks = [
        "# Where our numbers differ from the vendor's",
        "Made by `make docs` from `jobreport/debugger_report/differences.py`. Only what changes a number or its meaning. "
        "Thresholds, counters and the keys of the JSON are the vendor's; extra keys are ours. "
        "Where only the vendor's rule results are there, the page shows these numbers with the lines "
        "that concern them.",
    ]
    for rule in dict.fromkeys(one.rule for one in DIFFERENCES):
        rows = [f"| {one.id} | {one.theirs} | {one.ours} |" for one in DIFFERENCES if one.rule == rule]
        head = "Every rule" if rule == "all" else rule
        blocks.append("\n".join([f"## {head}\n", "| | the vendor's | ours |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"
