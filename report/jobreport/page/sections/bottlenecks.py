"""Snapshots in which a GPU was idle while a core was saturated or waited for I/O."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from markupsafe import Markup
from msgspec import Struct

from jobreport import formats
from jobreport.page.figures.names import rows_class
from jobreport.page.figures.stacked import Part, stacked
from jobreport.page.kit import Drawing, Figure, Html, Note, Table, code
from jobreport.page.kit.fragment import place
from jobreport.page.kit.table import swatch
from jobreport.page.sections.outline import not_recorded, section, why_not_evaluated
from jobreport.page.sections.parts.bottlenecks_over_time import shares_over_time
from jobreport.page.sections.parts.bottlenecks_tables import cores_of, event_types, longest_runs
from jobrules.model import Status
from jobrules.text import capitalized

if TYPE_CHECKING:
    from jobreport.document import Report, RuleCard
    from jobreport.page.kit.section import Content
    from jobrules.analyses.bottlenecks import (
        Bottlenecks,
        SnapshotPart,
    )

#: Rows of tables that are not folded away.
MAX_OPEN_NODES = 4
#: Nodes that are listed with the reason why the rule did not evaluate them.
MAX_REASONS = 4
#: Percent of the snapshots below which bottlenecks are not drawn over time, unless they triggered the rule.
MIN_DRAWN = 1.0
#: Percent below which a GPU is idle in the words of the page.
IDLE = 10.0


class Words(Struct, frozen=True, kw_only=True):
    """Words for the bottlenecks of one kind; ``{}`` is the threshold of a core."""

    rule: str
    title: str
    #: What is sampled of a core.
    metric: str
    #: What is true of a core of the node in a bottleneck.
    core_is: str
    #: A core above its threshold, no such core, and such cores.
    core: str
    no_core: str
    cores: str


_WORDS = {
    "cpu": Words(
        rule="CPUBottleneck",
        title="CPU bottlenecks",
        metric="CPU",
        core_is="a core of its node is above {}",
        core="core saturated",
        no_core="no saturated core",
        cores="saturated",
    ),
    "io": Words(
        rule="IOBottleneck",
        title="I/O bottlenecks",
        metric="I/O wait",
        core_is="a core of its node is above {} I/O wait",
        core="core waiting for I/O",
        no_core="no core waiting for I/O",
        cores="waiting for I/O",
    ),
}


@section
def cpu_bottlenecks(report: Report) -> Content:
    """Snapshots in which a GPU was idle while a core was saturated."""
    return _bottlenecks(report, "cpu")


@section
def io_bottlenecks(report: Report) -> Content:
    """Snapshots in which a GPU was idle while a core waited for I/O."""
    return _bottlenecks(report, "io")


def _bottlenecks(report: Report, key: str) -> Content:
    words = _WORDS[key]
    found = next((one for one in report.bottlenecks if one.key == key), None)
    if found is None:
        missing = {"GPU", words.metric} - {row.label for row in report.utilization}
        what = (
            f"{' or '.join(sorted(missing))} sample"
            if missing
            else f"node with samples of GPU and {words.metric}"
        )
        return not_recorded(what, in_results=report.gpus_of_debugger)
    card, title = report.card(words.rule), words.title
    over_time = found.bottlenecks and (
        found.split.parts[-1].percent >= MIN_DRAWN or (card is not None and card.status is Status.TRIGGERED)
    )
    limit = found.limit if card and card.was_evaluated and _agrees(found, card) else None
    return [
        code(_lead(found, words, card, report)),
        *map(Note, _notes(found, words, card)),
        _split_figure(found, words) if found.bottlenecks else None,
        shares_over_time(found, report, title, limit=limit) if over_time else None,
        _samples_figure(found, words) if found.bottlenecks and len(found.nodes) > 1 else None,
        longest_runs(found, report, title) if found.runs else None,
        cores_of(found, words.cores, title) if found.cores else None,
        event_types(found, title) if found.ran else None,
    ]


def _percent(value: float) -> str:
    return f"{formats.plain_number(value)}%"


def _idle(found: Bottlenecks) -> str:
    return "idle" if found.gpu_below == IDLE else f"below {_percent(found.gpu_below)}"


def _lead(found: Bottlenecks, words: Words, card: RuleCard | None, report: Report) -> str:
    """The number of bottlenecks, and the GPU time that they explain."""
    sentences = [why_not_evaluated(report, words.rule), _counted(found, words, card)]
    if not found.bottlenecks:
        return " ".join([*filter(None, sentences), _none_found(found, words)])
    finding = next((one for one in report.verdict.findings if one.key == f"{found.key}-bottleneck"), None)
    hours, part = formats.amount(finding, report.verdict.use) if finding else ("", "")
    if hours and part:
        sentences.append(f"Bottlenecks explain {hours}, {part}.")
    return " ".join([*filter(None, sentences), "Inferred from simultaneous samples."])


def _counted(found: Bottlenecks, words: Words, card: RuleCard | None) -> str:
    """The bottlenecks of the whole job; the threshold stands with the share that the rule compares with it."""
    whole = found.split.parts[-1].percent
    evaluated = card is not None and card.was_evaluated
    own = card.measure.value if card and evaluated and card.measure else None
    threshold = f"; threshold {_percent(found.limit)}" if evaluated and own in (None, whole) else ""
    snapshots = f"{formats.number(found.bottlenecks, 0)} of {formats.count(found.snapshots, 'snapshot')}"
    return (
        f"{words.title}: {snapshots} of the whole job ({formats.percent(whole)}{threshold}), with a GPU below "
        f"{_percent(found.gpu_below)} while {words.core_is.format(_percent(found.core_above))}."
    )


def _agrees(found: Bottlenecks, card: RuleCard) -> bool:
    """True if the share in the whole job is on the same side of the threshold as the rule's own."""
    return (card.status is Status.TRIGGERED) == (found.split.parts[-1].percent > found.limit)


