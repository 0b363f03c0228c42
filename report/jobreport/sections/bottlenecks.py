"""When GPUs idled while cores could not go on."""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.bottlenecks import (
    Band,
    Frame,
    course_drawing,
    course_plots,
    parted_drawing,
    parted_plot,
)
from jobreport.figures.embed import document_json
from jobreport.figures.time_line import boundaries
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.model import Status
from jobrules.overall_framework_metrics import STEP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bokeh.models import Plot

    from jobreport.document import Report, RuleCard
    from jobreport.figures.chart import Drawing
    from jobrules.analyses.bottlenecks import (
        BottleneckRun,
        Bottlenecks,
        BottlenecksOverTime,
        NodeCores,
        Ran,
        StepSpan,
    )

#: Larger tables are folded away.
MOST_OPEN_NODES = 4
MOST_OPEN_CORES = 32
#: Nodes that are told with the reason why they are not judged.
MOST_REASONS = 4
#: Characters of the reason why a rule gave no answer.
MOST_REASON = 300
#: Two shares of time that differ by less are alike, in points.
ALIKE_POINTS = 5.0
#: Percent of the snapshots below which bottlenecks are not drawn over time, unless they triggered the rule.
FEW = 1.0
#: Rows of bars that each height in ``drawing.css`` is made for.
_HEIGHTS = (1, 2, 4, 8, 16)


class Words(Struct, frozen=True, kw_only=True):
    """How the bottlenecks of one kind are told; ``{}`` is the limit of a core."""

    rule: str
    title: str
    #: What is sampled of a core, and what a core did over its limit.
    metric: str
    beside: str
    core: str
    cores: str


_WORDS = {
    "cpu": Words(
        rule="CPUBottleneck",
        title="CPU bottlenecks",
        metric="CPU use",
        beside="a core of the same node was used more than {}",
        core="a core above {}",
        cores="used more than {}",
    ),
    "io": Words(
        rule="IOBottleneck",
        title="I/O bottlenecks",
        metric="I/O wait",
        beside="a core of the same node waited for input or output more than {} of its time",
        core="a core that waited more than {}",
        cores="waiting more than {} of their time",
    ),
}


class Part(Struct, frozen=True, kw_only=True):
    """One part of all snapshots, as printed; its place in the bar in percent."""

    style: str
    label: str
    count: int
    percent: float
    at: float


class SampleRow(Struct, frozen=True, kw_only=True):
    """The GPU samples of a node, as printed: all, then count and percent of each part."""

    node: str
    basis: str
    samples: int
    parts: tuple[tuple[int, float], ...]


class Samples(Struct, frozen=True, kw_only=True):
    """The figure of GPU samples by node."""

    caption: str
    bands: tuple[Band, ...]
    rows: tuple[SampleRow, ...]
    #: Whether some nodes are of the whole job and some of the training loop.
    mixed: bool
    drawing: Drawing
    #: Class that makes room for the rows.
    height: str
    folded: bool
    #: What they are samples of: ``in the training loop``.
    basis: str


class Strip(Struct, frozen=True, kw_only=True):
    """A course, as drawn."""

    id: str
    title: str
    label: str
    drawing: Drawing


class Strips(Struct, frozen=True, kw_only=True):
    """The figure of courses and the table of its data: a row a stretch, a column a course."""

    caption: str
    #: What the marks mean.
    read: str
    strips: tuple[Strip, ...]
    stretch: str
    rows: tuple[tuple[int, tuple[str, ...]], ...]


class RunRow(Struct, frozen=True, kw_only=True):
    """A run, as printed."""

    node: str
    start_us: int
    seconds: float
    snapshots: int
    most_cores: int
    steps: str


class CoreTable(Struct, frozen=True, kw_only=True):
    """The cores of a node: those with the same share in one row, and how many are left out."""

    node: str
    rows: tuple[tuple[str, float], ...]
    note: str


@error_boundary
def cpu_bottlenecks(report: Report) -> Fragment:
    """Moments in which a GPU idled while a core was full."""
    return _bottlenecks(report, "cpu")


@error_boundary
def io_bottlenecks(report: Report) -> Fragment:
    """Moments in which a GPU idled while a core waited for storage."""
    return _bottlenecks(report, "io")


