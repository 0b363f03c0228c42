"""Which rules run, with which thresholds: from a TOML file and the command line.

A file looks like this; what stands on the command line wins::

    ignore = ["BatchSize"]

    [LowGPUUtilization]
    threshold_p95 = 60
    patience = "10min"

``LowGPUUtilization_threshold_p95 = 60``, the vendor's way to write it, does the same.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from jobreport.errors import UsageError
from jobreport.plugins import Known
from jobrules import RULES, Rule
from jobrules.rule import parameter_fields, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)")
_SECONDS = {"ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3600}
_SHORTEST_S = 0.001
#: Past it a float is no exact number of samples any more.
_LARGEST = 10**15
#: No job lasts longer, and a time has an end.
_LONGEST_S = 10 * 366 * 86400


class Settings(Struct, frozen=True, kw_only=True):
    """The rules that run, in the order of the report, and how that differs from the default."""

    rules: tuple[Rule, ...]
    #: Options that bring about these settings again, as typed on a command line.
    options: tuple[str, ...] = ()
    #: Rules that could not be loaded, in words, with the reason.
    failed: tuple[str, ...] = ()


def load(
    config: Path | None = None,
    assignments: Sequence[str] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    offered: Known | None = None,
) -> Settings:
    """Settings from a file and from ``--set Rule.parameter=value``, ``--select`` and ``--ignore``.

    ``offered`` are the rules there are, ours unless given. ``UsageError`` names what does not exist or
    does not fit, and the nearest that would.
    """
    offered = offered or Known()
    known = offered.rules
    values: dict[type[Rule], dict[str, Any]] = {}

    def take(rule: type[Rule], parameter: str, value: object) -> None:
        values.setdefault(rule, {}).update([_checked(rule, parameter, value)])

    selected, ignored = ({find_rule(name, known) for name in names} for names in (select, ignore))
    if config:
        try:
            tables = _read(config)
            in_file = [
                {find_rule(name, known) for name in _names(tables.pop(key, None), key)}
                for key in ("select", "ignore")
            ]
            # A selection on the command line takes the place of the file's.
            selected, ignored = selected or in_file[0], ignored | in_file[1]
            for name, table in tables.items():
                if isinstance(table, dict):
                    for parameter, value in table.items():
                        take(find_rule(name, known), parameter, value)
                elif "_" in name:
                    take(*_debugger_form(name, known), table)
                else:
                    raise UsageError(f"{name} should be a table of thresholds, [{name}], named after a rule.")
        except UsageError as error:
            raise UsageError(f"{config}: {error}") from error
    for assignment in assignments:
        target, equals, text = assignment.partition("=")
        name, dot, parameter = target.strip().partition(".")
        if not equals or not (dot or "_" in name):
            raise UsageError(f"--set {assignment}: write Rule.parameter=value.")
        rule, parameter = (find_rule(name, known), parameter) if dot else _debugger_form(name, known)
        take(rule, parameter.strip(), text.strip())
    chosen = (selected or set(known)) - ignored
    try:
        rules = tuple(rule(**values.get(rule, {})) for rule in known if rule in chosen)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    if not rules:
        raise UsageError("No rule is left to run: --ignore takes away everything that --select leaves.")
    options = (*offered.options, *_options(rules, known))
    return Settings(rules=rules, options=options, failed=offered.failed)


def find_rule(name: str, known: Sequence[type[Rule]] = RULES) -> type[Rule]:
    """A rule by its name, whatever its case."""
    by_name = {rule.__name__: rule for rule in known}
    return by_name[nearest(name.strip(), by_name, "rule")]


def _debugger_form(name: str, known: Sequence[type[Rule]]) -> tuple[type[Rule], str]:
    """``LowGPUUtilization_threshold_p95``: rule and parameter, told apart at the first underscore."""
    rule, _, parameter = name.partition("_")
    return find_rule(rule, known), parameter


def nearest(name: str, known: Iterable[str], what: str) -> str:
    """The known name that equals ``name`` but for case; ``UsageError`` with the nearest one otherwise."""
    by_case = {k.lower(): k for k in known}
    if name.lower() in by_case:
        return by_case[name.lower()]
    close = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.5)
    hint = f"Did you mean {by_case[close[0]]}?" if close else f"Known: {', '.join(by_case.values())}."
    raise UsageError(f"There is no {what} {name!r}. {hint}")


def _read(config: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(config.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not valid TOML: {error}.") from error


def _names(value: object, key: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise UsageError(f'{key} in the configuration should be a list of rule names, as ["BatchSize"].')
    return value


def _checked(rule: type[Rule], parameter: str, value: object) -> tuple[str, Any]:
    """The parameter's right name and its value in the right type and range."""
    known = {name: (default, metadata) for name, default, metadata in parameter_fields(rule)}
    if not known:
        raise UsageError(f"{rule.__name__} has no parameters.")
    name = nearest(parameter, (*known, *rule.aliases), f"parameter of {rule.__name__}")
    name = rule.aliases.get(name, name)
    default, metadata = known[name]
    if default is None or isinstance(default, str):
        if not isinstance(value, str):
            raise UsageError(f"{rule.__name__}.{name} = {value}: it should be text.")
        return name, None if value.lower() in {"", "none"} else value
    return name, _number(f"{rule.__name__}.{name}", value, default, metadata)


def _number(name: str, value: object, default: float, metadata: dict[str, Any]) -> int | float | timedelta:
    """A number in its range, or a time where samples are counted."""
    whole, timed = isinstance(default, int), metadata["unit"] == "samples"
    if timed and isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        seconds = float(match[1]) * _SECONDS[match[2]]
        if _SHORTEST_S <= seconds <= _LONGEST_S:
            return timedelta(milliseconds=round(1000 * seconds))
    try:
        given = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
        )
    except (ValueError, OverflowError):
        given = math.nan
    low, high = metadata["low"], metadata["high"]
    fits = low <= given <= (_LARGEST if high is None else high)
    if not fits or (whole and given != int(given)):
        bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
        kind = "a whole number" if whole else "a number"
        or_time = ", or a time such as 500s or 10min" if timed else ""
        raise UsageError(f"{name} = {value}: it should be {kind} {bounds}{or_time}.")
    return int(given) if whole else given


def _options(rules: Sequence[Rule], known: Sequence[type[Rule]]) -> Iterable[str]:
    left_out = [rule.__name__ for rule in known if rule not in map(type, rules)]
    if left_out:
        yield f"--ignore {','.join(left_out)}"
    for rule in rules:
        for name, default, _ in parameter_fields(rule):
            value = written(getattr(rule, name))
            if value != default:
                shortest = f"{value:.15g}" if isinstance(value, float) else value
                yield f"--set {rule.name}.{name}={shortest}"
