"""Job directories in which every name was chosen to break something.

``python -m fuzz.hostile DIR`` writes one for each of ``NAMES``, one with all of them, and one that holds only rule
results of the vendor's service. The names stand wherever a job has one: machines, GPUs, cores, unknown sensors, operators,
phases, phases of steps, tensors of Horovod, modules and functions of profiles, the profiler's configuration, facts of
record-job, files and folders.
"""

from __future__ import annotations

import argparse
import base64
import json
import marshal
import re
import sys
from collections import Counter
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

import mistune
from generator.curves import Curves, Moment
from generator.events import trace_files
from generator.job import JobSpec, Scenario
from generator.scenarios import cpu_bottleneck, memory_jump
from generator.steps import Steps
from generator.writer import minute_files

from jobreport import pipeline
from jobreport.errors import JobReportError
from jobreport.files import DEFAULT
from jobreport.options import Options
from jobrules.text import escape_name
from tests.report.page.sections.html import Page

#: Whoever runs these leaves this behind, as a property of the window.
MARK = "jrHostile"
#: Where those lead that want to be followed.
PLACE = "https://hostile.invalid/"
_RUN = f"window.{MARK}=1"
_LONG = 1_000_000
#: Of a name that stands in every line of a file.
_OFTEN = 400

NAMES: dict[str, str] = {
    "markup": f"<b><img src=x onerror={_RUN}><svg onload={_RUN}>",
    "script": f"<script>{_RUN}</script>",
    "end of script": f"</script><script>{_RUN};alert(1)</script>",
    "comment": f"<!--<script>{_RUN}//",
    "end of data": "]]>--></style></title></textarea></noscript>",
    "attribute": f"\" onmouseover=\"{_RUN}\" style='background:url({PLACE})' autofocus onfocus='{_RUN}",
    "address": f"javascript:{_RUN}",
    "entity": f"&lt;img src={PLACE}?q=1&amp;b onerror={_RUN}&gt;&#60;b&#62;",
    "template": "{{7*7}}{{constructor.constructor('" + _RUN + "')()}}{% raw %}${7*7}#{7*7}{# x #}",
    "end of template": "{% endraw %}{% endif %}{{ self.__init__.__globals__ }}",
    "tooltip": "@name{safe} @$name @{mean}{custom} $index $x %{x} &lt; $data_x",
    "formula": "$$\\href{javascript:" + _RUN + "}{x}\\frac{a}{b}$$ \\(x\\) \\[y\\]",
    "notebook": '"],"outputs":[{"output_type":"display_data","data":{"application/javascript":"'
    + _RUN
    + '"}}],"x":["',
    "python": f'"+__import__("os").system("touch {MARK}")+"\n#',
    "markdown link": f"[x]({PLACE}) ![x]({PLACE}x.png) <{PLACE}> **b** _i_ `c`",
    "markdown table": "| a | b |\n|---|---|\n| c | d |",
    "markdown fence": "```\n~~~\n# head\n- item\n1. item\n> quote\n---\n<details open>\n@everyone #1",
    "right to left": "gpu\u202e0xof\u2066\u200f\u061c end",
    "zero width": "g\u200bp\u200cu\u200d\u2060\ufeff0\u00ad",
    "terminal": "\x1b[2J\x1b[31mred\x1b]8;;" + PLACE + "\x1b\\link\x1b]8;;\x07\x9b2J\x07\x08\x08\rback",
    "nothing": "a\x00b\x01\x7f\x85\u2028\u2029",
    "surrogate": "lone \ud800 and \udfff, \udc80",
    "marks": "z" + "\u0335\u0322\u0317\u0300\u0301\u0302" * 40,
    "quotes": 'it\'s "quoted" `back` \\ \\\\ \\n \\u003cb %s %d %(x)s',
    "prototype": "__proto__",
    "constructor": "constructor",
    "sheet": f'=cmd|"/c calc"!A1,+1;@SUM(A1)\t=HYPERLINK("{PLACE}")',
    "path": "../../../etc/passwd",
    "option": "--out=/tmp/x; $(id) `id` && rm -rf *",
    "blank": "\u00a0 \u3000",
    "commands": "::error::x\r\n::add-mask::y %0A::stop-commands::z ##[error]y",
    "end of XML": "]]></failure></testcase><testcase name='x'>&#27;&x;<!DOCTYPE x SYSTEM 'x'>\ufffe",
    "one of two": "n" * 200 + "a" + "n" * 200,
    "the other": "n" * 200 + "b" + "n" * 200,
    "long": f"<b>{_RUN}</b>" * (_LONG // 28),
}


class _Source:
    """Names one after the other, and those that were given out."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = cycle(names)
        self._given: set[str] = set()

    def one(self, most: int = 2 * _LONG) -> str:
        """The next name; with a number where all are given out."""
        name = next(self._names)[:most]
        number = 2
        unique = name
        while unique in self._given:
            unique, number = f"{name}{number}", number + 1
        self._given.add(unique)
        return unique

    def several(self, count: int) -> list[str]:
        return [self.one() for _ in range(count)]


def in_path(name: str, most: int = 120) -> str:
    """The name as far as a file can be called so, ``most`` bytes of it."""
    plain = name.replace("/", "\u2215").replace("\0", "")
    raw = plain.encode("utf-8", "surrogatepass")[:most]
    return raw.decode("utf-8", "surrogateescape").strip(".") or "x"


def _curves(moment: Moment) -> Curves:
    bottleneck, memory = cpu_bottleneck.curves(moment), memory_jump.curves(moment)
    return Curves(**{**vars(bottleneck), "gpu_memory": memory.gpu_memory})


def _spec(nodes: int) -> JobSpec:
    plan = Steps(step_s=0.7, gap_s=1.6, spread_s=0.12, horovod_of=range(13, 23))
    scenario = Scenario(
        summary="", curves=_curves, steps=plan, nodes=nodes, gpus=2, cores=4, duration_s=560.0
    )
    return JobSpec.of(scenario, interval_us=500_000)


def job(names: Sequence[str], nodes: int = 2) -> dict[str, bytes]:
    """The files of a job with these names, by their paths."""
    spec = _spec(nodes)
    source = _Source(names)
    # Names that stand in every line are cut, or the files would be megabytes of them.
    machines = [source.one(_OFTEN) for _ in range(nodes)]
    files: dict[str, bytes] = {}
    devices = [(f"{kind}{i}", source.one(_OFTEN)) for kind in ("gpu", "cpu") for i in range(2)]
    for path, text in minute_files(spec):
        machine = machines[int(path.rpartition(".algo-")[2].partition(".")[0]) - 1]
        changed = text
        for old, new in devices:
            changed = changed.replace(f'"Name":"{old}"', f'"Name":{json.dumps(new)}')
        changed = re.sub('"NodeId":"[^"]*"', lambda _: f'"NodeId":{json.dumps(machine)}', changed)  # noqa: B023 - called here
        files[f"system/incremental/{path}"] = changed.encode()
    files["system/incremental/1741080120.algo-9.json"] = _sensors(names, machines[0]).encode()
    operators, lanes = _Source(names), _lanes(names)
    renamed: dict[str, str] = {}
    for path, text in trace_files(spec):
        changed = _operators(text, renamed, operators)
        if "pythontimeline" in path:
            changed, lanes = changed.rstrip().removesuffix("]") + lanes + "]\n", ""
        number = int(re.findall(r"algo-(\d+)", path)[0])
        files["framework/pevents/" + path.replace(f"algo-{number}", in_path(machines[number - 1]))] = (
            changed.encode()
        )
    files |= _profiles(names, machines)
    files |= stacks(names, in_path(machines[0]))
    files |= _configs(names)
    files |= facts(names)
    for name in names:
        files[f"notes/{in_path(name)}/{in_path(name)}.txt"] = name[:100].encode("utf-8", "surrogatepass")
    return files


def _sensors(names: Sequence[str], machine: str) -> str:
    """A sample of a sensor of each name, and one of a machine of each name."""
    lines = []
    for name in names:
        row = {
            "Type": "gpu",
            "Name": name,
            "Dimension": name,
            "Value": 5,
            "NodeId": machine,
            "Timestamp": 1741080121,
        }
        core = {"Type": "cpu", "Name": name, "Dimension": "CPUUtilization", "NodeId": name}
        process = {"Type": "process", "Name": name, "Dimension": "ResidentBytes"}
        mount = {"Type": "disk", "Name": name, "Dimension": "FreeBytes"}
        lines += [row, row | core, row | core | {"Timestamp": 1741080500}, row | process, row | mount]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


_KEPT = re.compile("process_|Step:ModeKeys.TRAIN|[0-9]|NEGOTIATE|ALLREDUCE|CYCLE|_MultiP|DataLoader")
_NAME = re.compile('"name": "([^"]+)"(, "pid": [0-9]+, "ph": "[XB]")')
_LANE = re.compile('"args": {"name": "(Step:ModeKeys.EVAL|[^"]*allreduce[^"]*)"}')


def _operators(text: str, renamed: dict[str, str], source: _Source) -> str:
    """A trace whose operators, tensors and validation steps have other names, the same in all files."""

    def other(name: str, before: str = "") -> str:
        if name not in renamed:
            renamed[name] = source.one(_OFTEN)
        return json.dumps(before + renamed[name])

    def event(match: re.Match[str]) -> str:
        if _KEPT.match(match[1]):
            return match[0]
        return f'"name": {other(match[1], "Step:ModeKeys." if "EVAL" in match[1] else "")}{match[2]}'

    def lane(match: re.Match[str]) -> str:
        before = "Step:ModeKeys." if "EVAL" in match[1] else ""
        return f'"args": {{"name": {other(match[1], before)}}}'

    return _LANE.sub(lane, _NAME.sub(event, text))


def _lanes(names: Sequence[str]) -> str:
    """A lane of each name with an event of the same name."""
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        lane = {"name": "process_name", "ph": "M", "pid": 100 + i, "args": {"name": name}}
        times = {"ts": 90_000_000 + i, "dur": 400_000_000 - 1000 * i}
        rows += [
            lane,
            {"name": name, "pid": 100 + i, "ph": "X", **times, "args": {"step_num": name, "pid": name}},
        ]
    return "".join(f",\n{json.dumps(row)}" for row in rows)


_STRETCH = "train-9-stepstart-1741080200000000.0_train-9-stepend-1741080201000000.5"


def _profiles(names: Sequence[str], machines: Sequence[str]) -> dict[str, bytes]:
    entries: dict[Any, Any] = {
        (f"/home/{name[:4000]}/x.py", i + 1, name[:4000]): (3, 3, 1.0 + i, 2.0 + i, {})
        for i, name in enumerate(names)
    }
    frames = [
        {"function": name, "file_path": name, "line_no": 1, "time": 0.5, "children": []} for name in names
    ]
    root = {"function": "main", "file_path": "a.py", "line_no": 1, "time": len(names), "children": frames}
    folder = f"0-{in_path(machines[0])}/{_STRETCH}"
    return {
        f"framework/pytorch/cprofile/{folder}/python_stats": marshal.dumps(entries),
        f"framework/pytorch/pyinstrument/{folder}/python_stats.json": json.dumps(
            {"root_frame": root}
        ).encode(),
    }


def stacks(names: Sequence[str], machine: str) -> dict[str, bytes]:
    """Samples of stacks of a training process and a loader process, with these names as files and functions."""
    files = {}
    for pid, kind in enumerate(("main", "loader")):
        about = {"pid": pid, "kind": kind, "interval_us": 100_000, "started_us": 1_741_080_077_500_000}
        rows: list[Any] = [["stacks", 1, about]]
        for i, name in enumerate(names):
            place = ("own", "library", "python")[i % 3]
            rows += [["frame", i, place, name[:900], i, name[:900]], ["stack", i, i % 7 - 1, i]]
        rows += [[100_000 * i, i % max(1, len(names)), i] for i in range(5000)]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        files[f"framework/pythonstacks/0-{machine}/{pid}.jsonl"] = text.encode()
    return files


def facts(names: Sequence[str]) -> dict[str, bytes]:
    """What record-job notes about its recordings, with these names in all of its texts."""
    files = {}
    run = {"started_us": 1_741_080_077_500_000, "ended_us": 1_741_080_637_500_000}
    for i, name in enumerate(islice(names, 40)):
        ended = {
            "ended_by": "signal:9" if i % 2 else name,
            "exit_status": 137,
            "sampler_ended_by": name,
            "stopped_by": name,
        }
        dropped = {"samples": 3, "events": i, "reason": name, "since_us": run["started_us"]}
        one = run | ended | {"dropped": dropped}
        texts = {
            "schema": 1,
            "recorder": name,
            "node": name,
            "interval_ms": 500,
            "earlier": [one],
            "cores": {"host": 8, "affinity": 8, "limit": 2.5},
            "memory": {"host_bytes": 1 << 36, "limit_bytes": 1 << 34},
            "gpus": [{"index": 0, "uuid": name, "name": name}],
            "gpu_reason": name,
            "shared_gpus": {name: 1},
            "left_out": [{"sensor": name, "reason": name, "count": 1}],
            "overhead": {"sampler_cpu_s": 9.5, "hook_s": 9.5, "steps": 1, "processes": 1},
            "hooks": {"written": [{"worker": name, "at_us": run["started_us"], "written": name}]},
            "auto_steps": name,
            "exceptions": [_exception(name, run["ended_us"])],
            "libraries": [name],
            "labels": {name: name},
            "host": {"os": name, "cpu": name},
            "git": {"commit": name if i % 2 else "0" * 40, "dirty": True},
            "driver": name,
            "versions": {name: name},
            "config": {name: name},
            "flops": {"per_step": [1e12], "source": name},
            "parameters": 10**9,
            "precision": name,
            "world_size": 8,
        }
        files[f"jobrecord/{i}.json"] = json.dumps(one | texts).encode()
        files[f"jobrecord/training-{i:05}.jsonl"] = "\n".join(map(json.dumps, _training(name, i))).encode()
    return {path: text for path, text in files.items() if len(text) < 1 << 20}


def _training(name: str, rank: int) -> Iterator[dict[str, Any]]:
    """Lines of what a rank recorded of its training."""
    yield {
        "jobrecord": 1,
        "kind": "head",
        "node": name,
        "rank": rank,
        "optimizer": name,
        "not_recorded": [name],
    }
    tensors = [
        {"n": name, "c": kind, "shape": [2, 2], "dtype": name, "m": name, "order": 0}
        for kind in ("gradient", "parameter", "update", "output", name)
    ]
    yield {"kind": "names", "first": 0, "tensors": tensors}
    for step in range(1, 30):
        when = {"step": step, "mode": "TRAIN", "time_us": 1_700_000_000_000_000 + step * 1_000_000}
        yield {"kind": "scalar", **when, "values": {name: 0.5, "loss": 2.0, "x": "nan"}}
        columns = {"count": [4] * 5, "l2": [1, 2.0, None, 3, 4], "hist_first": [0] * 5, "hist": [[4]] * 5}
        yield {"kind": "record", **when, "cost_us": 9, "id": [0, 1, 2, 3, 4], **columns}
    yield {"kind": "event", **when, "name": "error", "text": name}
    yield {"kind": "classes", **when, "labels": [1, 1], "predicted": [0, 2], "pairs": [[0, 1, 1], [1, 1, 1]]}
    yield {"kind": "trees", **when, "importance": {name: 1.0}, "depths": [3], "max_depth": 6}


def _exception(name: str, at_us: int) -> dict[str, Any]:
    return {
        "type": name,
        "message": name,
        "place": {"file": name, "line": 3, "function": name},
        "rank": name,
        "step": 7,
        "at_us": at_us,
        "memory": "gpu",
        "asked_bytes": 1 << 34,
    }


def _configs(names: Sequence[str]) -> dict[str, bytes]:
    files = {}
    for i, name in enumerate(islice(names, 40)):
        loading = {"StartStep": 5 + i, "NumSteps": 1, "MetricsRegex": name}
        python = {"StartStep": 5, "ProfilerName": "cprofile" if i % 2 else name, "cProfileTimer": name}
        parameters = {"DataloaderProfilingConfig": json.dumps(loading), "PythonProfilingConfig": python}
        files[f"{i}-profilerconfig.json"] = json.dumps({"ProfilingParameters": parameters}).encode()
    return {path: text for path, text in files.items() if len(text) < 1 << 20}


def results(names: Sequence[str]) -> dict[str, bytes]:
    """Rule results of the vendor's service with these names, and nothing else."""
    source = _Source(names)
    node, phase = source.one(), source.one()
    quantiles = {"min": 0, "p50": 20, "p95": 40, "p99": 50, "max": 60}
    gpus = source.several(len(names))
    use = {
        "gpu_max": 9,
        "gpu_95": 4,
        "gpu_5": 0,
        "p25": 0,
        "p50": 5,
        "p75": 7,
        "p95": 8,
        "upper": 9,
        "lower": 0,
    }
    start = 1_741_080_077.5
    times = {f"{start + i}": {"GPUs": 1, "CPUs": 1} for i in range(3)}
    details: dict[str, Any] = {
        "OverallSystemUsage": {kind: {node: quantiles} for kind in ("GPU", "CPU", "Network", "I/O")},
        "OverallFrameworkMetrics": {"phase": {name: 100 / len(names) for name in names}},
        "LowGPUUtilization": {
            node: dict.fromkeys(gpus, use),
            "last_timestamp": int(start * 1e6) + 540_000_000,
        },
        "GPUMemoryIncrease": {node: {gpu: {"increase": 6, "gpu_max": 50} for gpu in gpus}},
        "BatchSize": {node: {gpu: {} for gpu in gpus}},
        "LoadBalancing": {node: {"workloads": {gpu: [1200] + [i] * 48 for i, gpu in enumerate(gpus)}}},
        "CPUBottleneck": {"low_gpu_utilization": 1000, "bottlenecks": times},
        "IOBottleneck": {"low_gpu_utilization": 1000, **times},
        "Dataloader": {"cores": 4, "dataloaders": 3, "num_workers": 2, "pin_memory": True},
        "StepOutlier": {
            "step_details": {
                f"{node}-33": {
                    "step_stats": {"mean": 0.5, "p50": 0.4, "max": 9},
                    "number_of_outliers": 12,
                    "phase": f"Step:ModeKeys.{phase}",
                    "step_numbers": names,
                }
            }
        },
        "MaxInitializationTime": {
            "step_num": {"first": int(start * 1e6) + 400_000_000, "last": int(start * 1e6) + 550_000_000},
            "job_start": start,
            "job_end": start + 600,
        },
    }
    folder = "rule-output/ProfilerReport-1741080000/profiler-output/profiler-reports"
    counted = {
        "RuleTriggered": 3,
        "Violations": 3,
        "Datapoints": 1200,
        "RuleParameters": "\n".join(f"{n}:{n}" for n in names),
    }
    return {
        f"{folder}/{rule}.json": json.dumps(counted | {"Details": values}).encode()
        for rule, values in details.items()
    }


def jobs() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Name of a directory and its files."""
    every = list(NAMES.values())
    yield in_path(NAMES["end of script"] + "\u202e\x1b[31m mixed"), job(every)
    yield in_path(NAMES["markup"] + " results"), results(every)
    for kind, name in NAMES.items():
        yield in_path(f"{name} {kind}"), job([name])


def write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the files below a directory."""
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)