def _bottlenecks(report: Report, key: str) -> Fragment:
    name = f"{key}-bottlenecks"
    words = _WORDS[key]
    found = next((one for one in report.bottlenecks if one.key == key), None)
    if found is None:
        html = render(
            "bottlenecks", heading=heading(name, report), found=None, why_none=_why_none(report, words)
        )
        return Fragment(name=name, html=html)
    figures: dict[str, Plot] = {}
    cores = [_core_table(one) for one in found.cores]
    card = next((one for one in report.rules if one.name == words.rule), None)
    answered = card is not None and card.status in (Status.TRIGGERED, Status.PASSED)
    several = len(found.nodes) > 1
    with_day = formats.spans_days(report.job.start_us, report.job.end_us)
    drawn = found.bottlenecks > 0 and (
        found.split.parts[-1].percent >= FEW or (card is not None and card.status is Status.TRIGGERED)
    )
    html = render(
        "bottlenecks",
        heading=heading(name, report),
        key=name,
        found=found,
        title=words.title,
        over=words.cores.format(_limit(found.core_above)),
        lead=_lead(found, words, card, report),
        notes=_notes(found, words, card),
        split_caption=_split_caption(found, words),
        split=_split(found, words),
        samples=_samples(found, words, name, figures, drawn=several) if found.bottlenecks else None,
        strips=_strips(found, report, name, figures, limit=found.limit if answered else None)
        if drawn
        else None,
        runs=[_run(run) for run in found.runs],
        run_caption=_run_caption(found.runs, several=several, with_day=with_day),
        several=several,
        with_day=with_day,
        cores=cores,
        core_caption=_core_caption(
            found.cores, words.cores.format(_limit(found.core_above)), more=found.more_cores
        ),
        folded=sum(len(table.rows) for table in cores) > MOST_OPEN_CORES,
        ran=[(_class(one.name), one) for one in found.ran],
        ran_caption=_ran_caption(found.ran),
        figures=document_json(name, figures) if figures else "",
        why_none="",
    )
    return Fragment(name=name, html=html)


def _why_none(report: Report, words: Words) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "The vendor's results hold no samples; what its rule counted stands on the rule's card."
    nodes = report.job.nodes
    if not any(node.gpus for node in nodes):
        return "No GPU was sampled."
    if not any(
        row.label == ("CPU" if words.metric == "CPU use" else words.metric) for row in report.utilization
    ):
        return f"The {words.metric} of the cores was not sampled."
    return f"No node has samples of both GPU and {words.metric}."


def _limit(value: float) -> str:
    return f"{formats.plain_number(value)}%"


def _lead(found: Bottlenecks, words: Words, card: RuleCard | None, report: Report) -> str:
    """Whether the rule answered, how many there are, whether that is too many, and what the verdict makes of it."""
    beside = words.beside.format(_limit(found.core_above))
    low = f"below {_limit(found.gpu_below)}"
    told = []
    if card is None:
        told.append(f"{words.rule} was not selected; these are its default limits.")
    elif card.status in (Status.NOT_EVALUATED, Status.ERROR):
        told.append(f"{words.rule} gave no answer: {str(card.reason)[:MOST_REASON]}.")
    snapshots = formats.count(found.snapshots, "snapshot")
    if not found.bottlenecks:
        told.append(f"No snapshot is a bottleneck: in none of {snapshots} a GPU was {low} while {beside}.")
        return " ".join(told)
    percent = found.split.parts[-1].percent
    told.append(
        f"{formats.number(found.bottlenecks, 0)} of {snapshots} ({formats.percent(percent)}) "
        f"{'is a bottleneck' if found.bottlenecks == 1 else 'are bottlenecks'}: a GPU was {low} while {beside}."
    )
    side = "above" if percent > found.limit else "below" if percent < found.limit else "at"
    triggered = card is not None and card.status is Status.TRIGGERED
    if triggered or (card is not None and card.status is Status.PASSED and side != "above"):
        told.append(f"That is {side} the limit of {_limit(found.limit)}.")
    finding = next((one for one in report.verdict.findings if one.key == f"{found.key}-bottleneck"), None)
    hours, part = formats.amount(finding, report.verdict.use) if finding else ("", "")
    if hours and part:
        told.append(f"The verdict counts {hours}, {part}: it takes each GPU by itself, and no time twice.")
    if triggered:
        told.append("That the cores held the GPUs up is inferred from simultaneous samples.")
    return " ".join(told)


def _notes(found: Bottlenecks, words: Words, card: RuleCard | None) -> list[str]:
    """What is not judged and why, and where the rule's answer is not the plain comparison above."""
    notes = _of_rule(found, words, card) if card else []
    reasons = [f"{formats.escape_name(one.node, 40)} ({one.reason})" for one in found.nodes if one.reason]
    if reasons and len(found.nodes) > 1:
        more = len(reasons) - MOST_REASONS
        told = f"{', '.join(reasons[:MOST_REASONS])}{f' and {more} more' if more > 0 else ''}"
        notes.append(f"Counted here but not judged by the rule: {told}.")
    if found.without_cores:
        names = formats.join_names([formats.escape_name(name, 40) for name in found.without_cores])
        notes.append(f"Not looked at, because the {words.metric} of its cores was not sampled: {names}.")
    if found.bottlenecks and not found.ran:
        notes.append("What ran during the bottlenecks is not known: no events were recorded around them.")
    return notes


