"""How data was loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.data_loading import (
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
from jobreport.figures.embed import document_json
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.analyses.data_loading import ADEQUATE, LOG_FROM, TOO_FEW, TOO_MANY
from jobrules.dataloader import Dataloader

if TYPE_CHECKING:
    from bokeh.models import Plot

    from jobreport.document import Report
    from jobreport.figures.chart import Drawing
    from jobrules.analyses.data_loading import DataLoading, LoadersAtWork, LoaderSetup, NodeLoading, Spread

#: Nodes told in a sentence each.
_MOST_TOLD = 4
#: A longer table is folded away.
MOST_OPEN_ROWS = 16
#: Training hardly waits for data if a fetch takes no more than this share of a step, and does from the other on.
HARDLY, WAITS = 0.05, 0.2

_KINDS = {
    "fetch": "Fetch of a batch",
    "distance": "From one fetch to the next of its process",
    "set-up": "Set-up of an iterator",
}


class Block(Struct, frozen=True, kw_only=True):
    """The drawing of a node's loaders at work."""

    id: str
    title: str
    label: str
    drawing: Drawing


class Row(Struct, frozen=True, kw_only=True):
    """A line of a table as printed."""

    name: str
    values: tuple[str, ...]
    #: A word at the end.
    word: str = ""


@error_boundary
def data_loading(report: Report) -> Fragment:
    """Loaders against cores, fetch times, and how many loaders were at work when."""
    found = report.data_loading
    place = heading("data-loading", report)
    if found is None:
        html = render(
            "data_loading",
            heading=place,
            nodes=(),
            vendor=report.origin is Origin.DEBUGGER_RESULTS,
            vendor_card=report.origin is Origin.DEBUGGER_RESULTS
            and any(card.name == Dataloader.__name__ for card in report.rules),
        )
        return Fragment(name="data-loading", html=html)
    bins = histogram(found.fetches) if found.fetches else None
    flat = _flat(found)
    blocks, figures = ([], {}) if flat else _at_work(found)
    if bins:
        figures = {"live-data-loading-fetches": fetch_plot(bins), **figures}
    unit = unit_for(found.fetches.p50_s) if found.fetches else unit_for(1)
    nodes = _joined([_node_row(node) for node in found.nodes])
    html = render(
        "data_loading",
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
        figures=document_json("data-loading", figures) if figures else "",
        flat=flat,
        times_unit=_times_unit(found).name,
        times=_times_rows(found),
        lives=_lives(found),
        nodes=nodes,
        nodes_folded=len(nodes) > MOST_OPEN_ROWS,
        nodes_left_out=found.nodes_left_out,
        setups=_joined([_setup_row(one) for one in found.setups]),
        setups_left_out=found.setups_left_out,
        several=len(found.nodes) > 1,
        limits=_limits(found),
    )
    return Fragment(name="data-loading", html=html)


def _limits(found: DataLoading) -> str:
    return f"{found.min_percent:g} to {found.max_percent:g}%"


def _wait(found: DataLoading) -> str:
    """How long a fetch takes against a step: whether training waits for data; empty where one is not known."""
    times, step = found.fetches, found.step
    if times is None or step is None or not step.p50_s:
        return ""
    what = f"{formats.escape_name(step.mode, 24)} step" if step.mode else "step"
    both = times.p50_s, step.p50_s
    common = unit_for(max(both))
    fetch, lasted = (
        _short(one, common if min(both) >= 0.1 * common.factor else unit_for(one)) for one in both
    )
    fact = f"A fetch takes {fetch} at the median, a {what} {lasted}"
    return f"{fact}: {_waiting(found)}."


def _waiting(found: DataLoading) -> str:
    """Whether training waits, in words; empty where it is not known."""
    if found.fetches is None or found.step is None or not found.step.p50_s:
        return ""
    part = found.fetches.p50_s / found.step.p50_s
    return (
        _HARDLY
        if part <= HARDLY
        else "training waits for data"
        if part >= WAITS
        else "training waits little for data"
    )


