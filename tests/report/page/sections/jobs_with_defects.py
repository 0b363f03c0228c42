"""Jobs that a report with a known fault would tell wrongly, and how a test reads what ours says of them."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import unescape
from typing import Any

import numpy as np

from jobreport.build import build_report
from jobreport.document import Report
from jobreport.page import sections
from jobreport.page.sections.outline import SECTIONS
from jobreport.remarks import Quality, SourceQuality
from jobrules import RULES
from jobrules.model import SECOND_US, Events, EventSource, Job, JobInMemory, Loader
from jobrules.rule import Rule, run_rules
from tests.jobs import START_US, joined_steps, make_events, make_job, make_steps
from tests.report.page.figures import embedded
from tests.report.page.sections.html import Page

#: Twenty minutes at 0.5 s.
TICKS = 2400
#: Every section of the page, in its order.
NAMES = ("head", "verdict", "findings", *(anchor for anchor, _ in SECTIONS))


def reported(job: Job, *rules: Rule) -> Report:
    """The report of a job, by all rules or by those given."""
    chosen: Sequence[Rule] = rules or [rule() for rule in RULES]
    quality = Quality(sources=(SourceQuality(source="system samples", files=1, rows=1),))
    return build_report(job, quality, chosen, run_rules(chosen, job, strict=True), "make-report")


# --- what a section says


def drawn(report: Report, name: str) -> str:
    """The HTML of a section, made now."""
    html: str = getattr(sections, name.replace("-", "_"))(report).html
    return html


#: The HTML of sections by report, which is kept: many tests look at one of them.
_HTML: dict[tuple[int, str], tuple[Report, str]] = {}


def html_of(report: Report, name: str) -> str:
    """The HTML of a section, made once."""
    key = id(report), name
    if key not in _HTML:
        _HTML[key] = report, drawn(report, name)
    return _HTML[key][1]


def whole(report: Report) -> str:
    """All sections."""
    return "".join(html_of(report, name) for name in NAMES)


def section(report: Report, name: str) -> Page:
    """A section, read."""
    return Page.of(html_of(report, name))


def plain(text: str) -> str:
    """A text with blanks that can be written in a test."""
    return " ".join(text.replace("\u00a0", " ").split())


def told(report: Report, name: str) -> str:
    """The text of a section."""
    return plain(section(report, name).text)


def caption(report: Report, name: str, figure: str) -> str:
    """The caption of one figure, by the end of its id."""
    found = re.search(
        rf'<figure id="fig-{figure}">\s*<figcaption>(.*?)</figcaption>', html_of(report, name), re.S
    )
    assert found, figure
    return _text(found[1])


def rows(report: Report, name: str, table: str) -> list[dict[str, str]]:
    """The rows of all tables of a section with this name, also after that of the section, by column."""
    found: list[dict[str, str]] = []
    for label, inside in re.findall(
        r'role="region"[^>]* aria-label="([^"]*)">\s*<table(.*?)</table>', html_of(report, name), re.S
    ):
        name_of, is_every = re.subn(r", all \d+ rows$", "", unescape(label).rpartition(": ")[2])
        if name_of.lower() == table.lower():
            head, *body = (_cells(row) for row in re.findall(r"<tr>(.*?)</tr>", inside, re.S))
            # All rows stand below a table in which those that are alike are one.
            found = [*([] if is_every else found), *(dict(zip(head, row, strict=True)) for row in body)]
    assert found, f"no table {table} in {name}"
    return found


def number(text: str) -> float:
    """A number as printed."""
    return float(re.sub(r"[^\d.−-]", "", text).replace("−", "-"))


def _cells(row: str) -> list[str]:
    return [_text(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]


def _text(html: str) -> str:
    return plain(unescape(re.sub(r"<[^>]*>", "", html)))


def live(report: Report, name: str, kind: str) -> list[dict[str, Any]]:
    """The attributes of all Bokeh models of one kind in a section."""
    found: list[dict[str, Any]] = []
    for text in re.findall(
        r'<script type="application/json"[^>]*>(.*?)</script>', html_of(report, name), re.S
    ):
        document = embedded.whole(text, parse_constant=_not_a_number)
        found += [one["attributes"] for one in _models(document["doc"], kind)]
    return found


def values(column: Any) -> list[Any]:
    """A column of a Bokeh table of data, however it is packed."""
    if isinstance(column, list):
        return column
    packed = gzip.decompress(base64.b64decode(column["array"]["data"]))
    unpacked: list[Any] = np.frombuffer(packed, column["dtype"]).tolist()
    return unpacked


def _not_a_number(text: str) -> None:
    raise AssertionError(f"{text} in the data of a figure")


def _models(value: object, kind: str) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        if value.get("type") == "object" and value.get("name") == kind:
            yield value
        for one in value.values():
            yield from _models(one, kind)
    elif isinstance(value, list):
        for one in value:
            yield from _models(one, kind)


# --- jobs


@cache
def usual_job() -> Job:
    """Two GPUs and four cores; the loop runs from the second to the eighteenth minute."""
    gpu = np.where(np.random.default_rng(4).random((TICKS, 2)) < 0.4, 3.0, 80.0)
    gpu[:240] = 0.0
    cpu = np.where(gpu[:, :1] < 10, 97.0, 40.0) * np.array([1.0, 0.9, 0.5, 0.2])
    steps = make_steps([(120 + i, 120 + i + 0.9) for i in range(960)])
    return make_job(gpu=gpu, cpu=cpu, memory=gpu / 2, io_wait=np.zeros((TICKS, 4)), steps=steps)


@cache
def usual() -> Report:
    """Of ``usual_job``, by all rules."""
    return reported(usual_job())


#: Operators, each called by the one before it; the last has 60 ms of a call of 75 ms for itself, the others 5 ms.
NESTED = ("aten::conv2d", "aten::convolution", "aten::_convolution", "cudnn_convolution")
CALLS = 40
#: So many operators of less than 2%.
SMALL = 40


def _operators() -> Events:
    host: list[tuple[str, str, float, float]] = []
    device: list[tuple[str, str, float, float]] = []
    for i in range(CALLS):
        at = 200.0 + i
        host += [("cpu_functions", name, at + 0.005 * depth, at + 0.075) for depth, name in enumerate(NESTED)]
        for j in range(SMALL):
            start = at + 0.5 + 0.0005 * j
            host.append(("cpu_functions", f"small_{j}", start, start + 0.0004))
        # The smaller one comes first, in time and in the lists.
        device += [
            ("gpu_functions-dev:0", "elementwise", at, at + 0.01),
            ("gpu_functions-dev:0", "volta_sgemm", at + 0.1, at + 0.13),
        ]
    source = EventSource.PROFILER
    return Events.joined(
        [
            make_events(host, source=source, thread=7, step=9),
            make_events(device, source=source, thread=8, step=9),
        ]
    )


def _phases(backward_s: float) -> Events:
    rows = [("Forward-SubModuleInternal", "Conv2d", 200.0 + i, 200.1 + i) for i in range(CALLS)]
    rows += [
        ("Backward-SubModuleInternal", "Conv2d", 200.1 + i, 200.1 + backward_s + i) for i in range(CALLS)
    ]
    rows += [("Initialize", "setup", 121.0, 121.5), ("Forward", "forward", 200.0, 230.0)]
    return make_events([*rows, ("Backward", "backward", 230.0, 330.0)])


def _horovod() -> Events:
    rows = [("grad/conv", "NEGOTIATE_ALLREDUCE", 200.0 + i, 200.1 + i) for i in range(CALLS)]
    rows += [("grad/conv", "NCCL_ALLREDUCE", 200.1 + i, 200.4 + i) for i in range(CALLS)]
    return make_events(rows, source=EventSource.HOROVOD)


def loading(processes: int) -> Events:
    """Data loading without pinned memory, from the 120th to the 1020th second."""
    iterator = "_MultiProcessingDataLoaderIter"
    loader = Loader(
        node="algo-1",
        rank="33",
        iterator=iterator,
        start_us=START_US + 119 * SECOND_US,
        num_workers=processes,
        pin_memory=False,
    )
    fetches = [
        ("DataLoaderIter", f"{iterator}::next", 120.0 + i, 120.02 + i + i % 7 / 100) for i in range(900)
    ]
    life = [("DataLoaderWorker", "worker", 120.0, 1020.0)]
    return Events.joined(
        [make_events(fetches, loaders=[loader]), *(make_events(life, pid=100 + i) for i in range(processes))]
    )


@cache
def profiled_job(backward_s: float = 0.5) -> Job:
    """Two workers, twelve of whose steps are very long; operators, phases, Horovod, data loading."""
    long = set(range(50, 960, 80))
    steps = joined_steps(
        make_steps([(120 + i, 120 + i + (40.0 if i in long else 0.25)) for i in range(960)]),
        make_steps([(120 + i, 120.2 + i + i % 3 / 100) for i in range(960)], rank="34"),
        make_steps([(120.5 + i, 120.6 + i) for i in range(960)], phase="EVAL"),
    )
    events = Events.joined([_operators(), _phases(backward_s), _horovod(), loading(3)])
    return JobInMemory(name="profiled", panels=usual_job().panels, steps=steps, events=events, finished=True)


@cache
def profiled(backward_s: float = 0.5) -> Report:
    """Of ``profiled_job``, by all rules."""
    return reported(profiled_job(backward_s))


@cache
def many_gpus(count: int) -> Report:
    """One node whose GPUs are used 30 to 90%, each steadily."""
    use = np.tile(np.linspace(30, 90, count), (1300, 1))
    return reported(make_job(gpu=use, cpu=np.full((1300, 2), 30.0), memory=use / 2))


#: Snapshots in all, those with a low GPU, those of them with a full core, as a vendor's report had them.
STALLED = (3019, 3000, 2129)


@cache
def stalled() -> Report:
    """A GPU that idles in 3,000 of 3,019 snapshots, in 2,129 of these beside a core that is full and waits."""
    snapshots, low, hits = STALLED
    gpu = np.repeat([1.0, 95.0], [low, snapshots - low])
    return reported(
        make_job(
            gpu=gpu,
            cpu=np.repeat([99.0, 20.0], [hits, snapshots - hits]),
            io_wait=np.repeat([90.0, 0.0], [hits, snapshots - hits]),
        )
    )


@cache
def late(wait: str, start_s: int) -> Report:
    """A job of 40 minutes whose first step comes late; what the GPU did until then: "idle", "warm-up", or no GPU."""
    use = np.repeat([0.0, 95.0], [2 * start_s, 4800 - 2 * start_s])
    steps = make_steps([(start_s + i, start_s + i + 0.9) for i in range(2350 - start_s)])
    if wait == "no GPU":
        return reported(make_job(cpu=use, steps=steps))
    if wait == "warm-up":
        use[20:40] = 30.0
    return reported(make_job(gpu=use, cpu=np.full(4800, 40.0), steps=steps))
