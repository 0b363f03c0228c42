"""The rules that run and their parameters, from a TOML file and the command line.

The command line overrides the file, which looks like this::

    ignore = ["BatchSize"]

    [LowGPUUtilization]
    threshold_p95 = 60
    patience = "10min"

``LowGPUUtilization_threshold_p95 = 60``, SageMaker Debugger's form, does the same.
"""

from __future__ import annotations

import difflib
import math
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from jobreport.errors import UsageError
from jobreport.plugins import Known
from jobreport.user_files import MAX_TOML, read, read_toml
from jobrules import RULES, Rule
from jobrules.rule import parameter_fields, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from jobreport.remarks import Remark

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)")
_SECONDS = {"ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3600}
#: A duration is from a millisecond to ten years; larger ones do not fit a ``timedelta``.
_MIN_S, _MAX_S = 0.001, 10 * 366 * 86400
#: A larger float is not an exact number of samples.
_MAX_NUMBER = 10**15


def seconds(text: str) -> float | None:
    """``10min`` in seconds; None for other text, and for a time out of range."""
    match = _DURATION.fullmatch(text.strip())
    amount = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    return amount if _MIN_S <= amount <= _MAX_S else None


class Settings(Struct, frozen=True, kw_only=True):
    """The rules that run, in the order of the report, and the options for it."""

    rules: tuple[Rule, ...]
    #: Options of a command line that give the same settings.
    options: tuple[str, ...] = ()
    #: The tables ``[[action]]``, as they stand in the file.
    actions: Any = ()
    #: Rules that could not be loaded.
    failed: tuple[Remark, ...] = ()


def load(
    config: Path | None = None,
    assignments: Sequence[str] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    offered: Known | None = None,
) -> Settings:
    """Settings from a file and from ``--set Rule.parameter=value``, ``--select`` and ``--ignore``.

    ``offered`` are the rules to choose from, by default those of jobreport. Raises ``UsageError`` for an unknown name,
    with the nearest known one, and for a value out of range.
    """
    offered = offered or Known()
    known = offered.rules
    actions: Any = []
    values: dict[type[Rule], dict[str, Any]] = {}

    def take(rule: type[Rule], parameter: str, value: object, option: str = "") -> None:
        name = _parameter_name(rule, parameter)
        try:
            values.setdefault(rule, {})[name] = _checked(rule, name, value)
        except ValueError as error:
            raise UsageError(f"{option or f'{rule.__name__}.{name} = {value}'}: expected {error}.") from error

    selected, ignored = ({find_rule(name, known) for name in names} for names in (select, ignore))
    if config:
        try:
            tables = _read(config)
            in_file = [
                {find_rule(name, known) for name in _names(tables.pop(key, None), key)}
                for key in ("select", "ignore")
            ]
            actions = tables.pop("action", [])
            # A selection on the command line replaces that of the file.
            selected, ignored = selected or in_file[0], ignored | in_file[1]
            for name, table in tables.items():
                if isinstance(table, dict):
                    for parameter, value in table.items():
                        take(find_rule(name, known), parameter, value)
                elif "_" in name:
                    take(*_debugger_form(name, known), table)
                else:
                    raise UsageError(f"{name}: expected a table of parameters, such as [BatchSize].")
        except UsageError as error:
            raise UsageError(f"{config}: {error}") from error
    for assignment in assignments:
        target, equals, text = assignment.partition("=")
        name, dot, parameter = target.strip().partition(".")
        if not equals or not (dot or "_" in name):
            raise UsageError(
                f"--set {assignment}: expected RULE.PARAMETER=VALUE, or a fact of the job such as instance_type=TYPE."
            )
        rule, parameter = (find_rule(name, known), parameter) if dot else _debugger_form(name, known)
        take(rule, parameter.strip(), text.strip(), f"--set {assignment}")
    chosen = (selected or set(known)) - ignored
    try:
        rules = tuple(rule(**values.get(rule, {})) for rule in known if rule in chosen)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    if not rules:
        raise UsageError("No rule is left to run: --ignore skips all rules that --select selects.")
    options = (*offered.options, *_options(rules, known))
    return Settings(rules=rules, options=options, actions=actions, failed=offered.failed)


def find_rule(name: str, known: Sequence[type[Rule]] = RULES) -> type[Rule]:
    """The rule with this name in any case; ``UsageError`` if there is none."""
    by_name = {rule.__name__: rule for rule in known}
    # SageMaker Debugger has a StalledTrainingRule.
    name, short = name.strip(), name.strip().removesuffix("Rule")
    name = short if short in by_name and name not in by_name else name
    found = known_name(name, by_name, "rule", "`--list-rules` shows all rules.")
    return by_name[found]


def _debugger_form(name: str, known: Sequence[type[Rule]]) -> tuple[type[Rule], str]:
    """``LowGPUUtilization_threshold_p95``: rule and parameter, separated at the first underscore."""
    rule, _, parameter = name.partition("_")
    return find_rule(rule, known), parameter


def known_name(name: str, known: Iterable[str], kind: str, hint: str) -> str:
    """The known name that equals ``name`` in any case; otherwise ``UsageError`` with the nearest one and the hint."""
    by_case = {k.lower(): k for k in known}
    if name.lower() in by_case:
        return by_case[name.lower()]
    close = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.5)
    guess = f"Did you mean {by_case[close[0]]}? " if close else ""
    raise UsageError(f"Unknown {kind} {name}. {guess}{hint}")


