"""Data loading: loader processes, batch fetches, and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.page.figures.data_loading import Unit, at_work, bin_names, fetch_times, unit_for
from jobreport.page.kit import Drawing, Figure, Sentences, Side, Table, code
from jobreport.page.kit.table import as_code, node_heads
from jobreport.page.sections.outline import not_recorded, section
from jobrules.analyses.data_loading import TOO_FEW, TOO_MANY
from jobrules.model import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.data_loading import (
        DataLoading,
        FetchTimes,
        LoadersAtWork,
        LoaderSetup,
        RankFetches,
    )
    from jobrules.analyses.time_lines import Columns
    from jobrules.verdict.findings import Verdict

#: A fetch in parts of a step: training does not wait up to the first, and waits from the second on.
NO_WAIT, WAIT = 0.05, 0.2

#: Advice for nodes with too few or too many loader processes.
_ADVICE = {
    TOO_FEW: "Raise `num_workers` if training waits for data.",
    TOO_MANY: "Lower `num_workers` if CPU or memory is scarce.",
}

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
        return not_recorded("data-loading event", in_results=report.has_debugger)
    sentences = [*_wait(found, report.verdict), *_out_of_range(found), *_settings_advice(found)]
    return [
        Sentences([code(sentence) for sentence in sentences]),
        _fetches(found.fetches, found) if found.fetches else None,
        _times(found),
        _lives(found),
        _at_work(found, found.columns) if found.columns and _changes(found) else None,
        _nodes(found),
        _setups(found),
    ]


def _fetches(fetches: FetchTimes, found: DataLoading) -> Figure:
    names = [_rank(one, found) for one in fetches.ranks]
    medians = [f"{name}: median {_time(one.p50_s)}" for name, one in zip(names, fetches.ranks, strict=True)]
    return Figure(
        name="data-loading-fetches",
        title="Batch fetch times",
        finding=_ranks_differ(fetches, names)
        or f"Batch fetches took {_time(fetches.p50_s)} (median) and {_time(fetches.p95_s)} (p95).",
        aid="A fetch is the time in which a training process waited for its batch.",
        key=[(f"s{i}", words, f"s{i}") for i, words in enumerate(medians, start=1)],
        drawings=[Drawing(figure=fetch_times(fetches, names))],
        reading=_fetch_reading(fetches),
        tables=[_bins(fetches, names)],
    )


def _rank(one: RankFetches, found: DataLoading) -> str:
    """``algo-1 rank 0``, without the node of one; ``other ranks``."""
    if not one.rank:
        return "other ranks"
    rank = f"rank {formats.escape_name(one.rank, 16)}"
    return f"{formats.escape_name(one.node, 24)} {rank}" if len(found.nodes) > 1 else rank


def _ranks_differ(fetches: FetchTimes, names: Sequence[str]) -> str:
    """The medians of the slowest rank and of the fastest; empty if all are alike."""
    if not fetches.ranks:
        return ""
    slowest, fastest = fetches.ranks[0], min(fetches.ranks, key=lambda one: one.p50_s)
    name = names[fetches.ranks.index(fastest)]
    return f"Batch fetches took {_time(slowest.p50_s)} on {names[0]}, {_time(fastest.p50_s)} on {name} (medians)."


def _noun(found: DataLoading) -> str:
    if _no_loader(found):
        return "training processes that load batches"
    return "loader threads" if all(node.pipeline for node in found.nodes) else "loader processes"


def _no_loader(found: DataLoading) -> bool:
    """True if the training processes load their batches themselves, each counted as a loader."""
    return bool(found.setups) and all(one.num_workers == 0 for one in found.setups)


def _time(seconds: float, unit: Unit | None = None) -> str:
    unit = unit or unit_for(seconds)
    return f"{unit.text(seconds)}{formats.NBSP}{unit.name}"


def _wait(found: DataLoading, verdict: Verdict) -> list[str]:
    """The verdict's finding, which knows how long training waits; otherwise the medians of all ranks."""
    if finding := next((one for one in verdict.findings if one.key == "data-loading"), None):
        return [f"{finding.title}."]
    if found.fetches is None or found.step is None or not found.step.p50_s:
        return []
    slowest = found.fetches.ranks[0] if found.fetches.ranks else None
    fetch_s = slowest.p50_s if slowest else found.fetches.p50_s
    part = fetch_s / found.step.p50_s
    waits = "waits" if part >= WAIT else "waits briefly" if part > NO_WAIT else "does not wait"
    medians = fetch_s, found.step.p50_s
    common = unit_for(max(medians))
    fetch, step = (_time(one, common if min(medians) >= 0.1 * common.factor else None) for one in medians)
    kind = f"{formats.escape_name(found.step.mode, 24)} step".strip()
    where = f" on {_rank(slowest, found)}" if slowest else ""
    return [f"Training {waits} for data: a batch fetch takes {fetch}{where}, a {kind} {step} (medians)."]


def _out_of_range(found: DataLoading) -> list[str]:
    """Nodes with too few or too many loader processes, and advice; TensorFlow's pipelines have no ``num_workers``."""
    sentences = []
    for answer, advice in _ADVICE.items():
        nodes = [
            formats.escape_name(node.name, 40)
            for node in found.nodes
            if node.answer == answer and not node.pipeline
        ]
        if nodes:
            sentences.append(
                f"{formats.join_names(nodes)}: {answer} loader processes for the cores. {advice}"
            )
    if _no_loader(found):
        sentences.append("No loader process: the training processes load their batches themselves.")
    return sentences


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