#: What no text of ours may hold, whatever the names: what a reader does not see but a terminal or a browser obeys.
_UNSEEN = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff0-\\uffff\\ud800-\\udfff]"
)
_SCRIPTS = re.compile("<script>.*?</script>", re.DOTALL)
#: Of a text in the page; names are cut long before.
_LONGEST = 2000


def unseen(text: str) -> list[str]:
    """Characters that should have been escaped, each with what stands around it."""
    return [ascii(text[max(0, found.start() - 40) : found.end() + 20]) for found in _UNSEEN.finditer(text)]


def faults(folder: Path) -> list[str]:
    """What is wrong with the files of a report, whatever the names; nothing is the right answer."""
    page = (folder / "report.html").read_text("utf-8")
    notebook = json.loads((folder / "report.ipynb").read_bytes())
    found = [f"page: {fault}" for fault in of_html(page, scripts=3)]
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if set(output["data"]) != {"text/html", "text/plain"}:
                found.append(f"notebook: {cell['id']} shows {sorted(output['data'])}")
            html = _IMAGE.sub(_drawing, "".join(output["data"]["text/html"]))
            _, root = Page.of(html).elements[0]
            if cell["id"] not in _NAMELESS and not _NO_FORMULAS.issubset(str(root.get("class")).split()):
                found.append(f"notebook: {cell['id']} may hold formulas")
            found += [f"notebook: {cell['id']}: {fault}" for fault in of_html(html, scripts=0)]
    sources = [json.loads(_NOTEBOOK.read_bytes())["cells"], notebook["cells"]]
    ours, theirs = (["".join(cell["source"]) for cell in cells] for cells in sources)
    # Sections come in the order of the job, those with something to show.
    if Counter(theirs) - Counter(ours):
        found.append("notebook: the code of its cells is not ours")
    found += [f"notebook: {fault}" for fault in unseen(json.dumps(notebook, ensure_ascii=False))]
    found += [f"Markdown: {fault}" for fault in of_markdown((folder / "summary.md").read_text("utf-8"))]
    return found + [f"XML: {fault}" for fault in of_junit((folder / "junit.xml").read_bytes())]


