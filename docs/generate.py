"""Write the documents that are generated from the code; ``PAGES`` lists them.

``make docs`` runs this. A test fails if a file differs from what this writes.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import sys
import textwrap
import typing
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from jobreport import cli, compare_cli, document, trace_cli
from jobreport.comparison import document as comparison
from jobreport.debugger_report import differences
from jobrules import RULES
from jobrules.rule import Rule, parameter_fields, with_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    return _with_comments(document.json_schema(), document.Report)


def comparison_schema() -> str:
    """The JSON Schema of ``comparison.json``."""
    return _with_comments(comparison.json_schema(), comparison.Comparison)


def _with_comments(schema: dict[str, Any], top: type) -> str:
    """A schema with the comments of the code on its fields."""
    for one in _reachable(top):
        # Of two types of one name, both have that of their module, too.
        known = schema["$defs"].get(one.__name__) or schema["$defs"][f"{one.__module__}.{one.__name__}"]
        for name, comment in _comments(one).items() if "properties" in known else ():
            known["properties"][name] = {"description": comment, **known["properties"][name]}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def command_page() -> str:
    """What the commands print with ``--help``."""
    blocks = ["# The commands", "Generated from the commands' `--help` by `make docs`."]
    commands = {
        "make-report": cli.command,
        trace_cli.NAME: trace_cli.command,
        "compare-reports": compare_cli.command,
    }
    for name, command in commands.items():
        with command.make_context(name, [], resilient_parsing=True, terminal_width=100) as context:
            blocks.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(blocks) + "\n"


#: What each example prints is that of a sample job.
SAMPLE = "cpu-bottleneck-2gpu"
EXAMPLES = {
    "Which finding comes first, and what it costs": """
        first = report["verdict"]["findings"][0]
        print(first["severity"], first["key"], first["gpu_s"], "GPU-seconds")
        print(first["title"])
    """,
    "Where the GPU time went; the parts add up": """
        use = report["verdict"]["use"]
        for part in use["parts"]:
            print(f"{part['percent']:5.1f}%  {part['amount']:.3f} {use['device']}-h  {part['label']}")
    """,
    "Which rules were not evaluated, and why": """
        for one in report["verdict"]["not_evaluated"]:
            if one["reason"]["kind"] != "not applicable":
                print(one["rule"], one["reason"]["kind"], one["reason"]["what"])
    """,
    "How long steps took": """
        for kind in report["steps"]["modes"]:
            print(kind["mode"], kind["steps"], "steps, median", kind["median_s"], "s,", kind["outliers"], "outliers")
    """,
    "What was left out of the input": """
        for source in report["quality"]["sources"]:
            print(source["source"], source["rows"], "rows", [remark["code"] for remark in source["remarks"]])
    """,
}


def report_page() -> str:
    """``report.json`` and ``rules/*.json``: what they hold, and examples with what they print."""
    head = (
        "# report.json and rules/*.json\n\nGenerated from the code by `make docs`.\n\n`report.json` holds everything "
        "the page shows; notebook and page are made from it alone. The [JSON Schema](report.schema.json) describes every "
        f"field; it has schema version {document.SCHEMA_VERSION}. The number rises when a field changes its meaning or goes "
        "away; new fields do not raise it. Fields that end in `_us` are microseconds since the epoch (UTC).\n"
    )
    fields = "".join(
        f"| `{name}` | {_comments(document.Report).get(name) or _purpose(hint)} |\n"
        for name, hint in typing.get_type_hints(document.Report).items()
    )
    extra_keys = (
        "## rules/\\<RuleName\\>.json\n\n`rules` has the files of those of SageMaker Debugger's eleven rules that were "
        "evaluated, with all keys of its format; `rules/more` has those of all others. The file of OverallSystemUsage is "
        "in `rules` if CPU, CPU memory, I/O wait, and network of each node were sampled. The five keys of SageMaker Debugger come first, with the same meaning except for "
        "[these differences](differences.md). Then follow:\n\n| key | meaning |\n|---|---|\n"
        + "".join(f"| `{key}` | {meaning} |\n" for key, meaning in document.EXTRA_KEYS.items())
        + "\nA report of SageMaker Debugger's rule results alone copies their keys and adds two: `Origin` is "
        "`debugger_results`, and `Notes` lists known errors of the numbers.\n"
    )
    return "\n".join(
        [head, f"## Fields\n\n| field | meaning |\n|---|---|\n{fields}", _examples(), extra_keys]
    )


def _examples() -> str:
    """Each example with its output."""
    report = json.loads((DOCS.parent / "tests/golden" / f"{SAMPLE}.json").read_bytes())
    blocks = [
        f"## Examples\n\nThe output is that of `sample_data/{SAMPLE}`. Each begins with\n\n```python\nimport json\n\n"
        'with open("report.json") as file:\n    report = json.load(file)\n```\n'
    ]
    for title, code in EXAMPLES.items():
        text, output = textwrap.dedent(code).strip(), io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(text, {"report": report})  # noqa: S102 - an example of this file
        blocks.append(f"**{title}**\n\n```python\n{text}\n```\n\n```text\n{output.getvalue()}```\n")
    return "\n".join(blocks)


def _purpose(hint: Any) -> str:
    """The first sentence on the type of a field; empty for a plain one."""
    kinds = _kinds(hint)
    return re.split(r"(?<=\.)\s", _text(kinds[0]))[0] if kinds else ""


def _text(one: type) -> str:
    return " ".join((inspect.getdoc(one) or "").replace("``", "`").split())


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


@cache
def _source(module: str) -> str:
    """The text of a module, with an end for its last class."""
    return inspect.getsource(sys.modules[module]) + "#"


def _comments(one: type) -> dict[str, str]:
    """The ``#:`` comment above each field."""
    lines: list[str] = []
    found = {}
    (source,) = re.findall(rf"^class {one.__name__}\(.*?(?=^\S)", _source(one.__module__), re.M | re.S)
    for line in re.split(r"\n    (?:@|def )", source)[0].splitlines():
        comment, field = re.match(r"\s+#: (.*)", line), re.match(r"\s+(\w+):", line)
        if comment:
            lines.append(comment[1])
        elif field:
            found[field[1]] = " ".join(lines).replace("``", "`").replace("|", "\\|")
            lines = []
    return found


def forms_page() -> str:
    """Every form of GPU log that the tests make: what makes it, and what becomes of it."""
    sys.path.insert(0, str(DOCS.parent))
    from tests.report.readers.nvidia_smi import forms  # noqa: PLC0415 - not installed

    return forms.page()


#: Examples of ``open_job``, which follow one another.
FRAMES = {
    "Open a job": """
        from jobreport import open_job

        job = open_job("sample_data/cpu-bottleneck-2gpu")
        print(job)
        print(job.metrics[["metric", "unit", "devices", "snapshots"]].head(4))
    """,
    "Samples, and their plain mean next to the one over time, by which the page counts": """
        use = job.samples("gpu_utilization")
        print(use[["time", "device", "value"]].tail(2))
        print(use.groupby("device", observed=True)["value"].mean().round(1))
        print(job.samples("gpu_utilization", every="1h")[["device", "value", "covered"]].round(3))
    """,
    "The distribution over time, of the whole job and of its training steps and phases": """
        print(job.percentiles("gpu_utilization")[["device", "mean", "p5", "p50", "p95"]].round(1))
        print(job.percentiles("gpu_utilization", phase="TRAIN")[["device", "mean"]].round(1))
        print(job.percentiles("gpu_utilization", by=("node", "phase"))[["phase", "mean", "p50"]].round(1))
    """,
    "Seconds in which a GPU was idle and a core saturated": """
        seconds = job.samples(["gpu_utilization", "cpu_utilization"], every="1s", wide=True)
        gpus, cores = (seconds.filter(like=name) for name in ("gpu_utilization", "cpu_utilization"))
        print(int(((gpus.min(axis=1) <= 10) & (cores.max(axis=1) > 90)).sum()), "of", len(seconds), "seconds")
    """,
    "The slowest steps": """
        steps = job.steps("TRAIN")
        print(steps.nlargest(3, "duration_us")[["worker", "step", "duration_us", "gap_us", "outlier"]])
    """,
    "What ran in a step, and what happened during it": """
        events = job.events(step=5, phase=["Forward", "cpu_functions"], clip=True)
        print(events.groupby(["worker", "phase"], observed=True)["duration_us"].agg(["count", "sum"]))
        slow = steps.nlargest(3, "duration_us").iloc[2]
        print(job.window(slow.start_us, slow.end_us).summary()[["kind", "name", "mean", "total_us"]].head(2))
    """,
    "Where the time of the GPUs went, and the first finding": """
        print(job.time_use()[["label", "share", "device_s"]].head(3))
        print(job.findings()["title"][0])
    """,
    "A rule with another threshold": """
        print(job.rule("StepOutlier", n_outliers=0).headline)
    """,
}


def library_page() -> str:
    """``open_job`` and the class of a job, with examples that are run here."""
    import pandas as pd  # noqa: PLC0415 - of this page alone

    from jobreport.library import captures, job, learning, machine_time, opening, recorded, results, tables  # noqa: PLC0415 - as above

    blocks = [
        "# The numbers in a notebook",
        "Made from the docstrings and examples in the code by `make docs`. `open_job` reads what `make-report` reads, "
        "with the same readers, rules, and numbers; `report.json` needs no library ([report-json.md](report-json.md)).",
        "## Examples",
    ]
    names: dict[str, Any] = {}
    with contextlib.chdir(DOCS.parent), pd.option_context("display.width", 110, "display.max_columns", 20):
        for title, example in FRAMES.items():
            text, output = textwrap.dedent(example).strip(), io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(text, names)  # noqa: S102 - an example of this file
            printed = "\n".join(line.rstrip() for line in output.getvalue().splitlines())
            blocks.append(f"**{title}**\n\n```python\n{text}\n```\n\n```text\n{printed}\n```")
    blocks.append(
        "Three notebooks to run and change: [why is the GPU idle](notebooks/why-is-the-gpu-idle.ipynb), [which rank is "
        "slow](notebooks/which-rank-is-slow.ipynb), [before and after](notebooks/before-and-after.ipynb). A script computes "
        "[the numbers of each figure](figures_from_the_library.py) of sample pages from frames."
    )
    blocks += ["## open_job", _called(opening.open_job), "## The job", _paragraphs(job.JobFrames)]
    members = {**vars(recorded.RecordedJob), **vars(learning.LearnedJob), **vars(job.JobFrames)}
    for name, member in members.items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            blocks.append(f"* `job.{name}`: {_paragraphs(member)}")
        else:
            blocks.append(f"### job.{name}\n\n{_called(member)}")
        homes = (
            module for module in (tables, results, machine_time, learning) if hasattr(module, name.upper())
        )
        columns = getattr(next(homes, None), name.upper(), None)
        several = (
            captures.TABLES if name == "captures" else {"": columns} if isinstance(columns, dict) else {}
        )
        for table, of_table in several.items():
            kinds = (kind if isinstance(kind, str) else kind[0] for kind in of_table.values())
            listed = ", ".join(f"`{column}` {kind}" for column, kind in zip(of_table, kinds, strict=True))
            blocks.append(f"Columns{f' of `{table}`' if table else ''}: {listed}.")
    blocks += [
        "## Limits",
        "A frame of 5 million events takes 0.4 GB and 5 s, and 0.6 GB while it is made; `iter_events` and windows take less. "
        "Nothing is fetched but jobs in object storage: download an archive that a web server has. Arrays are those that "
        "SageMaker Debugger saved, live views are not offered, and a plain `mean()` of samples is no mean over time, where "
        "sampling paused or changed its pace.",
    ]
    blocks += ["## The report of a job", *map(_paragraphs, (job.MadeReport, job.MadeReport.json))]
    blocks.append(f"### report.figure\n\n{_called(job.MadeReport.figure)}")
    return "\n\n".join(blocks) + "\n"


def _paragraphs(one: Any) -> str:
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(one) or "")
    return "\n\n".join(" ".join(text.split()) for text in paragraphs).replace("``", "`")


def _called(function: Callable[..., Any]) -> str:
    """How a function is called, without types, and what it does."""
    parameters = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in inspect.signature(function).parameters.values()
        if one.name != "self"
    ]
    call = str(inspect.Signature(parameters))
    return f"`{function.__name__}{call}`\n\n{_paragraphs(function)}"


PAGES = {
    "rules.md": rules_page,
    "report.schema.json": schema,
    "comparison.schema.json": comparison_schema,
    "cli.md": command_page,
    "report-json.md": report_page,
    "differences.md": differences.page,
    "log-forms.md": forms_page,
    "library.md": library_page,
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
