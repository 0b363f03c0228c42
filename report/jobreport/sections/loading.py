"""How data was loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.embed import document_json
from jobreport.figures.loading import (
    Histogram,
    Unit,
    fetch_drawing,
    fetch_plot,
    histogram,
    unit_for,
    work_axes,
    work_drawing,
    work_plot,
)
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.data_loading import ADEQUATE, LOG_FROM, TOO_FEW, TOO_MANY

if TYPE_CHECKING:
    from bokeh.models import Plot

    from jobreport.document import Report
    from jobreport.figures.chart import Drawing
    from jobrules.data_loading import DataLoading, LoadersAtWork, NodeLoading, Spread

#: Nodes told in a sentence each.
_MOST_TOLD = 4
#: A longer table is folded away.
MOST_OPEN_ROWS = 16

_KINDS = {
    "fetch": "Fetch of a batch",
    "distance": "From one fetch to the next of its process",
    "worker": "Life of a loading process",
    "set-up": "Set-up of an iterator",
}


@dataclass(frozen=True, kw_only=True)
class Block:
    """The drawing of a node's loaders at work."""

    id: str
    title: str
    label: str
    drawing: Drawing


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table as printed."""

    name: str
    values: tuple[str, ...]
    #: A word at the end.
    word: str = ""


def loading(report: Report) -> Fragment:
    """Loaders against cores, fetch times, and how many loaders were at work when."""
    found = report.loading
    place = heading("loading")
    if found is None:
        html = render("loading", heading=place, nodes=(), why_none=_why_none(report))
        return Fragment(name="loading", html=html)
    bins = histogram(found.fetches) if found.fetches else None
    blocks, figures = _at_work(found)
    if bins:
        figures = {"live-loading-fetches": fetch_plot(bins), **figures}
    unit = unit_for(found.fetches.p50_s) if found.fetches else unit_for(1)
    html = render(
        "loading",
        heading=place,
        told=_sentences(found),
        fetch_caption=_fetch_caption(found, unit),
        fetch_drawing=fetch_drawing(bins) if bins else None,
        fetch_reading=_fetch_reading(found, bins, unit),
        bins=_bins(bins),
        work_caption=_work_caption(found),
        work_unit="threads" if all(node.pipeline for node in found.nodes) else "loaders",
        column=formats.duration(found.columns.width_us) if found.columns else "",
        has_holes=any(value is None for line in found.at_work for value in line.mean),
        has_cores=any(line.cores for line in found.at_work),
        blocks=blocks,
        figures=document_json("loading", figures) if figures else "",
        times=[_times_row(one) for one in found.times],
        nodes=[_node_row(node) for node in found.nodes],
        nodes_folded=len(found.nodes) > MOST_OPEN_ROWS,
        nodes_left_out=found.nodes_left_out,
        setups=[_setup_row(found, i) for i in range(len(found.setups))],
        setups_left_out=found.setups_left_out,
        several=len(found.nodes) > 1,
        limits=_limits(found),
        why_none="",
    )
    return Fragment(name="loading", html=html)


def _why_none(report: Report) -> str:
    if report.origin is Origin.VENDOR:
        return "Rule results hold no events of data loading; the card of Dataloader tells what it found."
    return "No event of data loading was recorded: the profiler writes them where it traces the data loader."


def _limits(found: DataLoading) -> str:
    return f"{found.min_percent:g} to {found.max_percent:g}{formats.NBSP}%"


def _sentences(found: DataLoading) -> list[str]:
    """Loaders against cores, the odd nodes first, then what the set-up says."""
    several = len(found.nodes) > 1
    ranked = sorted(found.nodes, key=lambda node: (node.answer in ("", ADEQUATE), node.answer == ""))
    told = [_against_cores(node, found, several=several) for node in ranked[:_MOST_TOLD]]
    more = len(found.nodes) + found.nodes_left_out - len(told)
    if more:
        told.append(f"{formats.count(more, 'more node')} {'is' if more == 1 else 'are'} in the table.")
    with_gpus = {node.name for node in found.nodes if node.gpus}
    loose = [one for one in found.setups if one.pin_memory is False and one.node in with_gpus and one.fetches]
    if loose:
        kinds = formats.listed(list(dict.fromkeys(formats.shown(one.iterator, 60) for one in loose)), 3)
        told.append(
            f"Batches of {kinds} are not pinned in memory. Set `pin_memory=True`: copies to the GPU are "
            "faster from pinned memory. It changes nothing where the GPUs do not wait for copies."
        )
    if any(node.prefetch is False for node in found.nodes):
        told.append(
            "The data pipeline does not fetch ahead. End it with `prefetch(AUTOTUNE)`, so that the next batch "
            "is prepared while the GPU works on this one."
        )
    return told


def _against_cores(node: NodeLoading, found: DataLoading, *, several: bool) -> str:
    where = f"{formats.shown(node.name, 40)}: " if several else ""
    if node.loaders is None:
        return f"{where}how many loaders were at work is not known: {node.reason}."
    kind = "loader thread" if node.pipeline else "loader process"
    loaders = formats.count(node.loaders, kind, kind + ("s" if node.pipeline else "es"))
    aside = "; counting threads of TensorFlow's data pipeline is experimental" if node.pipeline else ""
    if not node.cores:
        return f"{where}{loaders} (median); not judged: no CPU samples{aside}."
    part = formats.percent(node.of_cores_percent or 0.0)
    fact = f"{where}{loaders} on {formats.count(node.cores, 'core')}, {part}; Dataloader asks for {_limits(found)}"
    if not node.answer:
        return f"{fact}, but did not judge: {node.reason}{aside}."
    before = ""
    if node.answer == ADEQUATE and node.violating:
        before = f" at the end, and outside of that in {node.violating} of {formats.count(node.evaluated, 'minute')}"
    advice = {TOO_FEW: ". Raise `num_workers`", TOO_MANY: ". Lower `num_workers`"}.get(node.answer, "")
    if node.pipeline:
        advice = ""
    return f"{fact}: {node.answer}{before}{aside}{advice}."


def _fetch_caption(found: DataLoading, unit: Unit) -> str:
    times = found.fetches
    if times is None:
        return ""
    count = found.times[0].count
    if count == 1:
        return f"The only fetch of a batch took {unit.text(times.p50_s)}{formats.NBSP}{unit.name}."
    p50, p95 = (f"{unit_for(s).text(s)}{formats.NBSP}{unit_for(s).name}" for s in (times.p50_s, times.p95_s))
    return (
        f"Half of the {formats.count(count, 'fetch', 'fetches')} took no more than {p50}, "
        f"95{formats.NBSP}% no more than {p95}."
    )


def _fetch_reading(found: DataLoading, bins: Histogram | None, unit: Unit) -> str:
    """Unit, width and what lies beyond."""
    times = found.fetches
    if times is None or bins is None:
        return ""
    if times.log:
        reading = (
            f"The time axis is logarithmic, because the p95 is more than {LOG_FROM} times the median: each bin "
            f"ends at {times.step:.3g} times its start."
        )
    else:
        scale = unit_for(times.step)
        reading = (
            f"Time in {unit.name}, bins of {round(times.step / scale.factor, 6):g}{formats.NBSP}{scale.name}."
        )
    if times.beyond:
        most = unit_for(times.max_s)
        reading += (
            f" The last bar, beyond a gap, counts the {formats.count(times.beyond, 'fetch', 'fetches')} that took "
            f"longer, up to {most.text(times.max_s)}{formats.NBSP}{most.name}."
        )
    return reading


def _bins(bins: Histogram | None) -> list[Row]:
    """Bars that count something."""
    if bins is None:
        return []
    pairs = zip(bins.told, bins.heights.tolist(), strict=True)
    return [Row(name=told, values=(formats.number(n, 0),)) for told, n in pairs if n]


def _work_caption(found: DataLoading) -> str:
    """How many loaders were at work, and against how many cores."""
    if not found.at_work:
        return ""
    line = max(found.at_work, key=lambda one: max(high for high in one.high if high is not None))
    low = min(low for low in line.low if low is not None)
    high = max(high for high in line.high if high is not None)
    noun = "thread" if all(node.pipeline for node in found.nodes) else "loader"
    many = formats.count(high, noun) if low == high else f"{low} to {formats.count(high, noun)}"
    where = f" on {formats.shown(line.node, 40)}" if len(found.at_work) > 1 else ""
    if not line.node and len(found.nodes) > 1:
        where = f" on {len(found.nodes) + found.nodes_left_out}{formats.NBSP}nodes together"
    cores = f", which {'has' if len(found.at_work) > 1 else 'have'}" if where else ""
    on = f" on {formats.count(line.cores, 'core')}" if line.cores and not where else ""
    if line.cores and where:
        on = f"{cores} {formats.count(line.cores, 'core')}"
    return f"{many[0].upper()}{many[1:]} at work{where}{on}."


def _at_work(found: DataLoading) -> tuple[list[Block], dict[str, Plot]]:
    blocks: list[Block] = []
    figures: dict[str, Plot] = {}
    if not found.columns or not found.at_work:
        return blocks, figures
    axes = work_axes(found.columns, found.at_work)
    for i, line in enumerate(found.at_work):
        element = f"live-loading-{i}"
        figures[element] = work_plot(line, found.columns, axes)
        blocks.append(
            Block(
                id=element,
                title=_title(line, found),
                label=_label(line),
                drawing=work_drawing(line, found.columns, axes),
            )
        )
    return blocks, figures


def _title(line: LoadersAtWork, found: DataLoading) -> str:
    if line.node:
        return formats.shown(line.node, 60)
    return f"All {len(found.nodes) + found.nodes_left_out}{formats.NBSP}nodes together"


def _label(line: LoadersAtWork) -> str:
    low = min(low for low in line.low if low is not None)
    high = max(high for high in line.high if high is not None)
    limit = f", against {formats.count(line.cores, 'core')}" if line.cores else ""
    return f"Loaders at work over time: from {low} to {high}{limit}."


def _times_row(one: Spread) -> Row:
    return Row(
        name=_KINDS[one.key],
        values=(
            formats.number(one.count, 0),
            *(_seconds(value) for value in (one.p50_s, one.p95_s, one.max_s)),
            formats.number(one.total_s),
            formats.number(one.outliers, 0),
        ),
    )


def _seconds(value: float) -> str:
    return formats.number(value, 4)


def _node_row(node: NodeLoading) -> Row:
    return Row(
        name=node.name,
        values=(
            "threads" if node.pipeline else "processes",
            formats.known(node.loaders, 0),
            formats.known(node.mean),
            formats.known(node.lowest, 0),
            formats.known(node.highest, 0),
            formats.number(node.cores, 0) if node.cores else "not measured",
            formats.known(node.of_cores_percent),
            formats.number(node.seconds, 0),
        ),
        word=node.answer or f"not judged: {node.reason}",
    )


def _setup_row(found: DataLoading, i: int) -> Row:
    one = found.setups[i]
    pinned = {True: "yes", False: "no", None: "not recorded"}[one.pin_memory]
    workers = "not recorded" if one.num_workers is None else formats.number(one.num_workers, 0)
    if one.num_workers == 0:
        workers = "0, in the training process"
    return Row(name=one.node, values=(workers, pinned, formats.number(one.fetches, 0)), word=one.iterator)