_HARDLY = "training hardly waits for data"


def _short(seconds: float, unit: Unit) -> str:
    return f"{unit.text(seconds)}{formats.NBSP}{unit.name}"


def _sentences(found: DataLoading) -> list[str]:
    """Whether training waits, loaders against cores, the odd nodes first, then what the set-up says."""
    ranked = sorted(found.nodes, key=lambda node: (node.answer in ("", ADEQUATE), node.answer == ""))
    alike: dict[str, list[NodeLoading]] = {}
    for node in ranked:
        alike.setdefault(_against_cores(node, found), []).append(node)
    several = len(found.nodes) > 1
    told = [_wait(found)] if _wait(found) else []
    for sentence, nodes in list(alike.items())[:_MOST_TOLD]:
        names = formats.join_names([formats.escape_name(node.name, 40) for node in nodes], 3)
        if len(nodes) == len(found.nodes) and several:
            names = f"Each of {formats.count(len(nodes), 'node')}"
        told.append(f"{names}: {sentence}" if several else sentence)
    more = found.nodes_left_out + sum(len(nodes) for nodes in list(alike.values())[_MOST_TOLD:])
    if more:
        told.append(f"{formats.count(more, 'more node')} {'is' if more == 1 else 'are'} in the table.")
    with_gpus = {node.name for node in found.nodes if node.gpus}
    loose = [one for one in found.setups if one.pin_memory is False and one.node in with_gpus and one.fetches]
    if loose:
        kinds = formats.join_names(
            list(dict.fromkeys(formats.escape_name(one.iterator, 60) for one in loose)), 3
        )
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


def _against_cores(node: NodeLoading, found: DataLoading) -> str:
    if node.loaders is None:
        return f"how many loaders were at work is not known: {node.reason}."
    kind = "loader thread" if node.pipeline else "loader process"
    loaders = formats.count(node.loaders, kind, kind + ("s" if node.pipeline else "es"))
    aside = "; counting threads of TensorFlow's data pipeline is experimental" if node.pipeline else ""
    if not node.cores:
        return f"{loaders} (median); not judged: CPU was not sampled{aside}."
    part = formats.percent(node.of_cores_percent or 0.0)
    fact = f"{loaders} on {formats.count(node.cores, 'core')}, {part}; Dataloader asks for {_limits(found)}"
    if not node.answer:
        return f"{fact}, but did not judge: {node.reason}{aside}."
    before = ""
    if node.answer == ADEQUATE and node.violating:
        before = f" at the end, and outside of that in {node.violating} of {formats.count(node.evaluated, 'minute')}"
    if node.answer == TOO_FEW and _waiting(found) == _HARDLY:
        return f"{fact}: {node.answer} by that rule, at little cost while training hardly waits{aside}."
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
        f"95% no more than {p95}."
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
    where = f" on {formats.escape_name(line.node, 40)}" if len(found.at_work) > 1 else ""
    if not line.node and len(found.nodes) > 1:
        where = f" on {len(found.nodes) + found.nodes_left_out}{formats.NBSP}nodes together"
    cores = f", which {'has' if len(found.at_work) > 1 else 'have'}" if where else ""
    on = f" on {formats.count(line.cores, 'core')}" if line.cores and not where else ""
    if line.cores and where:
        on = f"{cores} {formats.count(line.cores, 'core')}"
    return f"{many[0].upper()}{many[1:]} at work{where}{on}."


def _flat(found: DataLoading) -> str:
    """What there is to say of loaders at work whose number never changed; empty where it did."""
    numbers = {n for line in found.at_work for n in (*line.low, *line.high) if n is not None}
    if len(numbers) != 1:
        return ""
    noun = "thread" if all(node.pipeline for node in found.nodes) else "loader"
    many = f"{formats.count(max(numbers), noun)} {'was' if numbers == {1} else 'were'}"
    where = " on each node" if len(found.at_work) > 1 else ""
    if not found.at_work[0].node and len(found.nodes) > 1:
        where = f" on {len(found.nodes) + found.nodes_left_out}{formats.NBSP}nodes together"
    return f"{many} at work{where} in every second with data loading."