#: Cells that show no name.
_NAMELESS = {"open", "contents"}
#: Classes of what MathJax leaves alone.
_NO_FORMULAS = {"mathjax_ignore", "tex2jax_ignore"}
#: An image as the notebook has them; with other attributes, it is foreign.
_IMAGE = re.compile(
    r'<img class="[a-z -]*" width="\d+" alt="[^"<>]*" src="data:image/svg\+xml;base64,([^"]+)">'
)
_NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "report.ipynb"


def _drawing(image: re.Match[str]) -> str:
    """What stands in an image, which is XML of its own."""
    drawing = base64.b64decode(image[1]).decode()
    ElementTree.fromstring(drawing)  # noqa: S314 - made by make-report; the parser expands no entity of a file
    return drawing


def of_html(html: str, scripts: int) -> list[str]:
    """What is wrong with a piece of the page that may hold so many scripts."""
    page = Page.of(html)
    running = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    found = page.faults + unseen(_SCRIPTS.sub("", html))
    found += [f"{len(running)} scripts"] if len(running) > scripts else []
    found += [f"a text of {len(piece)} characters" for piece in page.pieces if len(piece) > _LONGEST]
    found += [f"link to {link}" for link in page.links if not link.startswith("#") and link != "data:,"]
    for tag, attributes in page.elements:
        odd = [
            name for name in attributes if name.startswith("on") or name in ("style", "srcdoc", "autofocus")
        ]
        if tag in _FOREIGN or odd:
            found.append(f"<{tag}> with {odd}")
    return found