def _none_found(found: Bottlenecks, words: Words) -> str:
    """All snapshots in their parts, of which none is a bottleneck."""
    parts = [
        f"{label}: {formats.number(part.count, 0)} ({formats.percent(part.percent)})"
        for _, label, part, _ in _split(found, words)
        if part.count
    ]
    return f"{'; '.join(parts)}."


def _notes(found: Bottlenecks, words: Words, card: RuleCard | None) -> list[str]:
    """Nodes that the rule did not evaluate, and a result of the rule that differs from the count in the lead."""
    notes = _rule_notes(found, words, card) if card else []
    reasons = [f"{formats.escape_name(one.node, 40)} ({one.reason})" for one in found.nodes if one.reason]
    if reasons and len(found.nodes) > 1:
        nodes = f"{', '.join(reasons[:MAX_REASONS])}.{formats.not_shown(len(reasons) - MAX_REASONS, 'node')}"
        notes.append(f"Counted here, but not evaluated by {words.rule}: {nodes}")
    if found.without_cores:
        names = formats.join_names([formats.escape_name(name, 40) for name in found.without_cores])
        notes.append(f"{words.metric} was not recorded on {names}.")
    if found.bottlenecks and not found.ran:
        notes.append("No events were recorded around the bottlenecks.")
    return notes


def _rule_notes(found: Bottlenecks, words: Words, card: RuleCard) -> list[str]:
    if not card.was_evaluated:
        return []
    whole, threshold = found.split.parts[-1].percent, f"threshold {_percent(found.limit)}"
    own = card.measure.value if card.measure else whole
    notes = []
    if own != whole and (found.bottlenecks or own):
        notes.append(
            f"{words.rule} counts {formats.percent(own)} of the snapshots that it evaluates, without start-up and "
            f"wind-down ({threshold})."
        )
    if card.status is Status.TRIGGERED and own <= found.limit:
        checks = f"{formats.number(card.violating, 0)} of {formats.count(card.evaluated, 'check')}"
        notes.append(f"{words.rule} triggered: the share until then was above the threshold in {checks}.")
    return notes


def _split_caption(found: Bottlenecks) -> str:
    counts = f"{formats.number(found.bottlenecks, 0)} of {formats.count(found.low, 'snapshot')}"
    share = formats.percent(found.split.of_low_percent)
    return f"Bottlenecks: {counts} with a GPU below {_percent(found.gpu_below)} ({share})."


def _split(found: Bottlenecks, words: Words) -> list[tuple[str, str, SnapshotPart, float]]:
    """All snapshots in parts that add up: class, words, part, and its place in the bar in percent."""
    idle = f"GPU {_idle(found)}"
    kinds = {
        "fine": ("u", f"No {idle}"),
        "free": ("l3", f"{idle}, {words.no_core}"),
        "unknown": ("x", f"{idle}, {words.metric} not recorded"),
        "bottleneck": ("l", f"{idle}, {words.core}"),
    }
    parts = [part for part in found.split.parts if part.count or part.key != "unknown"]
    places = accumulate((part.percent for part in parts), initial=0.0)
    return [(*kinds[part.key], part, at) for part, at in zip(parts, places, strict=False)]


