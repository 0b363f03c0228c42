"""Power, temperature, and clocks of the GPUs, and what slowed them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.page.kit import Figure, Sentences, Table
from jobreport.page.kit.table import device_name, node_cells, node_heads
from jobreport.page.sections.outline import has_time_lines, not_recorded, section
from jobreport.page.sections.parts.time_lines import AID, POWER, REASONS, TimeLines
from jobrules.analyses.power import MAX_ROWS
from jobrules.measures.gpu_conditions import BUSY_PERCENT, MIN_SAMPLES, as_far_as_recorded
from jobrules.model import Metric
from jobrules.text import capitalized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.section import Content
    from jobrules.analyses.power import GPUState

#: Watt-hours from which energy is printed in kWh.
_KILO = 1000.0
#: A smaller percentage would be printed as 0.0.
_TINY = 0.05

_ENERGIES = ("energy_wh", "counted_wh")
#: Columns of the table: field, head, digits.
_COLUMNS = (
    ("power_mean", "Mean power (W)", 1),
    ("power_max", "Highest power (W)", 1),
    ("power_limit", "Power limit (W)", 0),
    ("energy_wh", "Energy (Wh)", 1),
    ("counted_wh", "Counted by the driver (Wh)", 1),
    ("temperature_mean", "Mean temperature (°C)", 1),
    ("temperature_max", "Highest temperature (°C)", 0),
    ("clock_busy", "Clock while busy (MHz)", 0),
    ("clock_max", "Highest clock (MHz)", 0),
    ("thermal_percent", "Slowed by heat (%)", 1),
    ("cap_percent", "Slowed by power limit (%)", 1),
    ("hardware_percent", "Slowed by hardware (%)", 1),
)


class Slowdown(Struct, frozen=True, kw_only=True):
    """Something that slows GPUs."""

    #: Of ``GPUState``, in percent of the GPU's time.
    field: str
    metric: Metric
    by: str


_SLOWDOWNS = (
    Slowdown(field="thermal_percent", metric=Metric.GPU_THERMAL_SLOWDOWN, by="heat"),
    Slowdown(field="hardware_percent", metric=Metric.GPU_HARDWARE_SLOWDOWN, by="the hardware"),
    Slowdown(field="cap_percent", metric=Metric.GPU_POWER_CAP, by="the power limit"),
)


@section
def power(report: Report) -> Content:
    """Time lines of power, temperature, clocks, and slowdowns; a table of all GPUs."""
    states = report.power or ()
    columns = [one for one in _COLUMNS if any(getattr(state, one[0]) is not None for state in states)]
    if not columns:
        return not_recorded("GPU power, temperature, or clock", in_results=report.of_debugger)
    several = len({state.node for state in states}) > 1
    lines, slowed = TimeLines.of(report, _drawn_keys(report)), _slowed_gpus(states)
    has_figure = bool(has_time_lines(report) and lines.names)
    return [
        Sentences([*([] if has_figure else slowed), *_sentences(report, states)]),
        Figure(
            name="power",
            title="Power, temperature, and clocks",
            finding=" ".join([*slowed, _highest(states, several=several)]),
            aid=AID,
            key=lines.key,
            drawings=[lines.side("power", named=several)],
            zoom="Power, temperature, and clocks",
            together="all lines together",
            reading=lines.reading,
            tables=[lines.table("power, temperature, and clocks")],
        )
        if has_figure
        else None,
        _table(states, columns, several=several),
    ]


def _drawn_keys(report: Report) -> set[str]:
    """Without slowdowns that never happened, which are a sentence."""
    happened = {line.key for line in report.time_lines if line.highest}
    return {key for key in POWER if key not in REASONS or key in happened}


def _known(states: Sequence[GPUState], field: str) -> list[tuple[GPUState, float]]:
    """The GPUs of which a field was recorded, each with its value."""
    return [(state, value) for state in states if (value := getattr(state, field)) is not None]


def _slowed(slowdown: Slowdown, slowed: Sequence[tuple[GPUState, float]], *, several: bool) -> str:
    names = formats.join_names(
        [device_name(state.node, state.device, several=several) for state, _ in slowed]
    )
    share = _share([percent for _, percent in slowed])
    return f"{capitalized(slowdown.by)} slowed {names} for {share} of the time."


def _highest(states: Sequence[GPUState], *, several: bool) -> str:
    """The highest power and temperature, else the highest clock."""

    def highest(field: str, what: str, unit: str, digits: int = 0) -> list[str]:
        state, value = max(_known(states, field), key=lambda one: one[1], default=(None, 0.0))
        if state is None:
            return []
        amount = f"{formats.number(value, digits)}{formats.NBSP}{unit}"
        return [f"highest {what}: {amount} ({device_name(state.node, state.device, several=several)})"]

    facts = highest("power_max", "power", "W", 1) + highest("temperature_max", "temperature", "°C")
    text = "; ".join(facts or highest("clock_max", "clock", "MHz") or ["slowdowns over time"])
    return f"{capitalized(text)}."


def _sentences(report: Report, states: Sequence[GPUState]) -> list[str]:
    """Causes that slowed no GPU, and sensors that were not recorded."""
    return [
        *_not_slowed(report, states),
        *_unknown_heat(states),
        *_not_recorded(report, states),
        *_energy_covers(states),
    ]


def _slowed_gpus(states: Sequence[GPUState]) -> list[str]:
    several = len({state.node for state in states}) > 1
    slowed = {one: [known for known in _known(states, one.field) if known[1]] for one in _SLOWDOWNS}
    return [_slowed(one, gpus, several=several) for one, gpus in slowed.items() if gpus]


def _not_slowed(report: Report, states: Sequence[GPUState]) -> list[str]:
    """Slowdowns that never happened, in one sentence for those recorded for equally many GPUs."""
    by_count: dict[int, list[str]] = {}
    for slowdown in _SLOWDOWNS:
        known = _known(states, slowdown.field)
        if known and not any(percent for _, percent in known):
            by_count.setdefault(len(known), []).append(slowdown.by)
    # A list that is cut holds the GPUs that were slowed most, so it speaks for all.
    is_cut = len(states) >= MAX_ROWS
    gpus = len(states) if is_cut else max(len(states), sum(node.gpus for node in report.job.nodes))
    return [
        f"No GPU was slowed by {_or(causes)}{as_far_as_recorded(known, gpus)}."
        for known, causes in by_count.items()
    ]


def _heat_is_unknown(states: Sequence[GPUState]) -> bool:
    """True if the hardware slowed a GPU and no source says whether for heat."""
    return not _known(states, "thermal_percent") and any(state.hardware_percent for state in states)


def _unknown_heat(states: Sequence[GPUState]) -> list[str]:
    if not _heat_is_unknown(states):
        return []
    return ["The driver does not say whether the hardware slowed GPUs for heat."]


def _not_recorded(report: Report, states: Sequence[GPUState]) -> list[str]:
    sampled = {line.key for line in report.time_lines}
    unknown = [
        slowdown
        for slowdown in _SLOWDOWNS
        if not _known(states, slowdown.field)
        and not (slowdown.field == "thermal_percent" and _heat_is_unknown(states))
    ]
    too_few = [slowdown.by for slowdown in unknown if slowdown.metric in sampled]
    absent = [slowdown.by for slowdown in unknown if slowdown.metric not in sampled]
    fields = {"power": "power_mean", "temperature": "temperature_mean", "clocks": "clock_max"}
    missing = [word for word, field in fields.items() if not _known(states, field)]
    if absent:
        missing.append("throttle reasons" if len(absent) == len(_SLOWDOWNS) else f"slowdown by {_or(absent)}")
    return [
        *([f"Too few samples: slowdown by {_or(too_few)}."] if too_few else []),
        *([f"Not recorded: {', '.join(missing)}."] if missing else []),
    ]


def _energy_covers(states: Sequence[GPUState]) -> list[str]:
    percents = [percent for _, percent in _known(states, "energy_percent")]
    if not percents or min(percents) >= 100:
        return []
    return [f"Energy is that of {formats.spread(percents)} of the job, for which power was recorded."]


def _share(values: Sequence[float]) -> str:
    return formats.spread(values) if max(values) >= _TINY else "under 0.1%"


def _or(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _energy(states: Sequence[GPUState]) -> tuple[float, str]:
    """Divisor of energy, and its unit."""
    most = max((state.energy_wh or state.counted_wh or 0.0 for state in states), default=0.0)
    return (_KILO, "kWh") if most >= _KILO else (1.0, "Wh")


def _note(columns: Sequence[tuple[str, str, int]], states: Sequence[GPUState]) -> str:
    fields = {name for name, _, _ in columns}
    sentences = []
    if "clock_busy" in fields:
        sentences.append(f"Clock while busy: median at a utilization of {BUSY_PERCENT:g}% or more.")
    if any(None in (getattr(state, name) for name in fields) for state in states):
        sentences.append(f"–: not recorded, or too few samples ({MIN_SAMPLES} for slowdowns).")
    return " ".join(sentences)


def _table(states: Sequence[GPUState], columns: Sequence[tuple[str, str, int]], *, several: bool) -> Table:
    unit, energy = _energy(states)
    heads = {"energy_wh": f"Energy ({energy})", "counted_wh": f"Counted by the driver ({energy})"}
    names = [heads.get(field, head) for field, head, _ in columns]
    return Table(
        label="Power, temperature, and clocks per GPU",
        caption="Sensors per GPU over the job.",
        aid=_note(columns, states),
        style="heads",
        heads=[*node_heads(":GPU", several=several), *names],
        rows=[
            [
                *node_cells(state.node, state.device, several=several),
                *(_cell(getattr(state, field), field, digits, unit) for field, _, digits in columns),
            ]
            for state in states
        ],
    )


def _cell(value: float | None, name: str, digits: int, energy: float) -> str:
    if name in _ENERGIES and value is not None:
        return formats.number(value / energy, 2 if energy == _KILO else digits)
    if value and value < _TINY and name in {slowdown.field for slowdown in _SLOWDOWNS}:
        return "under 0.1"
    return formats.known(value, digits)