def _read(config: Path) -> dict[str, Any]:
    try:
        return read_toml(read(config, MAX_TOML).decode())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"not valid TOML: {error}.") from error


def _names(value: object, key: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise UsageError(f'{key}: expected a list of rule names, such as ["BatchSize"].')
    return value


def _parameter_name(rule: type[Rule], name: str) -> str:
    known = [name for name, _, _ in parameter_fields(rule)]
    if not known:
        raise UsageError(f"{rule.__name__} has no parameters.")
    hint = f"`--explain {rule.__name__}` shows all parameters."
    found = known_name(name, (*known, *rule.aliases), f"parameter of {rule.__name__}:", hint)
    return rule.aliases.get(found, found)


def _checked(rule: type[Rule], name: str, value: object) -> Any:
    """The value in the type of the parameter; ``ValueError`` with what was expected."""
    default, metadata = next(
        (default, metadata) for known, default, metadata in parameter_fields(rule) if known == name
    )
    if default is None or isinstance(default, str):
        if not isinstance(value, str):
            raise ValueError("text")
        return None if value.lower() in {"", "none"} else value
    return _number(value, default, metadata)


def _number(value: object, default: float, metadata: dict[str, Any]) -> int | float | timedelta:
    """A number in its range, or a time for a number of samples."""
    whole, timed = isinstance(default, int), metadata["unit"] == "samples"
    if timed and isinstance(value, str) and (amount := seconds(value)):
        return timedelta(milliseconds=round(1000 * amount))
    try:
        number = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
        )
    except (ValueError, OverflowError):
        number = math.nan
    low, high = metadata["low"], metadata["high"]
    if not low <= number <= (_MAX_NUMBER if high is None else high) or (whole and number != int(number)):
        kind = "a whole number" if whole else "a number"
        bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
        raise ValueError(f"{kind} {bounds}{', or a time such as 500s' if timed else ''}")
    return int(number) if whole else number


def _options(rules: Sequence[Rule], known: Sequence[type[Rule]]) -> Iterable[str]:
    ignored = [rule.__name__ for rule in known if rule not in map(type, rules)]
    if ignored:
        yield f"--ignore {','.join(ignored)}"
    for rule in rules:
        for name, default, _ in parameter_fields(rule):
            value = written(getattr(rule, name))
            if value != default:
                shortest = f"{value:.15g}" if isinstance(value, float) else value
                yield f"--set {rule.name}.{name}={shortest}"
