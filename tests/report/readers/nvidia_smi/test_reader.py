"""What becomes of the rows and columns of nvidia-smi logs; each form of them is in ``forms.py``."""

from __future__ import annotations

import gzip
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from jobreport.errors import NothingReadableError, UsageError
from jobreport.options import Options
from jobreport.pipeline import make_report
from jobreport.readers.nvidia_smi.headed import column_names
from jobreport.readers.registry import read_directory, read_job
from jobreport.remarks import SourceQuality
from jobrules.model import Job, Metric
from tests.report.readers.nvidia_smi.tools import MIB, left


def source(quality: object) -> SourceQuality:
    (found,) = quality.sources  # type: ignore[attr-defined]
    assert isinstance(found, SourceQuality)
    return found


def lines_of(hosts: Sequence[str] = "", gpus: int = 2, *, uuids: str = "") -> list[str]:
    """Thirty moments of some GPUs, each with a utilization of its own."""
    return [
        f"2026/01/03 15:00:{second:02}.000, {host}{uuids}{gpu}, {20 * gpu + second % 10 + 5 * host.startswith('b')} %"
        for second in range(30)
        for host in [f"{one}, " for one in hosts] or [""]
        for gpu in range(gpus)
    ]


def uses(folder: Path) -> dict[str, list[int]]:
    """The lowest use of each GPU, by machine."""
    job, _ = read_job(folder, strict=True)
    return {
        panel.node: np.nanmin(panel.values, axis=0).tolist()
        for panel in job.panels_of(Metric.GPU_UTILIZATION)
    }


def test_gpus_with_uuids_only_have_the_numbers_of_their_turn_and_keep_them(tmp_path: Path) -> None:
    # From the top of the alphabet down, and the first is lost on the way.
    lines = [
        line.replace("GPU-0", "GPU-zz").replace("GPU-1", "GPU-mm").replace("GPU-2", "GPU-aa")
        for line in lines_of(gpus=3, uuids="GPU-")
    ]
    header = "timestamp, uuid, utilization.gpu [%]"
    other = "timestamp, uuid, utilization.gpu [%], power.draw [W]"
    late = [f"{line}, 100.00 W" for line in lines[45:] if "GPU-zz" not in line]
    (tmp_path / "gpu.csv").write_text("\n".join([header, *lines[:45], other, *late, ""]))

    assert uses(tmp_path) == {"node": [0, 20, 40]}


def read(folder: Path, **texts: str) -> tuple[Job, SourceQuality]:
    """A job of files by the name before the point."""
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    job, quality = read_job(folder, strict=True)
    return job, source(quality)


def test_columns_of_several_gpus_in_a_row_are_rows_of_each(tmp_path: Path) -> None:
    lines = [f"{1_767_454_613 + i},{i},{i + 50}" for i in range(20)]
    lines[7] = "never,7,57"
    lines[9] = "1767454622,9,"
    text = "\n".join(["unix_time,gpu0_util,gpu3_util", *lines, "a message", ""])

    job, found = read(tmp_path, gpu=text)

    (panel,) = job.panels_of(Metric.GPU_UTILIZATION)
    assert panel.devices == ("gpu0", "gpu3")
    assert np.nanmax(panel.values, axis=0).tolist() == [19, 69]
    assert found.rows == 37
    # Of two GPUs in a line without a time, of one without a value, and a line that is none.
    assert left(found) == 2 + 1 + 1


def test_a_second_column_of_the_same_measure_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    text = "\n".join(["unix_time,util_a,util_b,power.draw,power.draw.average", "1767454613,11,12,3,4", ""])

    job, found = read(tmp_path, gpu=text)

    assert [panel.values.item() for panel in job.panels_of(Metric.GPU_UTILIZATION)] == [11]
    (remark,) = [one for one in found.remarks if one.unit == "columns"]
    assert remark.count == 1
    assert f"({Metric.GPU_UTILIZATION.label})" in remark.reason


def test_epochs_of_a_training_are_no_times(tmp_path: Path) -> None:
    names = "epoch,step,loss,gpu_memory_used_mb"
    dates = [f"{1_746_556_388 + i},{i},0.5,{1000 + i}" for i in range(20)]
    (tmp_path / "gpu.csv").write_text("\n".join([names, *dates, ""]))
    rounds = [f"{i // 5},{i},0.5,{1000 + i}" for i in range(20)]

    job, found = read(tmp_path, train="\n".join([names, *rounds, ""]))

    (panel,) = job.panels_of(Metric.GPU_MEMORY_USED)
    assert len(panel.time_us) == 20
    assert (found.rows, left(found)) == (20, 20)
    assert [r.code for r in found.remarks if r.action == "skipped"] == ["nvidia_smi.no_time"]