def _of_rule(found: Bottlenecks, words: Words, card: RuleCard) -> list[str]:
    if card.status in (Status.NOT_EVALUATED, Status.ERROR):
        return []
    percent = found.split.parts[-1].percent
    if card.status is Status.TRIGGERED and percent <= found.limit:
        looks = f"{formats.number(card.violating, 0)} of {formats.count(card.evaluated, 'look')}"
        return [f"{words.rule} triggered: it looks once a minute, and the share so far was above in {looks}."]
    if card.measure and card.measure.value != percent:
        judged = formats.percent(card.measure.value)
        return [f"Of the nodes that {words.rule} judges, {judged} of the snapshots are bottlenecks."]
    return []


def _split_caption(found: Bottlenecks, words: Words) -> str:
    low = _limit(found.gpu_below)
    if found.bottlenecks:
        caused = formats.percent(found.split.of_low_percent)
        return f"{caused} of the snapshots with a GPU below {low} are bottlenecks"
    snapshots = formats.count(found.snapshots, "snapshot")
    if not found.low:
        return f"A GPU was below {low} in none of {snapshots}"
    core = words.core.format(_limit(found.core_above))
    times = formats.number(found.low, 0)
    return f"A GPU was below {low} in {times} of {snapshots}, but in none was that seen beside {core}"


def _split(found: Bottlenecks, words: Words) -> list[Part]:
    """All snapshots in parts that add up."""
    low, core = _limit(found.gpu_below), words.core.format(_limit(found.core_above))
    kinds = {
        "fine": ("u", f"No GPU below {low}"),
        "free": ("l3", f"A GPU below {low}, not beside {core}"),
        "unknown": ("x", f"A GPU below {low}, no core sampled"),
        "bottleneck": ("l", f"A GPU below {low}, beside {core}: bottleneck"),
    }
    parts = [part for part in found.split.parts if part.count or part.key != "unknown"]
    places = accumulate((part.percent for part in parts), initial=0.0)
    return [
        Part(style=style, label=label, count=part.count, percent=part.percent, at=at)
        for part, at in zip(parts, places, strict=False)
        for style, label in [kinds[part.key]]
    ]


def _samples(
    found: Bottlenecks, words: Words, name: str, figures: dict[str, Plot], *, drawn: bool
) -> Samples:
    low, core = _limit(found.gpu_below), words.core.format(_limit(found.core_above))
    kinds = (
        ("u", "good: above 90%", [one.busy for one in found.nodes]),
        (
            "u3",
            f"partly used: {formats.plain_number(found.gpu_below)} to 90%",
            [one.partly for one in found.nodes],
        ),
        ("l3", f"low: below {low}, not beside {core}", [one.idle_unsaturated for one in found.nodes]),
        ("x", f"not known: below {low}, no core sampled", [one.idle_no_core_sample for one in found.nodes]),
        ("l", f"in a bottleneck: below {low} beside {core}", [one.bottleneck for one in found.nodes]),
    )
    percents = zip(*(one.percents for one in found.nodes), strict=True)
    bands = tuple(
        Band(style=style, label=label, counts=tuple(counts), percents=tuple(column))
        for (style, label, counts), column in zip(kinds, percents, strict=True)
        if any(counts) or style != "x"
    )
    names = [one.node for one in found.nodes]
    if drawn:
        figures[f"live-{name}-samples"] = parted_plot(names, bands, "Samples")
    height = next((h for h in _HEIGHTS if len(names) <= h), _HEIGHTS[-1])
    basis = _basis(found)
    return Samples(
        caption=_samples_caption(found, basis, low, core),
        bands=bands,
        rows=tuple(
            SampleRow(
                node=formats.escape_name(one.node, 40),
                basis="training loop" if one.in_loop else "whole job",
                samples=one.samples,
                parts=tuple((band.counts[i], band.percents[i]) for band in bands),
            )
            for i, one in enumerate(found.nodes)
        ),
        mixed=len({one.in_loop for one in found.nodes}) > 1,
        drawing=parted_drawing(names, bands),
        height=f"names rows-{height}",
        folded=len(names) > MOST_OPEN_NODES,
        basis=basis,
    )