def _split_figure(found: Bottlenecks, words: Words) -> Figure:
    """All snapshots as one bar; on a single node with the table of its GPU samples."""
    caption, parts = _split_caption(found), _split(found, words)
    bar = Markup('<svg class="bar" role="img" aria-label="Parts of the snapshots. {}">{}{}</svg>').format(
        caption,
        Markup("").join(
            Markup('<rect class="{}" x="{}%" width="{}%" y="0" height="100%"/>').format(
                style, place(at), place(part.percent)
            )
            for style, _, part, at in parts
        ),
        Markup("").join(
            Markup('<line class="part" x1="{0}%" x2="{0}%" y1="0" y2="100%"/>').format(place(at))
            for *_, at in parts
            if 0 < at < 100
        ),
    )
    table = Table(
        label=f"{words.title}: parts of the snapshots",
        heads=(":Part", "Snapshots", "Share (%)"),
        rows=[
            (swatch(style, label), formats.number(part.count, 0), formats.number(part.percent))
            for style, label, part, _ in parts
        ],
        style="named",
    )
    return Figure(
        name=f"{found.key}-bottlenecks-split",
        title="Snapshots by bottleneck",
        finding=caption,
        drawings=[Html(bar)],
        tables=[table, _samples_table(found, words) if len(found.nodes) == 1 else None],
    )


def _samples_figure(found: Bottlenecks, words: Words) -> Figure:
    """GPU samples by node."""
    parts, names = _sample_parts(found, words), [one.node for one in found.nodes]
    return Figure(
        name=f"{found.key}-bottlenecks-samples",
        title="GPU samples by node",
        finding=_samples_caption(found) + formats.not_shown(found.more_nodes, "node"),
        key=[(part.style, part.label, "") for part in parts],
        drawings=[
            Drawing(
                figure=stacked(names, parts, bar="Node", amount="Samples"),
                style=f"names {rows_class(len(names))}",
            )
        ],
        tables=[_samples_table(found, words)],
    )


def _samples_table(found: Bottlenecks, words: Words) -> Table:
    parts = _sample_parts(found, words)
    heads = [capitalized(part.label.partition(":")[0]) for part in parts]
    return Table(
        label=f"{words.title}: GPU samples by node",
        caption="GPU samples by node.",
        fold="" if 1 < len(found.nodes) <= MAX_OPEN_NODES else "GPU samples by node",
        heads=[":Node", ":Basis", "Samples", *(f"{head} (%)" for head in heads)],
        rows=[
            [
                formats.escape_name(one.node, 40),
                "training loop" if one.in_loop else "whole job",
                formats.number(one.samples, 0),
                *(formats.number(part.percents[i]) for part in parts),
            ]
            for i, one in enumerate(found.nodes)
        ],
    )


def _sample_parts(found: Bottlenecks, words: Words) -> tuple[Part, ...]:
    """Parts of each node's GPU samples; what was not recorded only if there is any."""
    idle, nodes = _idle(found), found.nodes
    kinds = (
        ("u", "busy: above 90%", [one.busy for one in nodes]),
        ("u3", f"partly busy: {found.gpu_below:g} to 90%", [one.partly for one in nodes]),
        ("l3", f"{idle}, {words.no_core}", [one.idle_unsaturated for one in nodes]),
        ("x", f"{idle}, {words.metric} not recorded", [one.idle_no_core_sample for one in nodes]),
        ("l", f"{idle}, {words.core}", [one.bottleneck for one in nodes]),
    )
    percents = zip(*(one.percents for one in nodes), strict=True)
    return tuple(
        Part(style=style, label=label, percents=column, amounts=tuple(formats.number(n, 0) for n in counts))
        for (style, label, counts), column in zip(kinds, percents, strict=True)
        if any(counts) or style != "x"
    )


def _samples_caption(found: Bottlenecks) -> str:
    most = max(one.percents[-1] for one in found.nodes)
    names = [formats.escape_name(one.node, 40) for one in found.nodes if one.percents[-1] == most]
    return f"Most bottlenecks on {formats.join_names(names)}: {formats.percent(most)} of GPU samples."