def test_rows_of_a_gpu_at_the_same_time_are_one(tmp_path: Path) -> None:
    use = [f"20260103 15:00:{i:02} 0 {i} 10" for i in range(20)]
    power = [f"20260103 15:00:{i:02} 0 {300 + i} 60" for i in range(20)]

    job, found = read(
        tmp_path,
        dmon_u="\n".join(["#Date Time gpu sm mem", *use, ""]),
        dmon_p="\n".join(["#Date Time gpu pwr gtemp", *power, power[5], power[6].replace("306", "99"), ""]),
    )

    panels = {metric: job.panel("node", metric) for metric in (Metric.GPU_UTILIZATION, Metric.GPU_POWER)}
    values = {metric: panel.values.ravel().tolist() for metric, panel in panels.items() if panel}
    assert values == {Metric.GPU_UTILIZATION: [*range(20)], Metric.GPU_POWER: [*range(300, 320)]}
    assert found.rows == 20
    assert {r.code: r.count for r in found.remarks if r.action == "dropped"} == {"nvidia_smi.second_row": 22}


def test_identifiers_that_are_not_available_are_none(tmp_path: Path) -> None:
    names = "timestamp, hostname, uuid, pci.bus_id, utilization.gpu [%]"
    lines = [
        f"2026/01/03 15:00:{i:02}.000, N/A, [N/A], 00000000:0{gpu}:00.0, {{}}{gpu}"
        for i in range(20)
        for gpu in (1, 2)
    ]
    texts = {f"n{n}": "\n".join([names, *lines, ""]).replace("{}", str(n)) for n in (3, 4)}

    job, found = read(tmp_path, **texts)

    assert {p.node: p.values[0].tolist() for p in job.panels_of(Metric.GPU_UTILIZATION)} == {
        "n3": [31, 32],
        "n4": [41, 42],
    }
    assert (found.rows, left(found)) == (80, 0)


@pytest.mark.parametrize(("hosts", "nodes"), [("a", {"a": 40}), ("ab", {"a": 20, "b": 20, "gpu": 20})])
def test_rows_under_a_header_without_a_machine_are_not_lost(
    hosts: str, nodes: dict[str, int], tmp_path: Path
) -> None:
    whens = [f"2026/01/03 15:{i // 60:02}:{i % 60:02}.000" for i in range(40)]
    named = [f"{when}, {host}, 0, 5 %" for when in whens[:20] for host in hosts]
    text = ["timestamp, hostname, index, utilization.gpu [%]", *named, f"{whens[0]}, , 0, 5 %"]
    text += ["timestamp, index, utilization.gpu [%]", *(f"{when}, 0, 5 %" for when in whens[20:]), ""]

    job, found = read(tmp_path, gpu="\n".join(text))

    assert sorted(len(panel.time_us) for panel in job.panels_of(Metric.GPU_UTILIZATION)) == sorted(
        nodes.values()
    )
    assert (found.rows, left(found)) == (20 * len(hosts) + 20, 1)


PMON = "#Date Time gpu pid type sm mem command\n#YYYYMMDD HH:MM:SS Idx # C/G % % name\n"


@pytest.mark.parametrize(
    ("rows", "use"),
    [
        # A process that waits between moments in which it works, none at all, and a number for none of its processes.
        (["0 42 C - - python", "0 42 C 7 1 python"], {"gpu0": [0, 7]}),
        (["0 - - - - -", "0 - - - - -"], {"gpu0": [0, 0]}),
        (
            ["0 - - - - -", "0 42 C - - python", "1 42 C 7 1 python", "1 - - - - -"],
            {"gpu0": [0, 0], "gpu1": [7, 0]},
        ),
    ],
    ids=["waits", "none", "waits on one GPU"],
)
def test_a_dash_is_no_use_only_where_the_use_of_processes_is_known(
    rows: list[str], use: dict[str, list[int]], tmp_path: Path
) -> None:
    text = "".join(f"20260103 15:00:{i:02} {row}\n" for i, row in enumerate(rows))

    job, found = read(tmp_path, pmon=PMON + text)

    (panel,) = job.panels_of(Metric.GPU_UTILIZATION)
    series = zip(panel.devices, panel.values.T, strict=True)
    assert {gpu: one[~np.isnan(one)].tolist() for gpu, one in series} == use
    assert found.rows == sum(map(len, use.values()))
    assert found.rows + left(found) == len(rows)