def _basis(found: Bottlenecks) -> str:
    loops = [one.in_loop for one in found.nodes]
    if all(loops):
        return "in the training loop"
    return (
        "in the training loop, or of the whole job where none was sampled,"
        if any(loops)
        else "of the whole job"
    )


def _samples_caption(found: Bottlenecks, basis: str, low: str, core: str) -> str:
    shares = [one.percents[-1] for one in found.nodes]
    most = max(shares)
    names = [formats.escape_name(one.node, 40) for one in found.nodes if one.percents[-1] == most]
    every = len(names) == len(found.nodes) > 1 and not found.more_nodes
    where = f"each of {formats.count(len(names), 'node')}" if every else formats.join_names(names)
    rest = "" if every else ", more than on any other node"
    return (
        f"On {where} {formats.percent(most)} of the GPU samples {basis} were below {low} beside {core}{rest}."
    )


def _strips(
    found: Bottlenecks, report: Report, name: str, figures: dict[str, Plot], *, limit: float | None
) -> Strips | None:
    """``limit`` is none where the rule gave no answer: then nothing is held against it."""
    courses, columns, course = found.courses, report.columns, report.phases
    if not courses or not columns.count:
        return None
    with_day = formats.spans_days(report.job.start_us, report.job.end_us)
    titles = [formats.escape_name(one.node, 60) if one.node else "All nodes together" for one in courses]
    frame = Frame(columns=columns, boundaries=boundaries(course), limit=limit)
    drawn = []
    plots = course_plots([one.percent for one in courses], frame)
    for i, (one, plot) in enumerate(zip(courses, plots, strict=True)):
        element = f"live-{name}-course{i}"
        figures[element] = plot
        told = _finding([one], titles[i : i + 1], limit, with_day=with_day)
        drawn.append(
            Strip(
                id=element,
                title=titles[i],
                label=f"Share of bottlenecks over time, {titles[i]}: {told}",
                drawing=course_drawing(one.percent, frame, labels=i == len(courses) - 1),
            )
        )
    width = formats.duration(columns.width_us)
    marks = [] if limit is None else [f"dashed: the limit of {_limit(limit)}"]
    if len(course.phases) > 1:
        what = "step" if course.basis == "steps" else "GPU work"
        ends = {"loop": f"first {what}", "after": f"last {what}"}
        marks.append(f"dotted: {' and '.join(ends[phase.key] for phase in course.phases[1:])}")
    if any(value is None for one in courses for value in one.percent):
        marks.append("hatched: not measured")
    return Strips(
        caption=f"{_finding(courses, titles, limit, with_day=with_day)}.",
        read=(
            "Orange: share of the snapshots of a column that are bottlenecks, in percent; "
            f"{'; '.join([f'a column is {width}', *marks])}. {formats.times(columns.start_us)}"
        ),
        strips=tuple(drawn),
        stretch=formats.duration(found.stretch * columns.width_us),
        rows=tuple(
            (
                columns.start_us + i * found.stretch * columns.width_us,
                tuple("not measured" if value is None else formats.number(value) for value in values),
            )
            for i, values in enumerate(zip(*(one.means for one in courses), strict=True))
        ),
    )


def _finding(
    courses: Sequence[BottlenecksOverTime], titles: Sequence[str], limit: float | None, *, with_day: bool
) -> str:
    """``Above the limit of 50% for 10 min 16 s of the 15 min measured, between 07:55:29 and 08:09:08 UTC``."""
    if limit is None:
        spans = [(one.start_us, one.end_us) for one in courses]
    else:
        spans = [(one.above_start_us, one.above_end_us) for one in courses]
    starts = [start for start, _ in spans if start is not None]
    ends = [end for _, end in spans if end is not None]
    when = ""
    if starts and ends:
        first, last = _moment(min(starts), with_day), _moment(max(ends), with_day)
        when = f"between {first} and {last}{formats.NBSP}UTC"
    if limit is None:
        return f"Bottlenecks lie {when}" if when else "No bottleneck lies in these columns"
    above = f"Above the limit of {_limit(limit)}"
    if not when:
        return f"At no time {above.lower()}"
    alike: dict[str, list[str]] = {}
    for one, title in zip(courses, titles, strict=True):
        alike.setdefault(_part(one), []).append(title)
    if len(courses) == 1:
        return f"{above} {next(iter(alike))}, {when}"
    return f"{above}, {when}: " + "; ".join(
        f"{formats.join_names(names)} {part}" for part, names in alike.items()
    )


def _part(one: BottlenecksOverTime) -> str:
    if not one.known_us:
        return "not measured"
    if not one.above_us:
        return "at no time"
    return f"for {formats.duration(one.above_us)} of the {formats.duration(one.known_us)} measured"