def _at_work(found: DataLoading) -> tuple[list[Block], dict[str, Plot]]:
    blocks: list[Block] = []
    figures: dict[str, Plot] = {}
    if not found.columns or not found.at_work:
        return blocks, figures
    axes = work_axes(found.columns, found.at_work)
    for i, line in enumerate(found.at_work):
        element = f"live-data-loading-{i}"
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
        return formats.escape_name(line.node, 60)
    return f"All {len(found.nodes) + found.nodes_left_out}{formats.NBSP}nodes together"


def _label(line: LoadersAtWork) -> str:
    low = min(low for low in line.low if low is not None)
    high = max(high for high in line.high if high is not None)
    limit = f", against {formats.count(line.cores, 'core')}" if line.cores else ""
    return f"Loaders at work over time: from {low} to {high}{limit}."


def _in_table(found: DataLoading) -> list[Spread]:
    return [one for one in found.times if one.key in _KINDS]


def _times_unit(found: DataLoading) -> Unit:
    """The unit of the table of times: the one that suits the first of its rows."""
    return unit_for(next((one.p50_s for one in _in_table(found)), 1.0))


def _times_rows(found: DataLoading) -> list[Row]:
    kept, factor = _in_table(found), _times_unit(found).factor
    columns = [
        [formats.number(one.count, 0) for one in kept],
        *(_even([getattr(one, name) / factor for one in kept]) for name in ("p50_s", "p95_s", "max_s")),
        _even([one.total_s for one in kept]),
        [formats.number(one.outliers, 0) for one in kept],
    ]
    return [
        Row(name=_KINDS[one.key], values=values)
        for one, values in zip(kept, zip(*columns, strict=True), strict=True)
    ]


def _even(values: list[float]) -> list[str]:
    """A column with the decimals that give its first value three digits and leave none at 0, two at most."""
    first, least = next(iter(values), 0.0), min((value for value in values if value), default=1.0)
    digits = max(
        0 if first >= 100 else 1 if first >= 10 else 2, 0 if least >= 1 else 1 if least >= 0.1 else 2
    )
    return [formats.number(value, digits) for value in values]


def _lives(found: DataLoading) -> str:
    """How long loading processes lived, which is another order of time than fetches; empty where not recorded."""
    one = next((one for one in found.times if one.key == "worker"), None)
    if one is None:
        return ""
    longest = f", the longest {formats.duration(one.max_s * 1e6)}" if one.count > 1 else ""
    lived = f"lived {formats.duration(one.p50_s * 1e6)}{' at the median' if one.count > 1 else ''}"
    return f"{formats.count(one.count, 'loading process', 'loading processes')} {lived}{longest}."


def _joined(rows: list[Row]) -> list[Row]:
    """Rows of nodes that print alike as one: ``6 nodes, alike``, or by name where others differ."""
    alike: dict[Row, list[str]] = {}
    for row in rows:
        alike.setdefault(replace(row, name=""), []).append(row.name)
    every = len({row.name for row in rows})
    return [replace(row, name=_alike(names, every)) for row, names in alike.items()]


def _alike(names: list[str], every: int) -> str:
    if len(names) == 1:
        return formats.escape_name(names[0], 32)
    listed = formats.join_names([formats.escape_name(name, 24) for name in names], 3)
    return f"{formats.count(every, 'node') if len(names) == every else listed}, alike"


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


def _setup_row(one: LoaderSetup) -> Row:
    pinned = {True: "yes", False: "no", None: "not recorded"}[one.pin_memory]
    workers = "not recorded" if one.num_workers is None else formats.number(one.num_workers, 0)
    if one.num_workers == 0:
        workers = "0, in the training process"
    return Row(name=one.node, values=(workers, pinned, formats.number(one.fetches, 0)), word=one.iterator)
