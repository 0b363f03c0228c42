"""How data was loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.figures.data_loading import Unit, at_work, bin_names, fetch_times, unit_for
from jobreport.page.kit import Drawing, Empty, Figure, Sentences, Side, Table, code
from jobreport.page.kit.table import as_code, node_heads
from jobreport.page.sections.outline import section
from jobrules.analyses.data_loading import ADEQUATE, TOO_FEW, TOO_MANY
from jobrules.model import SECOND_US
from jobrules.rules.dataloader import Dataloader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.data_loading import (
        DataLoading,
        FetchTimes,
        LoadersAtWork,
        LoaderSetup,
        NodeLoading,
    )
    from jobrules.analyses.time_lines import Columns
    from jobrules.model import Finding
    from jobrules.verdict.findings import Verdict

#: Sentences about nodes.
MAX_SENTENCES = 4
#: Rows of a table that is not folded away.
MAX_OPEN_ROWS = 16
#: A fetch in parts of a step: training does not wait up to the first, and waits from the second on.
NO_WAIT, WAIT = 0.05, 0.2

#: The loaders of trainers that fetch and copy a batch at once.
TRAINER = "Trainer"

_KINDS = {
    "fetch": "Batch fetch",
    "distance": "Between fetches of a process",
    "set-up": "Set-up of an iterator",
}


@section
def data_loading(report: Report) -> Content:
    """Loader processes against cores, fetch times, and active loader processes over time."""
    found = report.data_loading
    if found is None:
        return Empty(_why_none(report))
    sentences = [
        *_wait(found, report.verdict),
        *_against_range(found, advised=_finding(report.verdict) is not None),
        *_settings_advice(found),
    ]
    flat = _flat(found)
    return [
        Sentences([code(sentence) for sentence in sentences]),
        _fetches(found, found.fetches) if found.fetches else None,
        _times(found),
        " ".join(filter(None, [_lives(found), flat])),
        _at_work(found, found.columns) if found.columns and found.at_work and not flat else None,
        _nodes(found),
        _setups(found),
    ]


def _fetches(found: DataLoading, fetches: FetchTimes) -> Figure:
    return Figure(
        name="data-loading-fetches",
        title="Batch fetch times",
        finding=_fetch_caption(found, fetches),
        drawings=[Drawing(figure=fetch_times(fetches))],
        reading=_fetch_reading(fetches),
        tables=[_bins(fetches)],
    )


def _why_none(report: Report) -> str:
    if not report.has_debugger:
        return "No trace of the data loader was recorded."
    if not report.card(Dataloader.__name__):
        return "SageMaker Debugger's rule results hold no data-loading events."
    return Markup(
        "SageMaker Debugger's rule results hold no data-loading events; "
        'see the card of <a href="#r-Dataloader">Dataloader</a>.'
    )


def _noun(found: DataLoading, n: int = 2) -> str:
    kind = "thread" if all(node.pipeline for node in found.nodes) else "process"
    return f"loader {kind if n == 1 else {'thread': 'threads', 'process': 'processes'}[kind]}"


def _time(seconds: float, unit: Unit | None = None) -> str:
    unit = unit or unit_for(seconds)
    return f"{unit.text(seconds)}{formats.NBSP}{unit.name}"


def _fetch_per_step(found: DataLoading) -> float | None:
    """The median fetch as a part of the median step; None where one of them was not recorded."""
    if found.fetches is None or found.step is None or not found.step.p50_s:
        return None
    return found.fetches.p50_s / found.step.p50_s


def _wait(found: DataLoading, verdict: Verdict) -> list[str]:
    """Whether training waits for data: as the verdict says, which knows how long, otherwise by the medians of all ranks."""
    if finding := _finding(verdict):
        return [f"{finding.title}."]
    part = _fetch_per_step(found)
    if part is None or found.fetches is None or found.step is None:
        return []
    waits = "does not wait" if part <= NO_WAIT else "waits briefly"
    if part >= WAIT:
        waits = "waits"
    medians = found.fetches.p50_s, found.step.p50_s
    common = unit_for(max(medians))
    fetch, step = (_time(one, common if min(medians) >= 0.1 * common.factor else None) for one in medians)
    kind = f"{formats.escape_name(found.step.mode, 24)} step" if found.step.mode else "step"
    return [f"Training {waits} for data: a batch fetch takes {fetch}, a {kind} {step} (medians)."]


def _finding(verdict: Verdict) -> Finding | None:
    return next((finding for finding in verdict.findings if finding.key == "data-loading"), None)


def _against_range(found: DataLoading, *, advised: bool) -> list[str]:
    """One sentence for all nodes of which the same is true, out of range first, then not evaluated."""
    ranked = sorted(found.nodes, key=lambda node: (node.answer in ("", ADEQUATE), node.answer == ""))
    by_sentence: dict[str, list[str]] = {}
    for node in ranked:
        by_sentence.setdefault(_node_sentence(node, found, advised=advised), []).append(
            formats.escape_name(node.name, 40)
        )
    sentences = [_on_nodes(text, names, len(found.nodes)) for text, names in by_sentence.items()]
    rest = list(by_sentence.values())[MAX_SENTENCES:]
    more = found.nodes_left_out + sum(len(names) for names in rest)
    if not more:
        return sentences
    return [*sentences[:MAX_SENTENCES], f"{formats.count(more, 'more node')}: see the table."]


def _on_nodes(sentence: str, names: list[str], total: int) -> str:
    if total == 1:
        return sentence
    where = formats.count(total, "node") if len(names) == total else formats.join_names(names, 3)
    return f"{where}: {sentence}"


def _node_sentence(node: NodeLoading, found: DataLoading, *, advised: bool) -> str:
    experimental = " Counting threads of TensorFlow's data pipeline is experimental." if node.pipeline else ""
    if node.loaders is None:
        return f"The number of active loader processes is unknown: {node.reason}."
    kind = "loader thread" if node.pipeline else "loader process"
    loaders = formats.count(node.loaders, kind, kind + ("s" if node.pipeline else "es"))
    setups = [one for one in found.setups if one.node == node.name]
    consequence = _consequence(node, found, advised=advised) if node.answer else ""
    if setups and all(one.num_workers == 0 for one in setups):
        return f"No loader process: the training processes load their batches themselves{consequence}."
    if not node.cores:
        return f"{loaders} (median). Dataloader was not evaluated: CPU was not recorded.{experimental}"
    share = f"{formats.plain_number(node.of_cores_percent)}%"
    fact = f"{loaders} for {formats.count(node.cores, 'core')} ({share})"
    if not node.answer:
        return f"{fact}. Dataloader was not evaluated: {node.reason}.{experimental}"
    side = {TOO_FEW: "below", ADEQUATE: "within", TOO_MANY: "above"}[node.answer]
    limits = f"{found.min_percent:g} to {found.max_percent:g}%"
    is_ = "is" if node.loaders == 1 else "are"
    return f"{fact} {is_} {side} Dataloader's range of {limits}{consequence}.{experimental}"


def _consequence(node: NodeLoading, found: DataLoading, *, advised: bool) -> str:
    """What follows from the side of the range that a node is on, unless a finding has advised it."""
    if node.answer == ADEQUATE:
        checks = formats.count(node.evaluated, "check")
        return f", but not in {node.violating} of {checks}" if node.violating else ""
    part = _fetch_per_step(found)
    if node.answer == TOO_FEW and part is not None and part <= NO_WAIT:
        return ", but training does not wait for data"
    if node.pipeline or advised:
        return ""
    return ". Raise `num_workers`" if node.answer == TOO_FEW else ". Lower `num_workers`"


def _settings_advice(found: DataLoading) -> list[str]:
    advice = []
    with_gpus = {node.name for node in found.nodes if node.gpus}
    unpinned = [
        one for one in found.setups if one.pin_memory is False and one.node in with_gpus and one.fetches
    ]
    if unpinned:
        iterators = dict.fromkeys(formats.escape_name(one.iterator, 60) for one in unpinned)
        advice.append(
            f"Set `pin_memory=True` for {formats.join_names(list(iterators), 3)}: "
            "copies to the GPU are faster from pinned memory."
        )
    if any(node.prefetch is False for node in found.nodes):
        advice.append(
            "End the data pipeline with `prefetch(AUTOTUNE)`: it then prepares the next batch "
            "while the GPU works on this one."
        )
    return advice


def _fetch_caption(found: DataLoading, fetches: FetchTimes) -> str:
    count, what = found.times[0].count, "the time a training process waited for its batch"
    if any(one.iterator == TRAINER for one in found.setups):
        what += " and copied it to its device"
    if count == 1:
        return f"The only batch fetch took {_time(fetches.p50_s)}: {what}."
    took = f"{_time(fetches.p50_s)} (median) and {_time(fetches.p95_s)} (p95)"
    return f"Batch fetches took {took}: {what}. {formats.count(count, 'fetch', 'fetches')}."


def _fetch_reading(times: FetchTimes) -> str:
    """What a bar counts, and what lies beyond the bars."""
    width = unit_for(times.step)
    size = f"{round(times.step / width.factor, 6):g}{formats.NBSP}{width.name}"
    log = f"Logarithmic time axis: each bin ends at {times.step:.3g} times its start."
    reading = f"{log if times.log else f'Bins of {size}.'} Height: fetches."
    if times.beyond:
        longer = formats.count(times.beyond, "longer fetch", "longer fetches")
        reading += f" Last bar, after a gap: {longer}, up to {_time(times.max_s)}."
    return reading


def _bins(fetches: FetchTimes) -> Table:
    counts = (*fetches.counts, fetches.beyond) if fetches.beyond else fetches.counts
    return Table(
        label="Fetches per bin; empty bins are omitted",
        fold="fetches per bin",
        heads=(":Fetch time", "Fetches"),
        rows=[(name, formats.number(n, 0)) for name, n in zip(bin_names(fetches), counts, strict=True) if n],
    )


def _fewest_and_most(line: LoadersAtWork) -> tuple[int, int]:
    return (
        min(low for low in line.low if low is not None),
        max(high for high in line.high if high is not None),
    )


def _work_caption(found: DataLoading) -> str:
    """Of the node with most active loader processes."""
    line = max(found.at_work, key=lambda one: _fewest_and_most(one)[1])
    low, high = _fewest_and_most(line)
    numbers = f"{high}" if low == high else f"{low} to {high}"
    cores = f" {formats.count(line.cores, 'core')} (dashed)" if line.cores else ""
    where = _where(line, found)
    on = f" on {where}" if where else ""
    owned = f", with{cores}" if cores and where else f" on{cores}" if cores else ""
    return f"{numbers} {_noun(found, high)} {'was' if high == 1 else 'were'} active{on}{owned}."


def _work_reading(found: DataLoading, columns: Columns) -> str:
    hatched = any(value is None for line in found.at_work for value in line.mean)
    return (
        f"Active {_noun(found)} per second, in columns of {formats.duration(columns.width_us)}."
        f"{' Hatched: no data loading.' if hatched else ''}"
    )


def _where(line: LoadersAtWork, found: DataLoading) -> str:
    """The node of a line; empty if it is the only one."""
    if not line.node and len(found.nodes) > 1:
        return f"{len(found.nodes) + found.nodes_left_out}{formats.NBSP}nodes together"
    return formats.escape_name(line.node, 40) if len(found.at_work) > 1 else ""


def _flat(found: DataLoading) -> str:
    """The number of active loader processes in a sentence, if it never changed."""
    numbers = {n for line in found.at_work for n in (*line.low, *line.high) if n is not None}
    if len(numbers) != 1:
        return ""
    n = max(numbers)
    always = "active in every second with data loading."
    lives = next((one for one in found.times if one.key == "worker"), None)
    if lives and lives.count == n > 1 and len(found.nodes) == 1:
        return f"All {n} were {always}"
    where = " on each node" if len(found.at_work) > 1 else ""
    if not found.at_work[0].node and len(found.nodes) > 1:
        where = f" on {_where(found.at_work[0], found)}"
    who = f"{formats.number(n, 0)} {_noun(found, n)}{where}"
    return f"{who} {'was' if n == 1 else 'were'} {always}"


def _at_work(found: DataLoading, columns: Columns) -> Figure:
    """Active loader processes over time, of each node."""
    caption = _work_caption(found)
    titles = [_where(line, found) or formats.escape_name(line.node, 60) for line in found.at_work]
    drawings = [
        Drawing(
            figure=figure,
            title=title if len(found.nodes) > 1 else "",
            label=f"Active {_noun(found)} over time, {title}. {caption}",
            style="low",
        )
        for title, figure in zip(titles, at_work(found.at_work, columns), strict=True)
    ]
    return Figure(
        name="data-loading-work",
        finding=caption,
        aid="Line: mean; band: fewest to most.",
        drawings=[Side(style="blocks", blocks=drawings)],
        zoom="the active loader processes",
        reading=_work_reading(found, columns),
    )


def _times(found: DataLoading) -> Table | None:
    """Times in the unit that suits the first row; None if none were recorded."""
    kept = [one for one in found.times if one.key in _KINDS]
    if not kept:
        return None
    unit = unit_for(kept[0].p50_s)
    return Table(
        label="Data-loading times",
        caption=f"Data-loading times{', all nodes' if len(found.nodes) > 1 else ''}.",
        heads=(
            *(":Time", "Count", f"Median ({unit.name})", f"p95 ({unit.name})", f"Longest ({unit.name})"),
            *("Total (s)", "Over 2 × median"),
        ),
        rows=list(
            zip(
                [_KINDS[one.key] for one in kept],
                [formats.number(one.count, 0) for one in kept],
                *(
                    _even([getattr(one, name) / unit.factor for one in kept])
                    for name in ("p50_s", "p95_s", "max_s")
                ),
                _even([one.total_s for one in kept]),
                [formats.number(one.outliers, 0) for one in kept],
                strict=True,
            )
        ),
    )


def _even(values: list[float]) -> list[str]:
    """A column with the decimals that give its first value three digits and leave none at 0, two at most."""
    first, least = next(iter(values), 0.0), min((value for value in values if value), default=1.0)
    digits = max(
        0 if first >= 100 else 1 if first >= 10 else 2, 0 if least >= 1 else 1 if least >= 0.1 else 2
    )
    return [formats.number(value, digits) for value in values]


def _lives(found: DataLoading) -> str:
    """How long loader processes ran, far longer than fetches; empty where it was not recorded."""
    one = next((one for one in found.times if one.key == "worker"), None)
    if one is None:
        return ""
    processes = formats.count(one.count, "loader process", "loader processes")
    median, longest = (formats.duration(s * SECOND_US) for s in (one.p50_s, one.max_s))
    if one.count == 1:
        return f"{processes} ran for {median}."
    if median == longest:
        return f"{processes} ran for {median} (median and maximum)."
    return f"{processes} ran for {median} (median), at most {longest}."


def _joined(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Rows that differ only in the node, which comes first, as one: ``6 nodes (equal)``, or by name."""
    names_of: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in rows:
        names_of.setdefault(tuple(cells), []).append(name)
    total = len({name for names in names_of.values() for name in names})
    return [(_equal_nodes(names, total), *cells) for cells, names in names_of.items()]


