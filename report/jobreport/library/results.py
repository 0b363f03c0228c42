"""What a report holds, as frames."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from jobreport.library.frames import DURATION, UTC_TIME, frame, of_rows
from jobrules.model import Metric, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import pandas as pd

    from jobreport.library.frames import Clock
    from jobreport.remarks import Quality
    from jobrules.analyses.rank_waits import WaitsOfRanks
    from jobrules.model import PanelFacts

_US = timedelta(microseconds=1)
#: Columns by name: the type, and the field that the values are in, or what computes them.
Table: TypeAlias = "Mapping[str, tuple[str, str | Callable[[Any], Any]]]"


def of_part(place: int, kind: str, *names: str) -> Table:
    """Columns of fields of one of the things that make up a row."""

    def value(name: str) -> Callable[[Any], Any]:
        field = attrgetter(name)
        return lambda row: field(row[place])

    return {name: (kind, value(name)) for name in names}


SOURCES: Table = {"kind": ("str", "source"), "files": ("int64", "files"), "rows": ("int64", "rows")}
QUALITY: Table = {
    "source": ("str", itemgetter(0)),
    "code": ("str", lambda remark: remark[1].code),
    **of_part(1, "str", "action"),
    **of_part(1, "int64", "count"),
    **of_part(1, "str", "unit", "reason", "place"),
}
METRICS: Table = {
    "metric": ("str", lambda panels: str(panels[0].metric)),
    "label": ("str", lambda panels: panels[0].metric.label),
    "unit": ("str", lambda panels: panels[0].metric.unit),
    "nodes": ("int64", len),
    "devices": ("int64", lambda panels: sum(len(one.devices) for one in panels)),
    "snapshots": ("int64", lambda panels: sum(one.snapshots for one in panels)),
    "interval": (DURATION, lambda panels: sorted(one.interval_us for one in panels)[len(panels) // 2]),
}
FINDINGS: Table = {
    "key": ("str", "key"),
    "severity": ("str", lambda one: str(one.severity)),
    "title": ("str", "title"),
    "evidence": ("str", lambda one: in_words(one.evidence)),
    "advice": ("str", lambda one: " ".join(one.advice)),
    "share": ("float64", "share"),
    "share_of": ("str", "share_of"),
    "gpu_s": ("float64", "gpu_s"),
    "devices": ("object", "devices"),
    "start": (UTC_TIME, "start_us"),
    "end": (UTC_TIME, "end_us"),
}
TIME_USE: Table = {
    "part": ("str", "key"),
    "label": ("str", "label"),
    "role": ("str", "role"),
    "share": ("float64", lambda one: one.percent / 100),
    "device_s": ("float64", lambda one: one.amount * 3600),
    "finding": ("str", "finding"),
}
PHASES: Table = {
    "name": ("str", "label"),
    "start": (UTC_TIME, "start_us"),
    "start_us": ("int64", "start_us"),
    "end": (UTC_TIME, "end_us"),
    "end_us": ("int64", "end_us"),
    "duration": (DURATION, lambda one: one.end_us - one.start_us),
    "share": ("float64", lambda one: one.percent / 100),
}
RULES: Table = {
    "rule": ("str", "name"),
    "status": ("str", lambda one: str(one.status)),
    "reason": ("str", lambda one: str(one.reason or "")),
    "headline": ("str", "headline"),
    **{name: ("int64", name) for name in ("triggered", "violations", "datapoints", "evaluated", "violating")},
    "share": ("float64", "severity"),
    "first": (UTC_TIME, "first_us"),
    "last": (UTC_TIME, "last_us"),
}
PROFILES: Table = {
    "node": ("str", "node"),
    "worker": ("str", "rank"),
    "profiler": ("str", "profiler"),
    "start": (UTC_TIME, "start_us"),
    "start_us": ("int64", "start_us"),
    "end_us": ("int64", "end_us"),
    "begin": ("str", "begin"),
    "until": ("str", "end"),
    "functions": ("int64", "count"),
    "self_s": ("float64", "self_s"),
}
#: Of a profile and a function.
FUNCTIONS: Table = {
    "node": ("str", lambda one: one[0].node),
    "worker": ("str", lambda one: one[0].rank),
    "profiler": ("str", lambda one: one[0].profiler),
    "start_us": ("int64", lambda one: one[0].start_us),
    "function": ("str", lambda one: one[1].name),
    **of_part(1, "str", "file"),
    **of_part(1, "int64", "line"),
    **of_part(1, "Int64", "calls"),
    **of_part(1, "float64", "self_s", "total_s"),
}
CODE_LINES: Table = {
    "line": ("str", lambda one: one.place.name),
    "call": ("str", lambda one: one.place.call),
    "kind": ("str", "kind"),
    "processes": ("int64", "processes"),
    "worker": ("str", "rank"),
    **{name: ("int64", name) for name in ("samples", "idle", "busy")},
}
RANK_WAITS: Table = {
    "node": ("str", lambda one: one[0].node),
    "worker": ("str", lambda one: one[0].rank),
    "late": ("bool", lambda one: one[3]),
    "step_us": ("float64", lambda one: one[0].step_us),
    "part": ("str", lambda one: one[1].key),
    "phase": ("str", lambda one: one[1].event_type),
    "median_us": ("float64", lambda one: one[0].median_us[one[2]]),
    "p90_us": ("float64", lambda one: one[0].p90_us[one[2]]),
}
#: Of a comparison; ``this`` and ``other`` are its labels.
MEASURES: Table = {
    **{name: ("str", name) for name in ("key", "label", "unit")},
    "this": ("float64", lambda one: one.values["this"]),
    "other": ("float64", lambda one: one.values["other"]),
    "word": ("str", lambda one: str(one.against["other"].word)),
    "change_percent": ("float64", lambda one: one.against["other"].change),
    "points": ("float64", lambda one: one.against["other"].points),
    "low": ("float64", lambda one: one.against["other"].low),
    "high": ("float64", lambda one: one.against["other"].high),
    "reason": ("str", lambda one: one.against["other"].reason),
}
DIFFERENCES: Table = {
    "fact": ("str", "label"),
    "kind": ("str", "kind"),
    "this": ("object", lambda one: one.values.get("this")),
    "other": ("object", lambda one: one.values.get("other")),
}


def table(columns: Table, rows: Iterable[Any], clock: Clock, attrs: Mapping[str, Any]) -> pd.DataFrame:
    """A frame with a row for each of these."""
    rows = list(rows)
    found: dict[str, Any] = {}
    for name, (kind, field) in columns.items():
        values = tuple(getattr(one, field) if isinstance(field, str) else field(one) for one in rows)
        found[name] = clock.moments(values) if kind == UTC_TIME else values
    return frame({name: kind for name, (kind, _) in columns.items()}, found, **attrs)


def remarks(quality: Quality) -> Iterable[Any]:
    """Each with its source, which is empty for files that no reader took."""
    for source, found in [("", quality.remarks), *((one.source, one.remarks) for one in quality.sources)]:
        yield from ((source, one) for one in found)


def by_metric(panels: Iterable[PanelFacts]) -> Iterable[list[PanelFacts]]:
    """The panels of each metric."""
    found: dict[Metric, list[PanelFacts]] = {}
    for one in panels:
        found.setdefault(one.metric, []).append(one)
    return (found[one] for one in Metric if one in found)


def of_ranks(waits: WaitsOfRanks) -> Iterable[Any]:
    """Each rank with each phase, the place of the phase, and whether the others wait for the rank."""
    for i, rank in enumerate(waits.ranks):
        yield from ((rank, phase, place, i < waits.late) for place, phase in enumerate(waits.phases))


def widened(made: pd.DataFrame, index: str, columns: list[str], values: str, one_of: str) -> pd.DataFrame:
    """A column for each series, in the order of the categories; of a value that is there twice, the last one.

    Raises ``ValueError`` for several of what must be one, such as a unit.
    """
    import pandas as pd  # noqa: PLC0415 - a second

    several = made[one_of].unique().tolist()
    if len(several) > 1:
        raise ValueError(f"one {one_of} at a time, not {', '.join(map(repr, several))}; choose one")
    once = made.drop_duplicates([index, *columns], keep="last")
    wide = once.pivot(index=index, columns=columns, values=values)
    names = (one if isinstance(one, str) else "/".join(one) for one in wide.columns)
    wide.columns = pd.Index([*names], dtype="str")
    wide.attrs = made.attrs
    return wide


SUMMARY = {
    **dict.fromkeys(("node", "kind", "name", "unit"), "str"), **dict.fromkeys(("mean", "min", "max"), "float64"),
    "total_us": "Int64",
}  # fmt: skip


def summary(metrics: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """What happened in a window: metrics, then event types."""
    totals = events.groupby(["node", "phase"], observed=True)["duration_us"].sum().reset_index()
    figures = metrics[["node", "metric", "unit", "mean", "min", "max"]]
    rows: list[Any] = [
        (node, "metric", name, *more, None) for node, name, *more in figures.itertuples(index=False)
    ]
    for node, name, total in totals.itertuples(index=False):
        rows.append((node, "event type", name, "us", None, None, None, total))
    made = of_rows(SUMMARY, rows)
    made.attrs = metrics.attrs | {"reason": ""}
    return made


def exported(table: Any, path: Path) -> Path:
    """A frame, or what gives it, in the file."""
    made = table() if callable(table) else table
    lengths = {str(name): made[name] // _US for name in made if str(made.dtypes[name]) == DURATION}
    made = made.assign(**lengths)
    # Attributes of a frame are no part of a table.
    made.attrs.clear()
    if path.suffix == ".parquet":
        made.to_parquet(path)
    elif path.suffix == ".csv":
        made.to_csv(path, index=False)
    else:
        made.to_json(path, orient="records", lines=True, date_format="iso", date_unit="us")
    return path
