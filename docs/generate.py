"""Write the documents that are made from the code: ``docs/rules.md``, ``docs/report.schema.json``, ``docs/cli.md``.

``make docs`` runs this; a test fails when a file differs from what this would write.
"""

from __future__ import annotations

import json
from pathlib import Path

from jobreport import cli, document
from jobrules import RULES
from jobrules.rule import Rule, default_text, parameter_fields

DOCS = Path(__file__).parent


def rules_page() -> str:
    """Every rule: what it checks, why it matters, what to do, its parameters."""
    head = (
        "# The rules\n\nMade from the rules' own docstrings by `make docs`. A rule triggers, passes, or is "
        "*not evaluated* with the reason. Thresholds are changed with `--set Rule.parameter=value` or in a "
        "`--config` file.\n"
    )
    return "\n".join([head, *map(_rule, RULES)])


def _rule(rule: type[Rule]) -> str:
    told = rule.documentation()
    blocks = [
        f"## {rule.__name__}",
        f"*{rule.title}.*",
        told.checks,
        told.why,
        f"**What to do.** {told.advice}",
    ]
    blocks = [block.replace("``", "`") for block in blocks]
    parameters = [
        f"| `{name}` | {default_text(default)} | {meta['unit'] or '–'} | {meta['help']} |"
        for name, default, meta in parameter_fields(rule)
    ]
    if parameters:
        blocks.append(
            "\n".join(["| parameter | default | unit | meaning |", "|---|---|---|---|", *parameters])
        )
    return "\n\n".join(blocks) + "\n"


def schema() -> str:
    """The JSON Schema of ``report.json``."""
    return json.dumps(document.json_schema(), indent=1, ensure_ascii=False) + "\n"


def command_page() -> str:
    """What ``make-report --help`` prints."""
    with cli.command.make_context("make-report", [], resilient_parsing=True, terminal_width=100) as context:
        text = cli.command.get_help(context)
    return f"# The command\n\nWhat `make-report --help` prints, kept here by `make docs`.\n\n```text\n{text}\n```\n"


PAGES = {"rules.md": rules_page, "report.schema.json": schema, "cli.md": command_page}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