def _equal_nodes(names: list[str], total: int) -> str:
    if len(names) == 1:
        return formats.escape_name(names[0], 32)
    listed = formats.join_names([formats.escape_name(name, 24) for name in names], 3)
    return f"{formats.count(total, 'node') if len(names) == total else listed} (equal)"


def _nodes(found: DataLoading) -> Table:
    rows = _joined(
        (
            node.name,
            "threads" if node.pipeline else "processes",
            formats.known(node.loaders, 0),
            formats.known(node.mean),
            formats.known(node.lowest, 0),
            formats.known(node.highest, 0),
            formats.number(node.cores, 0) if node.cores else "not recorded",
            formats.known(node.of_cores_percent),
            formats.number(node.seconds, 0),
            node.answer or f"not evaluated: {node.reason}",
        )
        for node in found.nodes
    )
    more = found.nodes_left_out
    return Table(
        label=f"Active {_noun(found)} per node",
        caption=f"Active {_noun(found)} per second of data loading."
        + (f" Not shown: {formats.count(more, 'more node')}." if more else ""),
        fold=f"{_noun(found)} per node" if len(rows) > MAX_OPEN_ROWS else "",
        heads=(
            *(":Node", ":Loaders", "Median", "Mean", "Fewest", "Most", "Cores"),
            *("Median (% of cores)", "Seconds", ":Dataloader"),
        ),
        rows=rows,
    )


def _setups(found: DataLoading) -> Table:
    several = len(found.nodes) > 1
    rows = _joined((one.node, as_code(one.iterator), *_settings(one)) for one in found.setups)
    more = found.setups_left_out
    return Table(
        label="DataLoader settings",
        caption="DataLoader settings." + (f" Not shown: {formats.count(more, 'more row')}." if more else ""),
        heads=node_heads(":Iterator", "num_workers", "Pinned memory", "Fetches", several=several),
        rows=rows if several else [cells for _, *cells in rows],
    )


def _settings(one: LoaderSetup) -> tuple[str, str, str]:
    workers = "not recorded" if one.num_workers is None else formats.number(one.num_workers, 0)
    if one.num_workers == 0:
        workers = "0, in the training process"
    pinned = {True: "yes", False: "no", None: "not recorded"}[one.pin_memory]
    return workers, pinned, formats.number(one.fetches, 0)
