"""``docs/performance.md``, made from the stored results alone."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.jobs import HOURS, JOBS
from benchmarks.logs import HOSTILE
from benchmarks.machine import in_words
from benchmarks.stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.recording import Recording
    from benchmarks.results import Facts, Results

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
#: CPU time over DuckDB's: at 1 h that of the first edition (commit 9925d31), which was 0.56 over 0.41 s in one run.
SAMPLES_CPU = {1: 1.4, 4: 1.2, 12: 1.2, 24: 1.2}
#: The job that bounds of memory and size are for.
LARGEST = "nodes-16"
HOW_TO_READ = """\
Medians of the runs. The ratios are to the row in *italics*, which has 1.00. CPU time is that of the process and of
all that it started. *Peak* is the largest sum of their resident memory, seen every 50 ms; pages that they share count
in each, and less than the measuring program itself takes cannot be measured. *Read* and *written* are what went through
the system's read and write calls, from the disk or from the cache, pipes too; files that are mapped into memory do
not show in it."""
#: What was tried and what would be needed, by the text of a goal; shown where it is missed.
NOTES = {
    "traces → `report.json`: trace JSON in a second of CPU": (
        "The whole process counts here: besides the traces it opens a file of samples for every minute, judges, and "
        "makes all analyses of the report, which together take a good third of the time. The traces themselves are "
        "decoded by msgspec with typed rows, block by block; most of the time there goes into taking each value out of "
        "its row. DuckDB, which only counts, is the row in italics."
    ),
    "largest job: wall time with one Dask worker over that with two": (
        "Both workers read from the one disk of this machine, and the job is about as large as its memory: two can "
        "take no less time than the row of `cat` below. Where that is more than half the time of one worker, the disk "
        "is what is measured; on a cluster the workers share a file system that serves several machines."
    ),
}


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A bound, and what was measured."""

    text: str
    bound: float
    unit: str = ""
    #: None where the run did not measure it.
    measured: float | None
    #: Or at least.
    at_most: bool = True

    @property
    def outcome(self) -> str:
        """In a word, and by how much where it is missed."""
        if self.measured is None:
            return "not measured"
        over = round(self.measured, _digits(self.measured)) / self.bound - 1
        over = over if self.at_most else -over
        return "met" if over <= 0 else f"missed by {100 * over:.1f}%"


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The power of the size that the cost grows with: the slope of least squares between logarithms."""
    return statistics.linear_regression([*map(math.log, sizes)], [*map(math.log, costs)]).slope


def growth(results: Results, stage: str, lengths: Sequence[int] = HOURS) -> float | None:
    """Exponent of a stage's CPU time over the lengths of the jobs, where all of them were measured."""
    costs = [results.median(f"hours-{hours}", stage, "cpu_s") for hours in lengths]
    known = [cost for cost in costs if cost]
    return exponent(lengths, known) if len(known) == len(lengths) else None


