"""Write the documents that are generated from the code; ``PAGES`` lists them.

``make docs`` runs this. A test fails if a file differs from what this writes.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import typing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jobreport import cli, compare_cli, document
from jobreport.comparison import document as comparison
from jobreport.debugger_report import differences
from jobrules import RULES
from jobrules.rule import Rule, parameter_fields, with_unit

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parent


def rules_page() -> str:
    """Every rule: what it checks, why it matters, what to do, its parameters."""
    head = (
        "# The rules\n\nGenerated from the rules' docstrings by `make docs`. A rule triggers, passes, or is "
        "*not evaluated*, with the reason. Change a threshold with `--set Rule.parameter=value` or in a "
        "`--config` file.\n"
    )
    return "\n".join([head, *map(_rule, RULES)])


def _rule(rule: type[Rule]) -> str:
    documentation = rule.documentation()
    blocks = [
        f"## {rule.__name__}",
        f"*{rule.title}.*",
        documentation.checks,
        documentation.why,
        f"**What to do.** {' '.join(documentation.advice)}",
        *([f"**Details.** {documentation.details}"] if documentation.details else []),
    ]
    blocks = [block.replace("``", "`") for block in blocks]
    parameters = [
        f"| `{name}` | {with_unit(default, meta['unit'])} | {meta['help']} |"
        for name, default, meta in parameter_fields(rule)
    ]
    if parameters:
        blocks.append("\n".join(["| Parameter | Default | Meaning |", "|---|---|---|", *parameters]))
    return "\n\n".join(blocks) + "\n"


def schema() -> str:
    """The JSON Schema of ``report.json``."""
    return json.dumps(document.json_schema(), indent=1, ensure_ascii=False) + "\n"


def comparison_schema() -> str:
    """The JSON Schema of ``comparison.json``."""
    return json.dumps(comparison.json_schema(), indent=1, ensure_ascii=False) + "\n"


def command_page() -> str:
    """What the commands print with ``--help``."""
    blocks = ["# The commands", "Generated from the commands' `--help` by `make docs`."]
    for name, command in (("make-report", cli.command), ("compare-reports", compare_cli.command)):
        with command.make_context(name, [], resilient_parsing=True, terminal_width=100) as context:
            blocks.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(blocks) + "\n"


def report_page() -> str:
    """``report.json`` and ``rules/*.json``, field by field, from the types they are written from."""
    head = (
        "# report.json and rules/*.json\n\nGenerated from the code by `make docs`.\n\n`report.json` holds everything "
        "the page shows; notebook and page are made from it alone. The top-level type is `Report`; each type has a "
        "table below. Fields that end in `_us` are microseconds since the epoch (UTC). The "
        f"[JSON Schema](report.schema.json) has schema version {document.SCHEMA_VERSION}. The number rises "
        "when a field changes its meaning or goes away; new fields do not raise it.\n"
    )
    types = [_type(one) for one in _reachable(document.Report)]
    extra_keys = (
        "## rules/\\<RuleName\\>.json\n\n`rules` has the files of those of SageMaker Debugger's eleven rules that were "
        "evaluated, with all keys of its format; `rules/more` has those of all others. The file of OverallSystemUsage is "
        "in `rules` if CPU, CPU memory, I/O wait, and network of each node were sampled. The five keys of SageMaker Debugger come first, with the same meaning except for "
        "[these differences](differences.md). Then follow:\n\n| key | meaning |\n|---|---|\n"
        + "".join(f"| `{key}` | {meaning} |\n" for key, meaning in document.EXTRA_KEYS.items())
        + "\nA report of SageMaker Debugger's rule results alone copies their keys and adds two: `Origin` is "
        "`debugger_results`, and `Notes` lists known errors of the numbers.\n"
    )
    return "\n".join([head, *types, extra_keys])


def _reachable(top: type) -> Iterator[type]:
    """The types and enumerations that a type is made of, each once, itself first."""
    found: list[type] = [top]
    for one in found:
        yield one
        if issubclass(one, msgspec.Struct):
            for hint in typing.get_type_hints(one).values():
                found += [kind for kind in _kinds(hint) if kind not in found]


def _kinds(hint: Any) -> list[type]:
    inner = [kind for part in typing.get_args(hint) for kind in _kinds(part)]
    ours = isinstance(hint, type) and issubclass(hint, msgspec.Struct | StrEnum)
    return [hint, *inner] if ours else inner


def _type(one: Any) -> str:
    text = " ".join((inspect.getdoc(one) or "").replace("``", "`").split())
    if issubclass(one, StrEnum):
        values = ", ".join(f"`{value}`" for value in one)
        return f"## {one.__name__}\n\n{text} One of {values}.\n"
    comments = _comments(one)
    rows = [
        f"| `{name}` | {_shown(hint)} | {comments.get(name, '')} |"
        for name, hint in inspect.get_annotations(one).items()
    ]
    return "\n".join(
        [f"## {one.__name__}\n\n{text}\n", "| field | type | meaning |", "|---|---|---|", *rows, ""]
    )


def _comments(one: type) -> dict[str, str]:
    """The ``#:`` comment above each field."""
    lines: list[str] = []
    found = {}
    for line in re.split(r"\n    (?:@|def )", inspect.getsource(one))[0].splitlines():
        comment, field = re.match(r"\s+#: (.*)", line), re.match(r"\s+(\w+):", line)
        if comment:
            lines.append(comment[1])
        elif field:
            found[field[1]] = " ".join(lines).replace("``", "`").replace("|", "\\|")
            lines = []
    return found


def _shown(annotation: Any) -> str:
    """A type as JSON has it: a tuple is a list, None is null."""
    text = str(annotation).replace("tuple[", "list[").replace(", ...]", "]").replace("None", "null")
    return text.replace(" | UnsetType", ", if any").replace("|", "or")


def forms_page() -> str:
    """Every form of GPU log that the tests make: what makes it, and what becomes of it."""
    sys.path.insert(0, str(DOCS.parent))
    from tests.report.readers.nvidia_smi import forms  # noqa: PLC0415 - not installed

    return forms.page()


PAGES = {
    "rules.md": rules_page,
    "report.schema.json": schema,
    "comparison.schema.json": comparison_schema,
    "cli.md": command_page,
    "report-json.md": report_page,
    "differences.md": differences.page,
    "log-forms.md": forms_page,
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