def test_processes_whose_use_nobody_knows_give_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "pmon.log").write_text(PMON + "20260103 15:00:00 0 42 C - - python\n" * 20)

    with pytest.raises(NothingReadableError, match="rows skipped: no value that is read"):
        read_job(tmp_path)


def test_processes_without_a_gpu_are_those_of_the_only_one(tmp_path: Path) -> None:
    rows = "".join(f"20260103 15:00:{i:02} {pid} {i}\n" for i in range(20) for pid in (42, 43))

    job, found = read(tmp_path, pmon="#Date Time pid sm\n" + rows)

    (panel,) = job.panels_of(Metric.GPU_UTILIZATION)
    assert (panel.devices, panel.values[:, 0].tolist()) == (("gpu0",), [2 * i for i in range(20)])
    assert (found.rows, left(found)) == (20, 20)


def test_processes_without_a_column_of_use_cost_nothing_but_their_rows(tmp_path: Path) -> None:
    apps = "timestamp, pid, used_gpu_memory [MiB]\n2026/01/03 15:00:00.000, 42, 100 MiB\n"

    _, found = read(tmp_path, apps=apps, gpu="\n".join(["unix_time,gpu_util", "1767454613,10", ""]))

    assert (found.rows, left(found)) == (1, 1)


def test_a_number_in_a_unit_of_something_else_is_none(tmp_path: Path) -> None:
    cells = {
        Metric.GPU_MEMORY_USED: ["38 MiB", "38 C", "38 %", "2 GiB", "38M"],
        Metric.GPU_POWER: ["70 W", "70 %", "70 MHz", "70000 mW", "70 W"],
        Metric.GPU_TEMPERATURE: ["38 C", "100 F", "38 W", "38°C", "38 deg"],
        Metric.GPU_UTILIZATION: ["7 %", "7 W", "7 MiB", "7%", "7 %"],
    }
    rows = [f"{1_767_454_613 + i},{','.join(row)}" for i, row in enumerate(zip(*cells.values(), strict=True))]
    header = "unix_time,memory.used,power.draw,temperature.gpu,utilization.gpu"

    job, found = read(tmp_path, gpu="\n".join([header, *rows, ""]))

    found_values = {panel.metric: panel.values[~np.isnan(panel.values)].tolist() for panel in job.panels}
    assert found_values == {
        Metric.GPU_MEMORY_USED: [38 * MIB, 2048 * MIB, 38 * MIB],
        Metric.GPU_POWER: [70, 70, 70],
        Metric.GPU_TEMPERATURE: [38, 38, 38],
        Metric.GPU_UTILIZATION: [7, 7, 7],
    }
    assert [(r.count, r.action) for r in found.remarks if r.unit == "values"] == [(8, "dropped")]
    assert (found.rows, left(found)) == (3, 2)


@pytest.mark.parametrize(
    ("names", "cells", "metric", "values"),
    [
        ("power.draw,power.draw.average", ["70 W,[N/A]", "71 W,[N/A]"], Metric.GPU_POWER, [70, 71]),
        (
            "power.limit,enforced.power.limit",
            ["400 W,ERR!", "400 W,[N/A]"],
            Metric.GPU_POWER_LIMIT,
            [400] * 2,
        ),
        ("clocks.sm,clocks.gr", ["[N/A],900 MHz", "[N/A],[N/A]"], Metric.GPU_CLOCK, [900]),
        # One series has one meaning: gaps of the better column are not filled from another.
        ("power.draw,power.draw.average", ["70 W,[N/A]", "71 W,65 W"], Metric.GPU_POWER, [65]),
    ],
)
def test_a_column_without_any_number_does_not_hide_another(
    names: str, cells: list[str], metric: Metric, values: list[float], tmp_path: Path
) -> None:
    rows = [f"{1_767_454_613 + i},{i},{row}" for i, row in enumerate(cells)]

    job, _ = read(tmp_path, gpu="\n".join([f"unix_time,gpu_util,{names}", *rows, ""]))

    (panel,) = job.panels_of(metric)
    assert panel.values[~np.isnan(panel.values)].tolist() == values


def test_what_is_next_to_nothing_is_nothing(tmp_path: Path) -> None:
    rows = [f"{1_767_454_613 + i},{one} MHz" for i, one in enumerate(["1e-320", "-1e-300", "1e-3"])]

    job, found = read(tmp_path, gpu="\n".join(["unix_time,clocks.sm", *rows, ""]))

    (panel,) = job.panels_of(Metric.GPU_CLOCK)
    assert panel.values[:, 0].tolist() == [0, 0, 1e-3]
    assert not [one for one in found.remarks if one.unit == "values"]


