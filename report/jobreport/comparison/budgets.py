"""Limits that a user sets for measures, and whether the variants keep them."""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from jobreport.comparison.document import Budget, Word
from jobreport.comparison.measures import BY_KEY
from jobreport.comparison.runs import together
from jobreport.errors import UsageError
from jobreport.user_files import MAX_TOML, read, read_toml
from jobrules.text import NBSP, escape_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobreport.comparison.document import Change, Measure
    from jobreport.comparison.runs import RunOf, Together

LEVELS = ("error", "warn")
_KEYS = {"measure", "max", "min", "max_increase", "max_decrease", "level", "runs"}
_SHORT = re.compile(r"\s*([A-Za-z0-9_]+)\s*(<=|>=)\s*([-+0-9.eE]+)(%?)\s*")
MET, BROKEN, INCONCLUSIVE = "met", "broken", "inconclusive"


class Limit(Struct, frozen=True, kw_only=True):
    """A limit as the user wrote it."""

    measure: str
    #: ``max``, ``min``, ``max_increase``, or ``max_decrease``.
    kind: str
    amount: float
    #: True if the amount is percent of the base.
    relative: bool = False
    level: str = "error"
    #: The variants it is for; all but the base if empty.
    runs: str = ""

    @property
    def words(self) -> str:
        """``at most 5``, ``at most 5% more``."""
        unit = BY_KEY[self.measure].unit
        of_change = "%" if self.relative else f"{NBSP}points" if unit == "%" else f"{NBSP}{unit}"
        of_value = "%" if unit == "%" else f"{NBSP}{unit}"
        amount = f"{self.amount:,.10g}{of_change if 'crease' in self.kind else of_value}"
        amount = amount.removesuffix(f"{NBSP}money")
        return {
            "max": f"at most {amount}",
            "min": f"at least {amount}",
            "max_increase": f"at most {amount} more",
            "max_decrease": f"at most {amount} less",
        }[self.kind]


def limits_of(texts: Sequence[str]) -> tuple[Limit, ...]:
    """All limits of the command line: of files, and single ones."""
    return tuple(
        limit for text in texts for limit in (read_budgets(Path(text)) if is_file(text) else [limit_of(text)])
    )


def is_file(text: str) -> bool:
    """Whether a budget of the command line is a file of budgets."""
    return text.endswith(".toml") or Path(text).is_file()


def read_budgets(path: Path) -> list[Limit]:
    """The limits of a file. Raises ``UsageError`` with what is wrong."""
    try:
        found = read_toml(read(path, MAX_TOML).decode())
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    rows = found.get("budget")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{path} has no tables [[budget]].")
    return [limit for row in rows for limit in _limits(str(path), row)]


def limit_of(text: str) -> Limit:
    """``cost<=5`` of the command line, or ``step_s<=+5%`` against the base. Raises ``UsageError``."""
    found = _SHORT.fullmatch(text)
    if found is None:
        raise UsageError(f"--budget {escape_name(text)}: neither a file nor MEASURE<=LIMIT.")
    name, sign, amount, percent = found.groups()
    kind, of_change, change = ("max", "max_increase", "+") if sign == "<=" else ("min", "max_decrease", "-")
    if percent:
        if not amount.startswith(change):
            raise UsageError(f"--budget {escape_name(text)}: a change is {sign}{change}5%, against the base.")
        kind, amount = of_change, f"{amount[1:]}%"
    else:
        _number("--budget", amount)
    return _limits("--budget", {"measure": name, kind: amount})[0]