def goals(results: Results) -> Iterator[Goal]:
    """Every goal, in the order of the table."""
    for hours in HOURS:
        job = f"hours-{hours}"
        for column, words, bound in (("cpu_s", "CPU time", SAMPLES_CPU[hours]), ("wall_s", "wall time", 1.6)):
            yield Goal(
                text=f"samples → `report.json`, {hours} h: {words} over DuckDB's",
                bound=bound,
                measured=results.ratio(column, (job, "json"), (job, "duckdb")),
            )
    yield Goal(
        text=f"exponent of its CPU time over {HOURS[0]}–{HOURS[-1]} h",
        bound=1.05,
        measured=growth(results, "json"),
    )
    yield Goal(
        text=f"the same from {HOURS[-2]} to {HOURS[-1]} h alone, where what does not grow weighs least",
        bound=1.05,
        measured=growth(results, "json", HOURS[-2:]),
    )
    traces = next((facts.trace_bytes for facts in results.jobs if facts.job == "traces"), 0)
    cpu_s = results.median("traces", "json", "cpu_s")
    yield Goal(
        text="traces → `report.json`: trace JSON in a second of CPU",
        bound=100,
        unit=" MB",
        measured=traces / 1e6 / cpu_s if cpu_s else None,
        at_most=False,
    )
    yield Goal(
        text="all four files of the 30-minute job: wall time over papermill's and nbconvert's",
        bound=1.3,
        measured=results.ratio("wall_s", ("minutes", "all"), ("minutes", "notebook")),
    )
    yield Goal(
        text="all four files of the 30-minute job: wall time",
        bound=1.5,
        unit=" s",
        measured=results.median("minutes", "all", "wall_s"),
    )
    yield Goal(
        text="`make-report --help`, wall time",
        bound=0.06,
        unit=" s",
        measured=results.median("minutes", "help", "wall_s"),
    )
    log = {facts.job: facts.log_bytes for facts in results.jobs}.get("log", 0)
    cpu_s = results.median("log", "panels", "cpu_s")
    yield Goal(
        text="GPU log → panels: CPU time for 100 MB",
        bound=1.5,
        unit=" s",
        measured=cpu_s / log * 1e8 if log and cpu_s is not None else None,
    )
    peak = results.median("log", "panels", "peak_bytes")
    yield Goal(
        text="GPU log → panels: peak memory",
        bound=300,
        unit=" MB",
        measured=None if peak is None else peak / 1e6,
    )
    peaks = [run.peak_bytes for kind in HOSTILE for run in results.of("hostile", kind)]
    yield Goal(
        text="GPU logs that are made to hurt: peak memory",
        bound=300,
        unit=" MB",
        measured=max(peaks) / 1e6 if all(results.of("hostile", kind) for kind in HOSTILE) else None,
    )
    yield from _captures(results)
    stages = ("json", "all", "static")
    peaks = [run.peak_bytes for stage in stages for run in results.of(LARGEST, stage)]
    yield Goal(
        text="largest job: peak memory",
        bound=1000,
        unit=" MB",
        # A run that failed has no peak, and the other two do not speak for it.
        measured=max(peaks) / 1e6 if all(results.of(LARGEST, stage) for stage in stages) else None,
    )
    for stage, words, bound in (
        ("all", "`report.html`", 2.0),
        ("static", "`report.html` with `--static`", 0.5),
    ):
        sizes = [run.files["report.html"] for run in results.of(LARGEST, stage)]
        yield Goal(
            text=f"largest job: {words}",
            bound=bound,
            unit=" MB",
            measured=max(sizes) / 1e6 if sizes else None,
        )
    yield Goal(
        text="largest job: wall time with one Dask worker over that with two",
        bound=1.7,
        measured=results.ratio("wall_s", (LARGEST, "dask-1"), (LARGEST, "dask-2")),
        at_most=False,
    )


def _captures(results: Results) -> Iterator[Goal]:
    """Goals for PyTorch traces."""
    sizes = {facts.job: facts.trace_bytes for facts in results.jobs}
    for job, words in (("capture-200", "200 MB"), ("capture-2000", "2 GB")):
        cpu_s, peak = (results.median(job, "json", column) for column in ("cpu_s", "peak_bytes"))
        size = sizes.get(job)
        yield Goal(
            text=f"PyTorch trace of {words} → `report.json`: CPU time for 100 MB",
            bound=1.0,
            unit=" s",
            measured=cpu_s / size * 1e8 if size and cpu_s is not None else None,
        )
        yield Goal(
            text=f"PyTorch trace of {words}: peak memory",
            bound=300,
            unit=" MB",
            measured=None if peak is None else peak / 1e6,
        )
    for column, quantity, bound in (("cpu_s", "CPU time", 0.2), ("peak_bytes", "peak memory", 0.1)):
        yield Goal(
            text=f"PyTorch trace of 200 MB: {quantity} over HolisticTraceAnalysis'",
            bound=bound,
            measured=results.ratio(column, ("capture-200", "json"), ("capture-200", "hta")),
        )
    cpu_s, wall_s = (results.median("ranks-64", "json", column) for column in ("cpu_s", "wall_s"))
    yield Goal(
        text="PyTorch traces of 64 ranks: share of the cores that is in use",
        bound=0.8,
        measured=cpu_s / wall_s / int(results.session("ranks-64").machine["cores"])
        if cpu_s and wall_s
        else None,
        at_most=False,
    )
    for job, words in (("ranks-64", "64"), ("ranks-1024", "1,024")):
        peaks = [run.peak_bytes for run in results.of(job, "json")]
        yield Goal(
            text=f"PyTorch traces of {words} ranks: peak memory of all processes",
            bound=1000,
            unit=" MB",
            measured=max(peaks) / 1e6 if peaks else None,
        )
    pages = [run.files["report.html"] for run in results.of("ranks-1024", "all")]
    yield Goal(
        text="PyTorch traces of 1,024 ranks: `report.html`",
        bound=2.0,
        unit=" MB",
        measured=max(pages) / 1e6 if pages else None,
    )


