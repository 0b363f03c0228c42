"""Rules of a user's own: from files that the command names, and from installed packages.

A package offers a rule through an entry point::

    [project.entry-points."jobreport.rules"]
    IdleCores = "my_package.rules:IdleCores"

Both run with the report's own rules, and nothing that a job directory holds is ever loaded.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from dataclasses import Field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from jobreport.errors import UsageError
from jobrules import RULES, Rule
from jobrules.rule import parameter_fields
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GROUP = "jobreport.rules"


class Known(Struct, frozen=True, kw_only=True):
    """The rules there are."""

    #: Ours, then those of packages by name, then those of files.
    rules: tuple[type[Rule], ...] = RULES
    #: Options that name the files again, without their folders.
    options: tuple[str, ...] = ()
    #: Rules of packages that could not be loaded, in words, with the reason.
    failed: tuple[str, ...] = ()


def known_rules(files: Sequence[Path] = ()) -> Known:
    """Our rules, those of installed packages, and those in the files.

    A file that holds no usable rule raises ``UsageError``; a package's rule that cannot be loaded is
    told in ``failed``, because whoever makes a report may not be who installed it.
    """
    rules, failed = list(RULES), []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            rule = point.load()
            _check(rule, rules)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the code of a package may do anything
            package = point.dist.name if point.dist else "an unknown package"
            reason = escape_name(f"{type(error).__name__}: {error}", 200)
            failed.append(f"the rule {escape_name(point.name)} of {escape_name(package)} ({reason})")
        else:
            rules.append(rule)
    for path in files:
        for rule in _in_file(path):
            try:
                _check(rule, rules)
            except TypeError as error:
                raise UsageError(f"{path}: {error}.") from error
            rules.append(rule)
    options = tuple(f"--rules {path.name}" for path in files)
    return Known(rules=tuple(rules), options=options, failed=tuple(failed))


def _in_file(path: Path) -> list[type[Rule]]:
    """The rules that a Python file defines, in their order."""
    name = f"jobreport_rules_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--rules {path}: a Python file is wanted, with a name that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.filename == str(path):
            raise UsageError(f"--rules {path} cannot be read: {error.strerror}.") from error
        raise UsageError(f"--rules {path} cannot be loaded: {type(error).__name__}: {error}.") from error
    rules = [one for one in vars(module).values() if _is_rule(one) and one.__module__ == name]
    if not rules:
        raise UsageError(
            f"--rules {path} defines no rule, that is, no subclass of jobrules.Rule with a check."
        )
    return rules


def _is_rule(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Rule) and not inspect.isabstract(thing)


def _check(rule: Any, others: Sequence[type[Rule]]) -> None:
    """Raise ``TypeError`` with a clause on what a rule lacks to be run and printed like ours."""
    if not _is_rule(rule):
        raise TypeError(f"{rule!r} is no subclass of jobrules.Rule with a check")
    name = rule.__name__
    if name.lower() in {other.__name__.lower() for other in others}:
        raise TypeError(f"there is a rule {name} already")
    if not isinstance(getattr(rule, "title", None), str):
        raise TypeError(f"{name} has no title")
    try:
        rule.documentation()
    except (KeyError, ValueError) as error:
        raise TypeError(
            f"the docstring of {name} needs the headings What it checks, Why it matters and What to do, "
            "each on a line of its own"
        ) from error
    fields = {field: metadata for field, _, metadata in parameter_fields(rule)}
    if any(isinstance(value, Field) for value in vars(rule).values()):
        raise TypeError(f"{name} should be decorated with @dataclass(frozen=True, kw_only=True)")
    bare = [
        field for field, metadata in fields.items() if not {"unit", "low", "high", "help"} <= metadata.keys()
    ]
    if bare:
        raise TypeError(
            f"{name}.{bare[0]} should be made by a function of jobrules.rule, as percent() or samples()"
        )