def _limits(place: str, row: dict[str, Any]) -> list[Limit]:
    if unknown := sorted(row.keys() - _KEYS):
        raise UsageError(f"{place}: unknown key {escape_name(unknown[0])} of a budget.")
    name = str(row.get("measure", ""))
    if name not in BY_KEY:
        near = difflib.get_close_matches(name, BY_KEY, 1)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"{place}: unknown measure {escape_name(name)}.{meant}")
    level = row.get("level", "error")
    if level not in LEVELS:
        raise UsageError(f"{place}: level of {name} is {escape_name(str(level))}; choose from error, warn.")
    kinds = [kind for kind in ("max", "min", "max_increase", "max_decrease") if kind in row]
    if not kinds:
        raise UsageError(f"{place}: the budget of {name} has no limit.")
    found = []
    for kind in kinds:
        text = str(row[kind])
        relative = text.endswith("%")
        if relative and kind in ("max", "min"):
            raise UsageError(f"{place}: {kind} of {name} is a number, not a percentage.")
        amount = _number(f"{place}: {kind} of {name}", text.removesuffix("%"))
        found.append(
            Limit(
                measure=name,
                kind=kind,
                amount=amount,
                relative=relative,
                level=level,
                runs=str(row.get("runs", "")),
            )
        )
    return found


def _number(place: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{place}: {escape_name(text)} is no number.")
    return value


def judged(
    limits: Sequence[Limit],
    measures: Sequence[Measure],
    variants: Mapping[str, Sequence[RunOf]],
) -> list[Budget]:
    """All budgets, broken ones first, then inconclusive ones. Raises ``UsageError`` for a label that is not compared."""
    by_key = {one.key: one for one in measures}
    _, *others = variants
    runs = {label: together(variants[label]) for label in others}
    found = []
    for limit in limits:
        if limit.runs and limit.runs not in others:
            raise UsageError(
                f"A budget of {limit.measure} is for {escape_name(limit.runs)}, which is not compared."
            )
        for label in [limit.runs] if limit.runs else others:
            state, reason = _state(limit, by_key.get(limit.measure), label, runs[label])
            value = by_key[limit.measure].values[label] if limit.measure in by_key else None
            found.append(
                Budget(
                    measure=limit.measure,
                    limit=limit.words,
                    label=label,
                    value=value,
                    state=state,
                    level=limit.level,
                    reason=reason,
                )
            )
    order = (BROKEN, INCONCLUSIVE, MET)
    return sorted(found, key=lambda one: order.index(one.state))


def _state(limit: Limit, measure: Measure | None, label: str, runs: Together) -> tuple[str, str]:
    """The state, and for an inconclusive one the reason."""
    value = measure.values[label] if measure else None
    if measure is None or value is None:
        return INCONCLUSIVE, "not measured"
    change = measure.against[label]
    if limit.kind in ("max", "min"):
        kept = value <= limit.amount if limit.kind == "max" else value >= limit.amount
        if limit.kind == "max" and kept and (reason := BY_KEY[limit.measure].not_whole(runs)):
            return INCONCLUSIVE, reason
        return (MET if kept else BROKEN), ""
    base = next(iter(measure.values.values())) or 0.0
    if change.word in (Word.REFUSED, Word.NOT_MEASURED):
        return INCONCLUSIVE, f"{change.word}: {change.reason}"
    if limit.relative and not base:
        return INCONCLUSIVE, "the base is 0"
    return _change_state(limit, change, value, base)


def _change_state(limit: Limit, change: Change, value: float, base: float) -> tuple[str, str]:
    """Of a limit for the change: broken if all of the interval is beyond it."""
    sign = 1 if limit.kind == "max_increase" else -1
    moved = 100 * (value / base - 1) if limit.relative else value - base
    exceeds = sign * moved > limit.amount
    if change.low is None or change.high is None:
        return (INCONCLUSIVE, "not tested") if exceeds else (MET, "")
    ends = [_in_unit(end, limit, change, base) for end in (change.low, change.high)]
    low, high = min(sign * end for end in ends), max(sign * end for end in ends)
    if low > limit.amount:
        return BROKEN, ""
    if exceeds or high > limit.amount:
        return INCONCLUSIVE, "the interval holds the limit"
    return MET, ""


def _in_unit(end: float, limit: Limit, change: Change, base: float) -> float:
    """An end of the interval in the unit of the limit: percent of the base, or the unit of the measure."""
    if change.points is not None:
        return 100 * end / base if limit.relative else end
    return end if limit.relative else end / 100 * base