def _moment(us: int, with_day: bool) -> str:
    return formats.column_time(us, with_day=with_day).replace(" ", formats.NBSP)


def _run(run: BottleneckRun) -> RunRow:
    return RunRow(
        node=formats.escape_name(run.node, 40),
        start_us=run.start_us,
        seconds=(run.end_us - run.start_us) / 1e6,
        snapshots=run.snapshots,
        most_cores=run.most_cores,
        steps=_steps(run.place, run.steps),
    )


def _steps(place: str, steps: Sequence[StepSpan]) -> str:
    """``TRAIN steps 240 to 243``, ``between TRAIN steps 242 and 243``; ``–`` where the node has no steps."""
    if not steps:
        return "–"
    if place == "in":
        return " and ".join(_span(one) for one in steps)
    if place == "between":
        before, after = steps
        if before.mode == after.mode and before.last is not None and after.first is not None:
            return f"between {formats.escape_name(before.mode, 20)} steps {before.last} and {after.first}"
        return f"between {_span(before)} and {_span(after)}"
    return f"{place} {_span(steps[0])}"


def _span(one: StepSpan) -> str:
    phase = formats.escape_name(one.mode, 20)
    if one.first is None:
        return f"{phase} step"
    return (
        f"{phase} step {one.first}" if one.first == one.last else f"{phase} steps {one.first} to {one.last}"
    )


def _run_caption(runs: Sequence[BottleneckRun], *, several: bool, with_day: bool) -> str:
    if not runs:
        return ""
    lasted = [formats.duration(run.end_us - run.start_us) for run in runs]
    alike = [run for run, length in zip(runs, lasted, strict=True) if length == lasted[0]]
    if len(alike) > 1:
        return f"The {formats.count(len(alike), 'longest run')} of bottlenecks lasted {lasted[0]} each"
    first = runs[0]
    where = f" on {formats.escape_name(first.node, 40)}" if several else ""
    at = f"{_moment(first.start_us, with_day)}{formats.NBSP}UTC"
    return f"The longest run of bottlenecks lasted {lasted[0]}, from {at}{where}"


def _core_table(one: NodeCores) -> CoreTable:
    rows = tuple(
        (", ".join(formats.escape_name(core.core, 24) for core in alike), percent)
        for percent, alike in groupby(one.cores, key=lambda core: core.percent)
    )
    more = one.ever - len(one.cores)
    never = one.count - one.ever
    told = [
        f"{formats.count(more, 'other core')} less often" if more else "",
        f"{formats.number(never, 0)} of {formats.count(one.count, 'core')} never" if never else "",
    ]
    return CoreTable(node=formats.escape_name(one.node, 40), rows=rows, note="; ".join(filter(None, told)))


def _core_caption(cores: Sequence[NodeCores], over: str, *, more: int) -> str:
    """The cores of the node with most bottlenecks, and the other nodes of which the same is true."""
    if not cores:
        return ""
    facts = [_most_often(one, over) for one in cores]
    names = [
        formats.escape_name(one.node, 40) for one, fact in zip(cores, facts, strict=True) if fact == facts[0]
    ]
    if len(cores) == 1:
        where = ""
    elif len(names) == len(cores) and not more:
        where = f" on each of {formats.count(len(names), 'node')}"
    else:
        where = f" on {formats.join_names(names)}"
    return f"{facts[0]}{where}"


def _most_often(one: NodeCores, over: str) -> str:
    first = one.cores[0]
    alike = [core for core in one.cores if core.percent == first.percent]
    if len(alike) == one.count > 1:
        who = f"All {formats.count(one.count, 'core')}"
    else:
        who = formats.join_names([formats.escape_name(core.core, 24) for core in alike])
    was = f"was {over.replace('their', 'its')}" if len(alike) == 1 else f"were {over}"
    return f"{who} {was} in {formats.percent(first.percent)} of the bottlenecks"


def _class(name: str) -> str:
    return f"{name.removeprefix(STEP)} steps" if name.startswith(STEP) else name


def _ran_caption(ran: Sequence[Ran]) -> str:
    if not ran:
        return ""
    first = ran[0]
    if first.points < ALIKE_POINTS:
        return "Nothing that was recorded ran notably more during bottlenecks"
    alike = [one for one in ran if (one.during, one.otherwise) == (first.during, first.otherwise)]
    names = formats.join_names([formats.escape_name(_class(one.name), 60) for one in alike])
    return (
        f"{names} ran in {formats.percent(first.during)} of the time of bottlenecks and in "
        f"{formats.percent(first.otherwise)} of the rest"
    )
