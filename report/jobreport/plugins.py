"""Rules of users, from files that the command names and from installed packages.

A package offers a rule through an entry point::

    [project.entry-points."jobreport.rules"]
    IdleCores = "my_package.rules:IdleCores"

Both run after the rules of jobreport. No file of a job directory is ever loaded.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from dataclasses import Field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from jobreport.errors import UsageError
from jobreport.remarks import Remark
from jobrules import RULES, Rule
from jobrules.rule import parameter_fields
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.metadata import EntryPoint

GROUP = "jobreport.rules"


class Known(Struct, frozen=True, kw_only=True):
    """The rules to choose from."""

    #: Those of jobreport, then those of packages by name, then those of files.
    rules: tuple[type[Rule], ...] = RULES
    #: Options that name the files, without their folders.
    options: tuple[str, ...] = ()
    #: Rules of packages that could not be loaded.
    failed: tuple[Remark, ...] = ()


def known_rules(files: Sequence[Path] = ()) -> Known:
    """The rules of jobreport, of installed packages, and of the files.

    A file without a usable rule raises ``UsageError``. A package's rule that cannot be loaded is added to ``failed``
    instead, because the user may not be the one who installed the package.
    """
    rules, failed = list(RULES), []
    for point in sorted(_offered(), key=lambda point: (point.name, point.value)):
        try:
            rule = point.load()
            _check(rule, rules)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the code of a package may do anything
            package = point.dist.name if point.dist else "an unknown package"
            reason = escape_name(f"{type(error).__name__}: {error}", 200)
            text = f"the rule {escape_name(point.name)} of {escape_name(package)} ({reason})"
            failed.append(Remark(code="rules.not_loaded", count=1, fields={"error": text}))
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


def _offered() -> Iterable[EntryPoint]:
    """The entry points of the group. The slow import is left out if no file of an installed package names it."""
    installed = (file for folder in sys.path for file in Path(folder).glob("*.*-info/entry_points.txt"))
    if not any(map(_names_rules, installed)):
        return ()
    from importlib.metadata import entry_points  # noqa: PLC0415 - see above

    return entry_points(group=GROUP)


def _names_rules(file: Path) -> bool:
    try:
        return f"[{GROUP}]".encode() in file.read_bytes()
    except OSError:
        return False


def _in_file(path: Path) -> list[type[Rule]]:
    """The rules that a Python file defines, in their order."""
    name = f"jobreport_rules_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--rules {path}: expected a Python file with the suffix .py.")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.filename == str(path.absolute()):
            raise UsageError(f"Cannot read --rules {path}: {error.strerror}.") from error
        raise UsageError(f"Cannot load --rules {path}: {type(error).__name__}: {error}.") from error
    rules = [one for one in vars(module).values() if _is_rule(one) and one.__module__ == name]
    if not rules:
        raise UsageError(
            f"--rules {path} defines no rule: no subclass of jobrules.Rule with the method `check`."
        )
    return rules


def _is_rule(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Rule) and not inspect.isabstract(thing)


def _check(rule: Any, others: Sequence[type[Rule]]) -> None:
    """Raise ``TypeError`` with a clause on what a rule lacks."""
    if not _is_rule(rule):
        raise TypeError(f"{rule!r} is no subclass of jobrules.Rule with the method `check`")
    name = rule.__name__
    if name.lower() in {other.__name__.lower() for other in others}:
        raise TypeError(f"there is already a rule {name}")
    if not isinstance(getattr(rule, "title", None), str):
        raise TypeError(f"{name} has no title")
    try:
        rule.documentation()
    except (KeyError, ValueError) as error:
        raise TypeError(
            f"the docstring of {name} needs the headings What it checks, Why it matters and What to do, "
            "each on its own line"
        ) from error
    fields = {field: metadata for field, _, metadata in parameter_fields(rule)}
    if any(isinstance(value, Field) for value in vars(rule).values()):
        raise TypeError(f"{name} needs the decorator @dataclass(frozen=True, kw_only=True)")
    bare = [
        field for field, metadata in fields.items() if not {"unit", "low", "high", "help"} <= metadata.keys()
    ]
    if bare:
        raise TypeError(
            f"{name}.{bare[0]} needs a default from a function of jobrules.rule, such as percent() or samples()"
        )
