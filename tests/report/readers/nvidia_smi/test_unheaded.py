"""Forms of GPU logs without a header line: what tools wrote of known values comes out again, whatever is damaged."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from jobreport.errors import NothingReadableError
from jobreport.readers.base import SourceFile
from jobreport.readers.nvidia_smi import boxed as boxes
from jobreport.readers.nvidia_smi import unheaded
from jobreport.readers.nvidia_smi.reader import NvidiaSmi
from jobreport.readers.nvidia_smi.table import Block
from jobreport.readers.registry import read_job
from jobreport.remarks import SourceQuality
from jobrules.model import Job, Metric
from tests.report.readers.nvidia_smi.tools import (
    METRICS,
    START,
    Sample,
    assert_same,
    boxed,
    ctime,
    gpustat,
    gpustat_json,
    left,
    moments,
    query_text,
    query_xml,
    read,
)

NO_LIMIT = METRICS - {Metric.GPU_POWER_LIMIT}
QUERY = METRICS | {
    Metric.GPU_MEMORY_ACTIVITY,
    Metric.GPU_CLOCK,
    Metric.GPU_THERMAL_SLOWDOWN,
    Metric.GPU_POWER_CAP,
    Metric.GPU_HARDWARE_SLOWDOWN,
    Metric.GPU_ECC_CORRECTED,
    Metric.GPU_ECC_UNCORRECTED,
}
#: What writes each form, and what it says.
FORMS: dict[str, tuple[Callable[[Sequence[Sample]], str], set[Metric]]] = {
    "box 530": (partial(boxed, driver="530.30.02", cap="N/A"), NO_LIMIT),
    "box 470": (partial(boxed, driver="470.57.02", mode="On"), METRICS),
    "box 545": (partial(boxed, driver="545.23.08"), METRICS),
    "box 580 Windows": (partial(boxed, driver="581.29", mode="WDDM"), METRICS),
    "box MIG": (partial(boxed, driver="580.65.06", mode="On", mig=True), METRICS - {Metric.GPU_UTILIZATION}),
    "gpustat": (partial(gpustat, options=""), NO_LIMIT - {Metric.GPU_POWER}),
    "gpustat power": (partial(gpustat, options="fan, codec, power", iso=True), METRICS),
    "gpustat no limit": (partial(gpustat, options="power, no limit"), NO_LIMIT),
    "gpustat JSON": (gpustat_json, METRICS),
    "gpustat JSON lines": (partial(gpustat_json, indent=None), METRICS),
    **{f"-q {driver}": (partial(query_text, driver=driver), QUERY) for driver in (525, 535, 545, 560)},
    **{f"-q -x {driver}": (partial(query_xml, driver=driver), QUERY) for driver in (525, 535, 550)},
}


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_what_was_written(form: str, gpus: int, tmp_path: Path) -> None:
    write, metrics = FORMS[form]
    samples = moments(5, gpus)

    job, found = read(tmp_path, "".join(map(write, samples)))

    assert_same(job, samples, metrics)
    assert "nvidia_smi.same_second" not in {r.code for r in found.remarks}
    assert (found.rows, left(found), left(found, unit="documents")) == (5 * gpus, 0, 0)


def assert_true(job: Job, samples: Sequence[Sequence[Sample]], but: Collection[Metric] = ()) -> None:
    """Whatever is there is what was written of that GPU at that time."""
    at = {round(one.time.timestamp() * 1e6): some for some in samples for one in some}
    for panel in job.panels:
        for time_us, values in zip(panel.time_us.tolist(), panel.values, strict=True):
            for device, value in zip(panel.devices, values.tolist(), strict=True):
                if panel.metric not in but and not np.isnan(value):
                    assert value == at[time_us][int(device[3:])].value(panel.metric), (panel.metric, device)


def damages(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Each line of the middle text without its second half, without its last character, missing, and doubled."""
    before, middle, after = texts
    lines = middle.splitlines(keepends=True)
    found = []
    for i, whole in enumerate(lines):
        line = whole[:-1]
        for kind, some in (
            ("half", [line[: len(line) // 2], "\n"]),
            ("short", [line[:-1], "\n"]),
            ("missing", []),
            ("doubled", [whole, whole]),
        ):
            text = "".join([before, *lines[:i], *some, *lines[i + 1 :], after])
            found.append((f"{kind} {line}", text))
    return found


#: Sums: of counts, which have no unit that shows a missing digit, and of reasons, any of which is enough.
SUMS = {
    *(Metric.GPU_ECC_CORRECTED, Metric.GPU_ECC_UNCORRECTED),
    *(Metric.GPU_HARDWARE_SLOWDOWN, Metric.GPU_THERMAL_SLOWDOWN),
}


@pytest.mark.parametrize(
    "form",
    [
        "box 530",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("box 545", "gpustat power", "-q 560")),
    ],
)
def test_a_damaged_line_gives_no_other_number_and_its_rows_are_counted(form: str, tmp_path: Path) -> None:
    write, _ = FORMS[form]
    samples = moments(3, 2)

    for damage, text in damages([write(some) for some in samples]):
        job, found = read(tmp_path, text)

        assert_true(job, samples, SUMS)
        # Only this line says that there is another GPU.
        rows = 5 if damage.startswith(("missing [", "missing GPU 00000000:11")) else 6
        assert 4 <= found.rows <= rows, damage
        assert 0 <= found.rows + left(found) - rows <= damage.startswith("doubled"), damage


@pytest.mark.parametrize("form", ["gpustat JSON", pytest.param("-q -x 550", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_damaged_document_is_counted_and_the_others_are_read(form: str, tmp_path: Path) -> None:
    write, _ = FORMS[form]
    samples = moments(3, 2)

    for damage, text in damages([write(some) for some in samples]):
        job, found = read(tmp_path, text)

        assert_true(job, samples, SUMS)
        assert found.rows >= 4, damage
        # Half of a document may be counted, and its other half.
        assert found.rows + left(found) == 6 or left(found, unit="documents") in (1, 2), damage


def codes(found: SourceQuality) -> dict[str, int]:
    """What was left out, by code."""
    return {r.code: r.count for r in found.remarks if r.action == "skipped"}


@pytest.mark.parametrize("form", FORMS)
def test_a_single_moment_is_not_read_and_its_remark_names_the_gpus(form: str, tmp_path: Path) -> None:
    (tmp_path / "smi.txt").write_text(FORMS[form][0](*moments(1, 2)))

    with pytest.raises(NothingReadableError, match=r"one moment only: .* “2 × NVIDIA A100-SXM4-80GB, 81559"):
        read_job(tmp_path, strict=True)


def test_moments_of_one_second_lie_evenly_in_it(tmp_path: Path) -> None:
    samples = [replace(some, START + timedelta(seconds=i // 4)) for i, some in enumerate(moments(12, 2))]
    even = [replace(some, START + timedelta(seconds=i / 4)) for i, some in enumerate(samples)]

    job, found = read(tmp_path, "".join(map(boxed, samples)))

    assert_same(job, even, METRICS)
    assert "nvidia_smi.same_second" in {r.code for r in found.remarks}


def replace(samples: Sequence[Sample], time: datetime) -> list[Sample]:
    return [Sample(one.number, one.gpu, time) for one in samples]


def test_boxes_of_two_machines_in_one_second_keep_it() -> None:
    mine = [replace(some, START + timedelta(seconds=i)) for i, some in enumerate(moments(3, 2))]
    others = [boxed(some).replace(":10:00.0", ":20:00.0") for some in mine]
    text = "".join(one + other for one, other in zip(map(boxed, mine), others, strict=True))

    (table,) = boxes.tables([Block(line=1, lines=text.split("\n"))], ())

    times = table.columns[0]  # type: ignore[union-attr]
    assert times.distinct == [some[0].time.strftime("%Y-%m-%d %H:%M:%S.000000") for some in mine]
    assert np.bincount(times.code).tolist() == [4, 4, 4]


def test_seconds_stay_whole_where_very_many_rows_are_several_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unheaded, "_ROWS", 9)
    samples = [replace(some, START + timedelta(seconds=i // 4)) for i, some in enumerate(moments(28, 2))]
    even = [replace(some, START + timedelta(seconds=i / 4)) for i, some in enumerate(moments(28, 2))]

    job, found = read(tmp_path, "".join(map(boxed, samples)))

    assert_same(job, even, METRICS)
    assert found.rows == 56


def test_a_box_without_a_date_is_counted(tmp_path: Path) -> None:
    first, second, third = moments(3, 2)

    job, found = read(tmp_path, boxed(first) + boxed(second, date=False) + boxed(third))

    assert_same(job, [first, third], METRICS)
    assert codes(found) == {"nvidia_smi.undated": 2}


@pytest.mark.parametrize(
    "form", ["box 545", "gpustat", "gpustat power", "gpustat JSON", "-q 560", "-q -x 550"]
)
def test_a_time_that_does_not_exist_is_none(form: str, tmp_path: Path) -> None:
    write, metrics = FORMS[form]
    first, second, third = moments(3, 2)

    job, found = read(tmp_path, write(first) + write(second).replace(":59:52", ":99:52") + write(third))

    assert_same(job, [first, third], metrics)
    assert codes(found) == {"nvidia_smi.undated": 2}


def test_watch_names_the_host_and_dates_of_other_tools_are_passed_over(tmp_path: Path) -> None:
    samples = moments(3, 2)
    between = "Fri 21 Nov 2025 11:41:31 PM EST\nSun Feb 16 09:59:50 UTC 2025\nstep 12 | loss 0.5 | 3 / 4\n"

    job, _ = read(
        tmp_path,
        "".join(
            f"\x1b[H\x1b[2JEvery 1.0s: nvidia-smi        worker-7: {ctime(some[0].time)}\n\n{boxed(some)}{between}"
            for some in samples
        ),
    )

    assert job.nodes == ("worker-7",)
    assert_same(job, samples, METRICS)


def test_watch_that_writes_only_changes_is_not_read(tmp_path: Path) -> None:
    # As watch of procps 4 writes to a file: blanks are jumps of the cursor, and the second screen is three digits.
    first = re.sub(r" {6,}", "\x1b[6C", boxed(*moments(1, 2))).replace("\n", "\r\x1b[1B")
    title = f"\x1b[H\x1b[JEvery 1.0s: nvidia-smi\x1b[1;93Hworker-7: {ctime(START)}\x1b[3;1H"
    (tmp_path / "watch.txt").write_text(f"{title}{first}\x1b[1;115H1\x1b[12;32H22\x1b[24;80H")

    _, found = read(tmp_path, "".join(map(boxed, moments(3, 2))))

    assert found.rows == 6
    assert codes(found) == {"nvidia_smi.watch": 1, "nvidia_smi.part_of_row": 2}


@pytest.mark.slow
def test_a_log_that_is_cut_anywhere_keeps_all_whole_rows(tmp_path: Path) -> None:
    samples = moments(3, 1)
    before, last = "".join(map(boxed, samples[:2])), boxed(samples[2])
    complete = last.index("Default |") + len("Default |")

    for end in range(0, len(last), 7):
        job, found = read(tmp_path, before + last[:end])

        assert_same(job, samples[: 3 if end >= complete else 2], METRICS)
        assert found.rows + left(found) in (2, 3)


@pytest.mark.parametrize(
    ("written", "instead", "missing"),
    [
        ("60W /  400W", "N/A  /  400W", Metric.GPU_POWER),
        ("60W /  400W", "ERR! /  400W", Metric.GPU_POWER),
        ("60W /  400W", "60W /  N/A ", Metric.GPU_POWER_LIMIT),
        ("60W /  400W", "60W / ERR! ", Metric.GPU_POWER_LIMIT),
        ("20C", "N/A", Metric.GPU_TEMPERATURE),
        ("0%   ", "N/A  ", Metric.GPU_UTILIZATION),
        ("0%   ", "Unknown Error", Metric.GPU_UTILIZATION),
    ],
)
def test_a_value_that_a_box_does_not_have_is_missing_and_counted(
    written: str, instead: str, missing: Metric, tmp_path: Path
) -> None:
    samples = moments(3, 1)
    texts = [boxed(some) for some in samples]
    assert written in texts[0]

    job, found = read(tmp_path, texts[0].replace(written, instead, 1) + "".join(texts[1:]))

    lacking = {panel.metric for panel in job.panels if len(panel.time_us) == 2}
    assert lacking == {missing}
    assert_true(job, samples)
    assert [r.count for r in found.remarks if r.code == "samples.not_available"] == [1]


def test_memory_that_is_shared_with_the_machine_has_no_size_of_its_own(tmp_path: Path) -> None:
    texts = [boxed(some) for some in moments(2, 1)]
    shared = [re.sub(r"\| *[0-9]+MiB / *[0-9]+MiB \|", "|     Not Supported      |", text) for text in texts]

    job, _ = read(tmp_path, "".join(shared))

    memory = {Metric.GPU_MEMORY_USED, Metric.GPU_MEMORY_TOTAL}
    assert {panel.metric for panel in job.panels} == METRICS - memory


@pytest.mark.parametrize(("name", "is_log"), [("gpu.json", False), ("gpu.txt", True)])
def test_json_that_looks_like_a_header_is_no_log(name: str, is_log: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text('{"timestamp": 5, "index": 0, "utilization.gpu": 5}\n')

    assert NvidiaSmi().matches_content(SourceFile(name=name, place=str(path))) is is_log


def test_a_csv_log_with_a_box_in_front_is_read_as_csv(tmp_path: Path) -> None:
    rows = "".join(f"2025/02/16 09:00:{i:02}.000, {i} %\n" for i in range(9))

    job, _ = read(tmp_path, f"{boxed(*moments(1, 1))}timestamp, utilization.gpu [%]\n{rows}")

    (panel,) = job.panels
    assert panel.values[:, 0].tolist() == list(range(9))


ENTITIES = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "9999"><!ENTITY b "&a;&a;&a;">]>\n'


@pytest.mark.parametrize(
    ("old", "new", "rows"),
    [
        ("<?xml", ENTITIES + "<?xml", 3),
        ("<product_name>", ENTITIES + "<product_name>", 2),
        ("<total>", "<total>&b;", 2),
        ("<total>", "<total>&amp;", 3),
        ("<utilization>", "<a>" * 10**5, 2),
        ("<utilization>", "<a>" * 10**5 + "</a>" * 10**5 + "<utilization>", 3),
        ("<utilization>", "<a/>\n" * (1 << 19) + "<utilization>", 2),
        ("<utilization>", "\n" * (1 << 21) + "<utilization>", 2),
    ],
    ids=["declared", "declared within", "used", "predefined", "open", "deep", "large", "long"],
)
def test_hostile_xml_costs_its_document_at_most(old: str, new: str, rows: int, tmp_path: Path) -> None:
    first, second, third = moments(3, 1)

    job, found = read(tmp_path, query_xml(first) + query_xml(second).replace(old, new, 1) + query_xml(third))

    assert_true(job, [first, second, third])
    assert found.rows == rows
    assert left(found, unit="documents") == 3 - rows


@pytest.mark.parametrize(
    "hostile",
    [
        '{"gpus": ' + "[" * 100_000,
        '{"gpus": [{"index": ' + "9" * 5000 + "}]}",
        '{"gpus": [1]}',
        "{}",
        "{\n" * 999,
    ],
)
def test_hostile_json_is_counted_as_damaged(hostile: str, tmp_path: Path) -> None:
    samples = moments(2, 2)

    job, found = read(tmp_path, gpustat_json(samples[0]) + hostile + "\n" + gpustat_json(samples[1]))

    assert_same(job, samples, METRICS)
    assert codes(found) == {"nvidia_smi.damaged_document": max(1, hostile.count("\n"))}


@pytest.mark.parametrize("form", ["box 545", "gpustat power", "-q 560"])
def test_endless_boxes_and_lines_take_time_in_proportion(form: str, tmp_path: Path) -> None:
    first, second = map(FORMS[form][0], moments(2, 2))
    begin = time.process_time()

    for hostile in (
        "|" * (1 << 19),
        "| " * (1 << 18) + "\n",
        " " * (1 << 19) + "|\n",
        "[0] " * (1 << 17),
        "[0] |1C," + "1" * (1 << 19),
    ):
        read(tmp_path, f"{first}\n{hostile}\n{second}")

    assert time.process_time() - begin < 5