_FOREIGN = {
    "img",
    "iframe",
    "object",
    "embed",
    "base",
    "form",
    "input",
    "audio",
    "video",
    "textarea",
    "template",
}
_IN_MARKDOWN = {"h1", "h2", "p", "ul", "li", "strong", "em", "code"}


def of_markdown(text: str) -> list[str]:
    """Tags, links, tables, formulas and the like that names made."""
    plugins = ["strikethrough", "table", "url", "task_lists", "footnotes", "math", "def_list", "mark"]
    page = Page.of(str(mistune.create_markdown(escape=False, plugins=plugins)(text)))
    odd = [f"<{tag}>" for tag, _ in page.elements if tag not in _IN_MARKDOWN]
    return page.faults + unseen(text) + odd


_IN_JUNIT = {
    *("testsuites", "testsuite", "properties", "property"),
    *("testcase", "failure", "error", "skipped", "system-out"),
}


def of_junit(data: bytes) -> list[str]:
    """Elements and characters that names made."""
    root = ElementTree.fromstring(data)  # noqa: S314 - as above
    odd = [f"<{one.tag}>" for one in root.iter() if one.tag not in _IN_JUNIT]
    between = [text for one in root.iter() if (text := (one.tail or "").strip())]
    texts = ["".join([*one.attrib.values(), one.text or ""]) for one in root.iter()]
    return [*odd, *between, *unseen("".join(texts))]


def _reported(job_dir: Path, out: Path) -> list[str]:
    try:
        outcome = pipeline.make_report(job_dir, out, Options(force=True, formats=(*DEFAULT, "junit")))
    except JobReportError as error:
        return [f"no report: {escape_name(str(error), 300)}"]
    return faults(out) + ([f"failure: {outcome.failure}"] if outcome.failure else [])


def main() -> int:
    """Write all of them; with ``--reports`` also the report of each, which is looked through."""
    parser = argparse.ArgumentParser(
        prog="python -m fuzz.hostile", description="Write jobs with hostile names."
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="where to write them")
    parser.add_argument("--reports", action="store_true", help="make the report of each and look through it")
    options = parser.parse_args()
    found = 0
    for number, (name, files) in enumerate(jobs(), start=1):
        folder = options.directory / f"{number:02}"
        write(folder / name, files)
        if options.reports:
            wrong = _reported(folder / name, folder / "report")
            found += len(wrong)
            print("\n".join(f"{folder}: {fault}" for fault in wrong), end="\n" * bool(wrong))
    print(f"{number} job directories below {options.directory}" + f", {found} faults" * options.reports)
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