def _fetch_reading(times: FetchTimes) -> str:
    """The width of a bin, and the height of a bar."""
    width = unit_for(times.step)
    size = f"{round(times.step / width.factor, 6):g}{formats.NBSP}{width.name}"
    log = f"Logarithmic time axis: each bin ends at {times.step:.3g} times its start."
    return (
        f"{log if times.log else f'Bins of {size}.'} Height: fetches. A bar after a gap holds all longer fetches. Fetches "
        "of a Trainer include the copy to its device."
    )


def _bins(fetches: FetchTimes, names: Sequence[str]) -> Table:
    columns = [
        (*one.counts, one.beyond) if fetches.beyond else one.counts for one in fetches.ranks or (fetches,)
    ]
    return Table(
        label="Fetches per bin; empty bins are omitted",
        fold="fetches per bin",
        heads=(":Fetch time", *(names or ["Fetches"])),
        rows=[
            (name, *(formats.number(n, 0) for n in counts))
            for name, *counts in zip(bin_names(fetches), *columns, strict=True)
            if any(counts)
        ],
    )


def _fewest_and_most(line: LoadersAtWork) -> tuple[int, int]:
    return (
        min(low for low in line.low if low is not None),
        max(high for high in line.high if high is not None),
    )


def _work_caption(found: DataLoading) -> str:
    """Active loader processes on the node with most of them."""
    line = max(found.at_work, key=lambda one: _fewest_and_most(one)[1])
    low, high = _fewest_and_most(line)
    where = f" on {_where(line, found)}" if len(found.nodes) > 1 else ""
    return f"Active {_noun(found)}{where}: at least {low}, at most {high}."


def _where(line: LoadersAtWork, found: DataLoading) -> str:
    """The node of a line, or the number of nodes that are added up."""
    nodes = f"{len(found.nodes) + found.nodes_left_out}{formats.NBSP}nodes together"
    return formats.escape_name(line.node, 40) or nodes


def _changes(found: DataLoading) -> bool:
    """True if the number of active loader processes ever changed."""
    return len({n for line in found.at_work for n in (*line.low, *line.high) if n is not None}) > 1


def _at_work(found: DataLoading, columns: Columns) -> Figure:
    """Active loader processes over time, of each node."""
    drawings = [
        Drawing(
            figure=figure,
            title=_where(line, found) if len(found.nodes) > 1 else "",
            style="low",
        )
        for line, figure in zip(found.at_work, at_work(found.at_work, columns), strict=True)
    ]
    return Figure(
        name="data-loading-work",
        title=f"Active {_noun(found)} over time",
        finding=_work_caption(found),
        aid="Line: mean; band: fewest to most; dashed: cores.",
        drawings=[Side(style="blocks", blocks=drawings)],
        zoom="the active loader processes",
        reading=f"Per second, in columns of {formats.duration(columns.width_us)}. Hatched: no data loading.",
    )


def _times(found: DataLoading) -> Table | None:
    """Times in the unit that suits the first row; None if none were recorded."""
    kept = [one for one in found.times if one.key in _KINDS]
    if not kept:
        return None
    unit = unit_for(kept[0].p50_s)
    return Table(
        label="Data-loading times",
        caption="Data-loading times over all processes.",
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
    """Lifetime of loader processes, far longer than fetches; empty if it was not recorded."""
    one = next((one for one in found.times if one.key == "worker"), None)
    if one is None:
        return ""
    processes = formats.count(one.count, "loader process", "loader processes")
    median, longest = (formats.duration(s * SECOND_US) for s in (one.p50_s, one.max_s))
    return f"Lifetime of {processes}: median {median}, longest {longest}."


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
            "training processes" if _no_loader(found) else "threads" if node.pipeline else "processes",
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
    return Table(
        label=f"Active {_noun(found)} per node",
        caption=f"Active {_noun(found)} per second of data loading."
        + formats.not_shown(found.nodes_left_out, "node"),
        aid=f"Dataloader's range is {found.min_percent:g} to {found.max_percent:g}% of the cores; for threads it is "
        "experimental.",
        heads=(
            *(":Node", ":Loaders", "Median", "Mean", "Fewest", "Most", "Cores"),
            *("Median (% of cores)", "Seconds", ":Dataloader"),
        ),
        rows=rows,
    )


def _setups(found: DataLoading) -> Table:
    several = len(found.nodes) > 1
    rows = _joined((one.node, as_code(one.iterator), *_settings(one)) for one in found.setups)
    return Table(
        label="DataLoader settings",
        caption="DataLoader settings." + formats.not_shown(found.setups_left_out, "row"),
        heads=node_heads(":Iterator", "num_workers", "Pinned memory", "Fetches", several=several),
        rows=rows if several else [cells for _, *cells in rows],
    )


def _settings(one: LoaderSetup) -> tuple[str, str, str]:
    workers = "not recorded" if one.num_workers is None else formats.number(one.num_workers, 0)
    if one.num_workers == 0:
        workers = "0, in the training process"
    pinned = {True: "yes", False: "no", None: "not recorded"}[one.pin_memory]
    return workers, pinned, formats.number(one.fetches, 0)
