"""Which rules run, with which thresholds: from a TOML file and the command line.

A file looks like this; what stands on the command line wins::

    ignore = ["BatchSize"]

    [LowGPUUtilization]
    threshold_p95 = 60
"""

from __future__ import annotations

import difflib
import math
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobreport.errors import UsageError
from jobrules import RULES, Rule
from jobrules.rule import parameter_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The rules that run, in the order of the report, and how that differs from the default."""

    rules: tuple[Rule, ...]
    #: Options that bring about these settings again, as typed on a command line.
    options: tuple[str, ...] = ()


def load(
    config: Path | None = None,
    assignments: Sequence[str] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Settings:
    """Settings from a file and from ``--set Rule.parameter=value``, ``--select`` and ``--ignore``.

    ``UsageError`` names what does not exist or does not fit, and the nearest that would.
    """
    values: dict[type[Rule], dict[str, Any]] = {}
    if config:
        try:
            tables = _read(config)
            select = [*select] or _names(tables.pop("select", []), "select")
            ignore = [*ignore, *_names(tables.pop("ignore", []), "ignore")]
            for name, table in tables.items():
                if not isinstance(table, dict):
                    raise UsageError(f"{name} should be a table of thresholds, [{name}], named after a rule.")
                for parameter, value in table.items():
                    values.setdefault(find_rule(name), {}).update(
                        [_checked(find_rule(name), parameter, value)]
                    )
        except UsageError as error:
            raise UsageError(f"{config}: {error}") from error
    for assignment in assignments:
        target, equals, text = assignment.partition("=")
        name, dot, parameter = target.partition(".")
        if not equals or not dot:
            raise UsageError(f"--set {assignment}: write Rule.parameter=value.")
        rule = find_rule(name.strip())
        values.setdefault(rule, {}).update([_checked(rule, parameter.strip(), text.strip())])
    chosen = {find_rule(name) for name in select} or set(RULES)
    chosen -= {find_rule(name) for name in ignore}
    rules = tuple(rule(**values.get(rule, {})) for rule in RULES if rule in chosen)
    if not rules:
        raise UsageError("No rule is left to run: --ignore takes away everything that --select leaves.")
    return Settings(rules=rules, options=tuple(_options(rules)))


def find_rule(name: str) -> type[Rule]:
    """A rule by its name, whatever its case."""
    return {rule.__name__.lower(): rule for rule in RULES}[
        nearest(name, [rule.__name__ for rule in RULES], "rule").lower()
    ]


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
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UsageError(f'{key} in the configuration should be a list of rule names, as ["BatchSize"].')
    return value


def _checked(rule: type[Rule], parameter: str, value: object) -> tuple[str, Any]:
    """The parameter's right name and its value in the right type and range."""
    known = {name: (default, metadata) for name, default, metadata in parameter_fields(rule)}
    if not known:
        raise UsageError(f"{rule.__name__} has no parameters.")
    name = nearest(parameter, known, f"parameter of {rule.__name__}")
    default, metadata = known[name]
    whole = isinstance(default, int)
    try:
        number = (
            math.nan
            if isinstance(value, bool)
            else float(value)
            if isinstance(value, int | float | str)
            else math.nan
        )
    except ValueError:
        number = math.nan
    low, high = metadata["low"], metadata["high"]
    fits = math.isfinite(number) and number >= low and (high is None or number <= high)
    if not fits or (whole and number != int(number)):
        bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{rule.__name__}.{name} = {value}: it should be {kind} {bounds}.")
    return name, int(number) if whole else number


def _options(rules: Sequence[Rule]) -> Iterable[str]:
    left_out = [rule.__name__ for rule in RULES if rule not in map(type, rules)]
    if left_out:
        yield f"--ignore {','.join(left_out)}"
    for rule in rules:
        for name, default, _ in parameter_fields(rule):
            value = getattr(rule, name)
            if value != default:
                yield f"--set {rule.name}.{name}={value:.15g}"
