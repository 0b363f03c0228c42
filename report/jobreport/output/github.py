"""What a step of GitHub Actions shows of a report or a comparison: its summary, annotations, and outputs."""

from __future__ import annotations

import os
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport.comparison import markdown
from jobreport.comparison.budgets import BROKEN, INCONCLUSIVE
from jobreport.headline import headline
from jobreport.output import summary
from jobreport.output.junit import of_budget, plain, told
from jobrules.model import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobreport.comparison.document import Comparison
    from jobreport.document import Report

#: Variables that the runner sets, with the names of its files.
_SUMMARY, _OUTPUT = "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"
#: Bytes of the summary of a step: of a longer one, GitHub shows nothing.
MAX_SUMMARY = 1 << 20
#: Lines of the summary if not all of it fits, the most first.
_LINES = (10, 3)
#: Annotations of a kind that a step may have.
MAX_OF_A_KIND = 10
_KINDS = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


class Annotation(Struct, frozen=True, kw_only=True):
    """A line above the log of a step."""

    #: ``error``, ``warning``, or ``notice``.
    kind: str
    title: str
    text: str


class Step(Struct, frozen=True, kw_only=True):
    """What is shown of one report or comparison."""

    #: Markdown.
    summary: str
    annotations: tuple[Annotation, ...]
    outputs: dict[str, str]


def has_summary() -> bool:
    """Whether a runner of GitHub Actions asks for a summary."""
    return bool(os.environ.get(_SUMMARY))


def of_report(report: Report, main_file: str) -> Step:
    """The findings as annotations."""
    use = report.verdict.use
    return Step(
        summary=summary.markdown(report),
        annotations=tuple(
            Annotation(kind=_KINDS[one.severity], title=one.title, text=told(one))
            for one in report.verdict.findings
        ),
        outputs={
            "report": main_file,
            "verdict": plain(headline(report).sentence),
            "worst": summary.worst_severity(report) or "",
            "gpu_used_percent": str(use.of("used")[1]) if use and use.device == "GPU" else "",
        },
    )


def of_comparison(comparison: Comparison, main_file: str) -> Step:
    """Broken and inconclusive budgets as annotations."""
    return Step(
        summary=markdown.markdown(comparison),
        annotations=tuple(
            Annotation(
                kind="notice" if one.state != BROKEN else "error" if one.level == "error" else "warning",
                title=f"Budget {one.state}: {one.measure} of {one.label}",
                text=of_budget(comparison, one),
            )
            for one in comparison.budgets
            if one.state in (BROKEN, INCONCLUSIVE)
        ),
        outputs={
            "report": main_file,
            "verdict": plain(comparison.answer),
            # Broken ones are first.
            "worst": comparison.budgets[0].state if comparison.budgets else "",
        },
    )


def tell(step: Step, said: Sequence[str]) -> list[str]:
    """Write summary and outputs; the lines for standard error: ``said`` without commands, annotations, and warnings."""
    token = secrets.token_hex(8)
    quoted = [f"::stop-commands::{token}", *said, f"::{token}::"] if said else []
    warnings = [_appended(_SUMMARY, partial(_fitting, step.summary))]
    if os.environ.get(_OUTPUT):
        # No value can guess where it ends.
        end = f"end-{secrets.token_hex(16)}"
        outputs = "".join(f"{name}<<{end}\n{value}\n{end}\n" for name, value in step.outputs.items())
        warnings.append(_appended(_OUTPUT, lambda _: outputs))
    return [*quoted, *_commands(step.annotations), *filter(None, warnings)]


def _commands(annotations: Sequence[Annotation]) -> Iterator[str]:
    for kind in _KINDS.values():
        for one in [one for one in annotations if one.kind == kind][:MAX_OF_A_KIND]:
            title = _data(one.title).replace(":", "%3A").replace(",", "%2C")
            yield f"::{kind} title={title}::{_data(one.text)}"


def _data(text: str) -> str:
    """A value of a command, as the runner reads it."""
    return plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _fitting(text: str, size: int) -> str:
    """As much of a summary as fits below what is there; nothing if nothing does."""
    blank, lines = "\n\n" if size else "", text.splitlines(keepends=True)
    shown = (blank + "".join(lines[:most]) for most in (None, *_LINES))
    return next((one for one in shown if size + len(one.encode()) <= MAX_SUMMARY), "")


def _appended(variable: str, text_below: Callable[[int], str]) -> str:
    """Append to a file of the runner what there is to say below so many bytes; a warning if that is not possible."""
    try:
        with Path(os.environ[variable]).open("ab") as file:
            data = text_below(file.tell()).encode("utf-8", "surrogateescape")
            file.write(data)
    except OSError as error:
        return f"Cannot write to {variable}: {error.strerror}."
    return "" if data else f"{variable} is full: the verdict is not in it."
