"""What the GPUs drew, how warm they were, how fast they ran, and what held them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.figures.embed import document_json
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import has_time_lines, heading
from jobreport.sections.time_lines import POWER, REASONS, TimeLines
from jobrules.analyses.power import MOST_ROWS
from jobrules.measures.gpu_conditions import BUSY_PERCENT, MIN_SAMPLES, as_far_as_recorded
from jobrules.model import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobrules.analyses.power import GPUState

#: A longer table is folded away.
MOST_OPEN_ROWS = 16
#: From here on energy is told in kWh.
_KILO = 1000.0

#: Columns of the table: field, head, digits.
_COLUMNS = (
    ("power_mean", "Power, mean (W)", 1),
    ("power_max", "Power, highest (W)", 1),
    ("power_limit", "Power limit (W)", 0),
    ("energy_wh", "Energy (Wh)", 1),
    ("temperature_mean", "Temperature, mean (°C)", 1),
    ("temperature_max", "Temperature, highest (°C)", 0),
    ("clock_busy", "Clock while busy (MHz)", 0),
    ("clock_max", "Clock, highest (MHz)", 0),
    ("thermal_percent", "Slowed by heat (%)", 1),
    ("cap_percent", "Held by the power limit (%)", 1),
    ("hardware_percent", "Slowed by the hardware (%)", 1),
)
#: What holds a clock back: field, metric, what it did to a GPU, what it is.
_HELD = (
    ("thermal_percent", Metric.GPU_THERMAL_SLOWDOWN, "heat slowed", "by heat"),
    ("hardware_percent", Metric.GPU_HARDWARE_SLOWDOWN, "the hardware slowed", "by the hardware"),
    ("cap_percent", Metric.GPU_POWER_CAP, "the power limit held", "by the power limit"),
)
#: A smaller share is printed as 0.0.
_TINY = 0.05


class Row(Struct, frozen=True, kw_only=True):
    """A GPU as printed."""

    node: str
    device: str
    values: tuple[str, ...]


@error_boundary
def power(report: Report) -> Fragment:
    """Time lines of power, temperature, clock and slowdowns; a table of all GPUs."""
    states = report.power or ()
    place = heading("power", report)
    columns = [one for one in _COLUMNS if any(getattr(state, one[0]) is not None for state in states)]
    if not columns:
        html = render("power", heading=place, rows=(), why_none=_why_none(report))
        return Fragment(name="power", html=html)
    several = len({state.node for state in states}) > 1
    drawn = TimeLines.of(report, _drawn_keys(report))
    blocks, figures = drawn.draw("live-power") if has_time_lines(report) else ([], {})
    energy, (caption, told) = _energy(states), _caption(states, several=several)
    html = render(
        "power",
        heading=place,
        caption=caption,
        told=_sentences(report, states, told if blocks else ""),
        blocks=blocks,
        lines=drawn,
        figures=document_json("power", figures) if figures else "",
        heads=[energy[1] if name == "energy_wh" else head for name, head, _ in columns],
        note=_note(columns, states),
        rows=[_row(state, columns, energy[0]) for state in states],
        folded=len(states) > MOST_OPEN_ROWS,
        several=several,
        why_none="",
    )
    return Fragment(name="power", html=html)


def _why_none(report: Report) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "Rule results hold no power, temperature or clock."
    return "Neither power nor temperature nor clocks of a GPU were recorded."


def _drawn_keys(report: Report) -> set[str]:
    """Without slowdowns that never happened: words say so."""
    happened = {line.key for line in report.time_lines if line.highest}
    return {key for key in POWER if key not in REASONS or key in happened}


def _name(state: GPUState, *, several: bool) -> str:
    device = formats.escape_name(state.device, 24)
    return f"{formats.escape_name(state.node, 40)} {device}" if several else device


def _most(states: Sequence[GPUState], field: str) -> tuple[GPUState, float] | None:
    """The GPU with the highest value, and that; none where no GPU has one."""
    known = [(state, value) for state in states if (value := getattr(state, field)) is not None]
    return max(known, key=lambda one: one[1]) if known else None


def _caption(states: Sequence[GPUState], *, several: bool) -> tuple[str, str]:
    """What held a GPU back, with its field, before what it drew and how warm it was."""
    for field, _, did, _ in _HELD:
        most = _most(states, field)
        if most and most[1]:
            known = sum(getattr(state, field) is not None for state in states)
            of = f", the most of {formats.count(known, 'GPU')}" if known > 1 else ""
            text = (
                f"{did[:1].upper()}{did[1:]} {_name(most[0], several=several)} in {_share([most[1]])} "
                f"of the measured time{of}."
            )
            return text, field
    told = []
    drew, warm = _most(states, "power_max"), _most(states, "temperature_max")
    if drew:
        told.append(
            f"{_name(drew[0], several=several)} drew most, up to {formats.number(drew[1])}{formats.NBSP}W"
        )
    if warm:
        degrees = f"up to {formats.number(warm[1], 0)}{formats.NBSP}°C"
        told.append(f"{_name(warm[0], several=several)} grew warmest, {degrees}")
    clock = _most(states, "clock_max")
    if not told and clock:
        told.append(f"The highest clock is {formats.number(clock[1], 0)}{formats.NBSP}MHz")
    return f"{'; '.join(told)}." if told else "What held the clock of a GPU back.", ""


def _sentences(report: Report, states: Sequence[GPUState], above: str) -> list[str]:
    """What held GPUs back, what did not, and what nothing was recorded of; ``above`` is the field the caption tells of."""
    several = len({state.node for state in states}) > 1
    sampled = {line.key for line in report.time_lines}
    told: list[str] = []
    unknown: list[str] = []
    too_few: list[str] = []
    #: By the number of GPUs of which it is known.
    never: dict[int, list[str]] = {}
    for field, metric, did, what in _HELD:
        known = [(s, v) for s in states if (v := getattr(s, field)) is not None]
        slowed = [(s, v) for s, v in known if v]
        if slowed and (len(slowed) > 1 or field != above):
            names = formats.join_names([_name(state, several=several) for state, _ in slowed])
            part = _share([value for _, value in slowed])
            told.append(f"{did[:1].upper()}{did[1:]} {names} in {part} of the measured time.")
        elif known and not slowed:
            never.setdefault(len(known), []).append(what)
        elif not known and field == "thermal_percent" and any(s.hardware_percent for s in states):
            told.append("Whether heat slowed a GPU is not known: the hardware did, and no reason is named.")
        elif not known:
            (too_few if metric in sampled else unknown).append(what)
    only = next((f", only {what}" for field, _, _, what in _HELD if field == above and not told), "")
    # Of more GPUs than these, those that were held back most are there.
    gpus = max(len(states), 0 if len(states) >= MOST_ROWS else sum(node.gpus for node in report.job.nodes))
    for known_of, reasons in never.items():
        told.append(f"No GPU was slowed {_or(reasons)}{only}{as_far_as_recorded(known_of, gpus)}.")
    if too_few:
        told.append(f"Too few samples to tell: slowdown {_or(too_few)}.")
    missing = [
        word
        for word, field in (
            ("power", "power_mean"),
            ("temperature", "temperature_mean"),
            ("clocks", "clock_max"),
        )
        if _most(states, field) is None
    ]
    if unknown:
        missing.append("why a clock was low" if len(unknown) == len(_HELD) else f"slowdown {_or(unknown)}")
    if missing:
        told.append(f"Not recorded: {', '.join(missing)}.")
    measured = [state.energy_percent for state in states if state.energy_percent is not None]
    if measured and min(measured) < 100:
        told.append(
            f"The samples of power cover {formats.spread(measured)} of the job; energy is that of the time they cover."
        )
    return told


def _share(values: Sequence[float]) -> str:
    return formats.spread(values) if max(values) >= _TINY else "under 0.1%"


def _or(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _energy(states: Sequence[GPUState]) -> tuple[float, str]:
    """What energy is divided by, and the head of its column."""
    most = max((state.energy_wh or 0.0 for state in states), default=0.0)
    return (_KILO, "Energy (kWh)") if most >= _KILO else (1.0, "Energy (Wh)")


def _note(columns: Sequence[tuple[str, str, int]], states: Sequence[GPUState]) -> str:
    """What the columns mean that are there."""
    fields = {name for name, _, _ in columns}
    told = ["Means and shares count each sample for the time that it stands for"]
    if "clock_busy" in fields:
        told.append(f"the clock while busy is the median while the GPU's use was {BUSY_PERCENT:g}% or more")
    if any(None in (getattr(state, name) for name in fields) for state in states):
        busy = ", or never busy" if "clock_busy" in fields else ""
        few = (
            f", or with fewer than {MIN_SAMPLES} samples or no reason named"
            if fields & {one[0] for one in _HELD}
            else ""
        )
        told.append(f"–: not recorded{busy}{few}")
    return "; ".join(told) + "."


def _row(state: GPUState, columns: Sequence[tuple[str, str, int]], energy: float) -> Row:
    return Row(
        node=state.node,
        device=state.device,
        values=tuple(_cell(getattr(state, name), name, digits, energy) for name, _, digits in columns),
    )


def _cell(value: float | None, name: str, digits: int, energy: float) -> str:
    if name == "energy_wh" and value is not None:
        return formats.number(value / energy, 2 if energy == _KILO else digits)
    if value and value < _TINY and name in {one[0] for one in _HELD}:
        return "under 0.1"
    return formats.known(value, digits)