def render(results: Results, recorded: Recording) -> str:
    """The document."""
    blocks = [
        "# Performance",
        "\n".join(_sessions(results)),
        "## The goals",
        *_goals(results),
        "## How the cost grows",
        _growth(results),
        "## The table",
        HOW_TO_READ,
        *(block for facts in results.jobs for block in _job(results, facts)),
        *_left_out(results),
        "## Recording",
        *recording(recorded),
        "## How to repeat it",
        _repeat(results),
    ]
    return "\n\n".join(blocks) + "\n"


def _sessions(results: Results) -> Iterator[str]:
    """When, where, and by which command the jobs were measured."""
    if len(results.sessions) == 1:
        (one,) = results.sessions
        yield (
            f"Made by `{one.command}`; no number here is from anywhere else. "
            f"Measured on {one.date}: {in_words(one.machine)}."
        )
        return
    yield "Not all jobs were measured at once; no number here is from anywhere else.\n"
    for one in results.sessions:
        titles = "; ".join(JOBS[job].title for job in one.jobs)
        yield f"* `{one.command}`, measured on {one.date}: {in_words(one.machine)}. Jobs: {titles}."


def _goals(results: Results) -> Iterator[str]:
    found = list(goals(results))
    yield _table(
        ("goal", "bound", "measured", ""),
        [
            (
                goal.text,
                f"{'≤' if goal.at_most else '≥'} {goal.bound:g}{goal.unit}",
                "–" if goal.measured is None else f"{goal.measured:.{_digits(goal.measured)}f}{goal.unit}",
                goal.outcome,
            )
            for goal in found
        ],
    )
    for goal in found:
        if goal.outcome.startswith("missed") and goal.text in NOTES:
            yield f"**{goal.text}.** {NOTES[goal.text]}"


def _digits(value: float) -> int:
    return 0 if value >= 100 else 2


def _growth(results: Results) -> str:
    fitted, last = (
        [
            f"{value:.2f} for {STAGES[stage].title}"
            for stage in ("json", "duckdb", "polars")
            if (value := growth(results, stage, hours)) is not None
        ]
        for hours in (HOURS, HOURS[-2:])
    )
    if not fitted:
        return f"Not fitted: not all jobs of {', '.join(map(str, HOURS))} h were measured."
    return (
        f"CPU time grows with the length of the job to the power of {'; '.join(fitted)}. Least squares between the "
        f"logarithms over {', '.join(map(str, HOURS))} h; 1 is in step with the data, and less tells of a part that "
        f"does not grow. From {HOURS[-2]} to {HOURS[-1]} h alone, where that part weighs least, the power is "
        f"{'; '.join(last)}."
    )


