"""The page of a log of GPUs: nothing but what was met, times without a date, and what has no data behind the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jobreport import pipeline
from jobreport.document import Report
from jobreport.options import Options
from jobreport.output import summary
from jobreport.output.export import render_html
from jobreport.page import sections
from jobreport.page.figures.chart import over_time
from jobreport.page.sections.outline import SECTIONS
from jobrules.text import NBSP
from tests.copies import replace
from tests.report.page.sections.html import Page, notebook_of, read
from tests.report.page.sections.test_nodes import text_of
from tests.report.page.sections.test_sections import whole
from tests.report.readers.nvidia_smi.forms import FORMS, write

#: What only the files of another service have, and whoever wrote them.
FOREIGN = re.compile(r"vendor|sagemaker|debugger|amazon|\baws\b|the service\b|the profiler", re.IGNORECASE)
COLUMNS = "index, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], power.draw [W]"
MORE = "power.limit [W], temperature.gpu, clocks.sm [MHz], clocks_event_reasons.active"


def log(time: str = "timestamp", rows: int = 41) -> str:
    """Two GPUs, a sample every 2 s; the second one is slowed by heat in every second of them."""
    lines = [f"{time}, {COLUMNS}, {MORE}"]
    for i in range(rows):
        when = f"2026/03/04 10:{i // 30:02d}:{2 * i % 60:02d}.000" if time == "timestamp" else f"{2.0 * i}"
        for gpu in (0, 1):
            hot = gpu == 1 and i % 2
            lines.append(
                f"{when}, {gpu}, 90%, 30%, {2048 * (1 + gpu)} MiB, 8192 MiB, {200 + 100 * gpu}.00 W, 400.00 W, "
                f"{60 + gpu}, {1200 if hot else 1500} MHz, 0x{0x20 if hot else 0:016x}"
            )
    return "\n".join(lines) + "\n"


def report_of(folder: Path, text: str) -> Report:
    (folder / "job").mkdir()
    (folder / "job" / "gpu.csv").write_text(text, "utf-8")
    return pipeline.make_report(folder / "job", folder / "out", Options(formats=("json",))).report


@cache
def logged() -> Report:
    with TemporaryDirectory() as folder:
        return report_of(Path(folder), log())


@pytest.fixture(scope="module")
def report() -> Report:
    return logged()


@pytest.fixture(scope="module")
def undated(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of(tmp_path_factory.mktemp("undated"), log("elapsed_sec"))


def test_a_log_speaks_of_no_service_that_it_never_met(report: Report) -> None:
    found = {name: FOREIGN.findall(one.html) for name, one in sections.page(report).items()}

    assert {name: words for name, words in found.items() if words} == {}


def test_times_without_dates_count_from_the_start(undated: Report) -> None:
    pieces = [one.html for one in sections.page(undated).values()]

    assert [
        re.findall(r".{40}(?:UTC|1970).{20}", html) for html in pieces if re.search("UTC|1970", html)
    ] == []
    told = text_of(whole(undated))
    assert "00:00:00 to 00:01:20 after the start" in told
    assert "Start (from the start)" in told
    assert "Times count from the start of the log." in told


def test_a_log_of_days_counts_on() -> None:
    hour = 3_600_000_000

    axis = over_time(0, 60 * hour)
    assert [tick.label for tick in axis.ticks] == ["00:00", "12:00", "24:00", "36:00", "48:00", "60:00"]
    assert axis.told("@time") == "day @time{%j}, @time{%T} after the start"
    assert over_time(0, hour).told("@time") == "@time{%T} after the start"


def reasons(names: str, rows: list[str]) -> str:
    """A sample every second; a row is the cells of GPU 0 and, behind a bar, those of further ones."""
    told = [f"timestamp, index, {names}"]
    for i, row in enumerate(rows):
        when = f"2026/03/04 {10 + i // 3600}:{i // 60 % 60:02d}:{i % 60:02d}.000"
        told += [f"{when}, {gpu}, {cells}" for gpu, cells in enumerate(row.split(" | "))]
    return "\n".join(told) + "\n"


HEAT = "clocks_event_reasons.sw_thermal_slowdown"
HARDWARE = "clocks_event_reasons.hw_slowdown"


def power_of(names: str, rows: list[str]) -> sections.Fragment:
    with TemporaryDirectory() as folder:
        return sections.power(report_of(Path(folder), reasons(names, rows)))


COOL, HOT = "95%, Not Active", "95%, Active"
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "reasons of one of four GPUs": lambda: power_of(
        f"utilization.gpu [%], temperature.gpu, {HEAT}",
        ["95%, 60, Not Active | 95%, 60, [N/A] | 95%, 60, [N/A] | 95%, [N/A], [N/A]"] * 20,
    ),
    "one sample of a GPU": lambda: power_of(
        f"utilization.gpu [%], {HEAT}", [f"{COOL} | {HOT}"] + [COOL] * 20
    ),
    "heat for a second": lambda: power_of(
        f"utilization.gpu [%], {HEAT}", [COOL] * 100 + [HOT] + [COOL] * 3000
    ),
    "reasons of two of three GPUs": lambda: power_of(
        f"utilization.gpu [%], temperature.gpu, {HEAT}",
        ["95%, 60, Not Active | 95%, 60, Active | 95%, 60, [N/A]"] * 20,
    ),
    "a slowdown that may be of heat": lambda: power_of(
        f"utilization.gpu [%], {HEAT}, {HARDWARE}", [f"{COOL}, Not Active"] * 20 + [f"{COOL}, Active"] * 20
    ),
    "memory activity alone": lambda: sections.gpu_memory(replace(logged(), power=())),
    "memory in use and activity": lambda: sections.gpu_memory(logged()),
}


def test_a_slowdown_is_drawn_where_it_happened(report: Report) -> None:
    html = sections.power(report).html

    drawn = set(re.findall(r'id="live-power0-([a-z-]+)"', html))
    assert drawn == {"gpu-power", "gpu-temperature", "gpu-clock", "gpu-thermal-slowdown"}
    assert "gpu-power" not in sections.nodes(report).html


def test_sections_without_data_are_one_line(report: Report) -> None:
    html = render_html(notebook_of(sections.page(report).values()))

    titles = (
        "framework time; steps; goodput; data loading; CPU bottlenecks; I/O bottlenecks; close-ups; "
        "Python profiles; cost and size"
    )
    page = Page.of(html)
    assert not page.faults
    assert page.text.count(f"Sections without data: {titles}") == 1
    for title in titles.split("; "):
        (anchor,) = (name for name, own in SECTIONS if own.lower() == title.lower())
        assert page.ids.count(anchor) == 1
        assert f'<a href="#{anchor}">' not in html.partition("<main>")[2].partition("</nav>")[0]
    assert html.index('id="nothing-to-show"') > html.index('id="identifiers"')


def test_the_table_of_logs_says_which_file_is_of_which_node(tmp_path: Path) -> None:
    for node, use in (("secret-1", "90%"), ("secret-2", "80%")):
        (tmp_path / "job" / node).mkdir(parents=True)
        (tmp_path / "job" / node / "gpu.csv").write_text(log().replace("90%", use))

    report, redacted = (
        pipeline.make_report(
            tmp_path / "job", tmp_path / f"out-{hidden}", Options(formats=("json",), redact=hidden)
        ).report
        for hidden in (False, True)
    )

    found = read(sections.quality(report))
    when = "2026-03-04 10:00:00 2026-03-04 10:01:20 82"
    assert "Logs and their nodes." in found.text
    for node in ("secret-1", "secret-2"):
        assert f"{node}/gpu.csv {node} 2 {when}" in " ".join(found.text.split())
    page = sections.quality(redacted)
    assert "secret" not in page.html
    assert f"file-1 node-1 2 {when}" in " ".join(read(page).text.split())


def test_a_single_log_needs_no_table_and_very_many_are_cut(report: Report) -> None:
    (source,) = report.quality.sources
    logs = source.logs * 60
    many = replace(report, quality=replace(report.quality, sources=(replace(source, logs=logs),)))

    assert "Logs and their nodes" not in read(sections.quality(report)).text
    assert "Not shown: 10" in read(sections.quality(many)).text


def test_what_is_not_read_and_that_machines_are_mixed_is_said_where_people_look_first(tmp_path: Path) -> None:
    forms = {form.name: form for form in FORMS}
    for node, use in (("n1", "90%"), ("n2", "80%"), ("n7", "30%")):
        (tmp_path / "job" / node).mkdir(parents=True)
        (tmp_path / "job" / node / "gpu.csv").write_text(log().replace("90%", use))
    for name in ("vmstat", "dool", "megatron"):
        write(tmp_path / "job", forms[name].write(()))

    report = pipeline.make_report(tmp_path / "job", tmp_path / "out", Options(formats=("json",))).report

    unread = "3 files are not read: the CSV of dool or dstat, the log of a training with Megatron, the output of vmstat."
    mixed = "The logs of 3 machines are one job here: n1, n2, and n7."
    assert {unread, mixed} <= {line.replace(NBSP, " ") for line in summary.terminal(report)}
    text = summary.markdown(report).replace(NBSP, " ").replace("\\", "")
    assert unread in text
    assert mixed in text
    assert unread in read(sections.head(report)).text.replace(NBSP, " ")