def test_a_comma_is_a_decimal_one_where_another_sign_separates_columns(tmp_path: Path) -> None:
    cells = ["50,09 W", "50,1 W", "50,0937 W", "81,559 W", "50.5 W", "5,0,9 W"]
    rows = [f"{1_767_454_613 + i};{i} %;{one}" for i, one in enumerate(cells)]

    job, found = read(tmp_path, gpu="\n".join(["unix_time;utilization.gpu;power.draw", *rows, ""]))

    (panel,) = job.panels_of(Metric.GPU_POWER)
    # Three digits may be thousands.
    assert panel.values[~np.isnan(panel.values)].tolist() == [50.09, 50.1, 50.0937, 50.5]
    assert [(r.count, r.action) for r in found.remarks if r.unit == "values"] == [(2, "dropped")]


NAMES = "timestamp, index, utilization.gpu [%], memory.used [MiB]"


def headerless(first: int, rows: int, *, units: bool = True) -> str:
    """Rows as with ``--format=csv,noheader``."""
    text = "".join(
        f"2026/01/03 15:00:{i:02}.000, 0, {i} %, {1000 + i} MiB\n" for i in range(first, first + rows)
    )
    return text if units else text.replace(" %", "").replace(" MiB", "")


@pytest.mark.parametrize("units", [True, False])
def test_a_log_without_header_is_refused_with_its_first_row_and_the_option_to_add(
    units: bool, tmp_path: Path
) -> None:
    (tmp_path / "gpu.csv").write_text(headerless(0, 30, units=units))

    for names, option in ((None, "add --columns"), ("timestamp,utilization.gpu", "--columns has 2 names")):
        with pytest.raises(NothingReadableError, match=r"15:00:00\.000, 0, 0.*gpu\.csv:1") as error:
            read_directory(tmp_path, Options(columns=names))
        assert option in str(error.value)


@pytest.mark.parametrize("units", [True, False])
def test_columns_that_are_given_are_those_of_a_log_without_header(units: bool, tmp_path: Path) -> None:
    (tmp_path / "named.csv").write_text(NAMES + "\n" + headerless(0, 30))
    (tmp_path / "nameless.csv").write_text("Unknown Error\n" + headerless(30, 30, units=units))
    (tmp_path / "nameless.csv.1").write_text("\n" + headerless(0, 0))
    (tmp_path / "prices.csv").write_text("name,price,size,x\n1,2,3,4\n")

    reading = read_directory(tmp_path, Options(columns=NAMES, strict=True))

    (panel,) = reading.job.panels_of(Metric.GPU_MEMORY_USED)
    assert (panel.values[:, 0] / MIB).tolist() == [1000 + i for i in range(60)]
    assert left(source(reading.quality)) == 1
    found = [(one.code, one.count) for one in reading.quality.remarks]
    assert found == [("recognized.csv", 1), ("file.empty", 1)]


def test_the_command_of_a_report_repeats_the_columns(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "gpu.csv").write_text(headerless(0, 30))

    outcome = make_report(
        tmp_path / "job", tmp_path / "out", Options(formats=["json"], columns=NAMES, strict=True)
    )

    assert shlex.split(outcome.report.command)[-2:] == ["--columns", NAMES]


def test_parts_of_a_rotated_log_have_the_header_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(headerless(30, 20))
    (tmp_path / "gpu.csv.1.gz").write_bytes(gzip.compress(headerless(20, 10).encode()))
    (tmp_path / "gpu.csv-20260103").write_text(NAMES + "\n" + headerless(0, 20))

    job, quality = read_job(tmp_path, strict=True)

    assert [len(panel.time_us) for panel in job.panels] == [50, 50]
    (remark,) = [one for one in source(quality).remarks if one.code == "nvidia_smi.header_of_part"]
    assert remark.fields == {"name": "gpu.csv-20260103"}


@pytest.mark.parametrize("text", ["", "timestamp", "timestamp,loss", "1,2,3", "timestamp,index,index"])
def test_columns_that_name_nothing_to_read_or_one_twice_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="--columns"):
        column_names(text)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_names_survive_every_encoding(encoding: str, tmp_path: Path) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    lines = ["timestamp, hostname, index, utilization.gpu [%]", *lines_of(["k\u00f6ln"]), ""]
    (tmp_path / "gpu.csv").write_bytes((mark + "\r\n".join(lines)).encode(encoding))

    assert uses(tmp_path) == {"k\u00f6ln": [0, 20]}