def _job(results: Results, facts: Facts) -> Iterator[str]:
    job = JOBS[facts.job]
    kinds = ((facts.samples, "samples", facts.sample_bytes), (facts.events, "events", facts.trace_bytes))
    held = [f"{count:,} {kind} in {_megabytes(size)} MB" for count, kind, size in kinds if count]
    held += [f"{_megabytes(facts.log_bytes)} MB of logs"] * bool(facts.log_bytes)
    yield f"### {job.title}"
    yield "; ".join((" and ".join(held), f"{facts.files:,} files.")).removeprefix("; ")
    rows = []
    for stage in job.stages:
        if runs := results.of(job.name, stage):
            title = STAGES[stage].title
            here, reference = (job.name, stage), (job.name, job.reference)
            rows.append(
                (
                    f"*{title}*" if stage == job.reference else title,
                    *(_seconds(results.ratio(column, here, reference)) for column in ("cpu_s", "wall_s")),
                    *(_seconds(results.median(*here, column)) for column in ("cpu_s", "wall_s")),
                    *(
                        _megabytes(results.median(*here, f"{kind}_bytes"))
                        for kind in ("peak", "read", "written")
                    ),
                    str(len(runs)),
                )
            )
    yield _table(
        ("process", "CPU ratio", "wall ratio", "CPU s", "wall s", "peak MB", "read MB", "written MB", "runs"),
        rows,
    )


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _megabytes(value: float | None) -> str:
    return "–" if value is None else f"{value / 1e6:,.{1 if value < 1e7 else 0}f}"


def _left_out(results: Results) -> Iterator[str]:
    if results.left_out:
        yield "Not measured:"
        yield "\n".join(
            f"* {JOBS[one.job].title}, {STAGES[one.stage].title}: {one.reason}" for one in results.left_out
        )


def recording(found: Recording) -> Iterator[str]:
    """What the recorder costs, and other monitors."""
    yield (
        f"Made by `{found.command}`. Measured on {found.date}: {in_words(found.machine)}. CPU and memory of "
        "record-job are those of its two processes."
    )
    yield _table(
        ("quantity", "limit", "measured", ""),
        [
            (
                one.text,
                f"≤ {one.limit:g}{one.unit}",
                "–" if one.measured is None else f"{one.measured:.{_digits(one.measured)}f}{one.unit}",
                f"not measured: {one.note}"
                if one.measured is None
                else "met"
                if one.measured <= one.limit
                else f"missed by {100 * (one.measured / one.limit - 1):.0f}%",
            )
            for one in found.quantities
        ],
    )
    yield (
        f"Monitors of the machine, {found.seconds:.0f} s of each after its start. A monitor that is imported by the "
        "training script shows with the memory of that Python."
    )
    yield _table(
        ("monitor", "interval, s", "CPU, % of a core", "memory, MB", "snapshots per minute", "values"),
        [
            (
                f"{one.title} {one.version}",
                f"{one.interval_s:g}",
                f"{one.cpu_percent:.2f}",
                f"{one.memory_mb:.0f}",
                f"{one.snapshots_per_minute:.0f}",
                str(len(one.values)),
            )
            for one in found.monitors
        ],
    )
    values = {one.title: one.values for one in found.monitors}
    yield "What each records:"
    yield "\n".join(f"* {title}: {', '.join(names)}" for title, names in values.items())
    if found.left_out:
        yield "Not measured:"
        yield "\n".join(f"* {line}" for line in found.left_out)


def _repeat(results: Results) -> str:
    disk = sum(facts.sample_bytes + facts.trace_bytes + facts.log_bytes for facts in results.jobs) / 1e9
    minutes = sum(run.wall_s for run in results.runs) / 60
    return f"""\
`make bench` makes the jobs with `sample_data/generate.py` in `build/bench`, where they are kept, runs every stage as
a process of its own, the kinds in turn, and writes this page and `benchmarks/results.json`, which holds every run.
The jobs of this page took {disk:.1f} GB, and its runs {minutes:.0f} minutes. `python -m benchmarks --quick` leaves
the large jobs out, `--only NAME` takes one; both print what this page would say, and with `--store` put their rows in
the place of older ones of the same jobs. `--help` names the jobs and what each takes."""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    line = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, line, *rows))
