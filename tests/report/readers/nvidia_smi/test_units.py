"""What a column measures and in which unit, where nothing but its values tells: the truth, or a remark on the column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobreport.errors import NothingReadableError
from jobreport.readers import text_files
from jobreport.readers.nvidia_smi import lines
from jobreport.readers.nvidia_smi.cells import _plain_numbers, _value
from jobreport.readers.nvidia_smi.columns import Column
from jobreport.readers.registry import read_job
from jobreport.remarks import Remark
from jobrules.model import Job, Metric
from jobrules.text import escape_name

USE, ACTIVITY, USED, TOTAL = (
    Metric.GPU_UTILIZATION,
    Metric.GPU_MEMORY_ACTIVITY,
    Metric.GPU_MEMORY_USED,
    Metric.GPU_MEMORY_TOTAL,
)
POWER, HEAT, CLOCK = Metric.GPU_POWER, Metric.GPU_TEMPERATURE, Metric.GPU_CLOCK
MIB = 1 << 20
ROWS = 70
#: The prefix of codes, and what is said of the unit of a column.
ASSUMED, FRACTION, UNCLEAR, MIXED, IMPOSSIBLE, NOT_ACTIVITY, AS_ACTIVITY, USE_IN_GPU = (
    "assumed_unit",
    "fraction",
    "unclear_unit",
    "mixed_units",
    "impossible_unit",
    "not_activity",
    "assumed_activity",
    "use_in_gpu",
)
UNITS = {ASSUMED, FRACTION, UNCLEAR, MIXED, IMPOSSIBLE, NOT_ACTIVITY, AS_ACTIVITY, USE_IN_GPU}

Cell: TypeAlias = Callable[[int], object]


def use(row: int) -> int:
    return 37 * row % 101


def memory(row: int) -> int:
    return 9_000 + 11 * row


def read(text: str) -> tuple[Job, tuple[Remark, ...]]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "gpu.csv").write_text(text, "utf-8")
        job, quality = read_job(Path(folder), strict=True)
        return job, quality.sources[0].remarks


def values_of(job: Job) -> dict[Metric, list[float]]:
    """The values of the first GPU."""
    return {panel.metric: panel.values[:, 0].tolist() for panel in job.panels}


def codes(remarks: Sequence[Remark]) -> set[str]:
    return {one.code.partition(".")[2] for one in remarks} & UNITS


#: Names and cells of columns, what they hold, and what is said of them.
CASES: Mapping[str, tuple[Mapping[str, Cell], Mapping[Metric, Cell], set[str]]] = {
    "load": ({"load": lambda i: use(i) / 100}, {USE: use}, {FRACTION}),
    "gpu_load": ({"gpu_load": lambda i: f"{use(i) / 100:.2f}"}, {USE: use}, {FRACTION}),
    "percent and idle": ({"gpu_util": lambda i: 0.3 * (i % 4) + 2 * (i in (9, 19))}, {USE: lambda i: 0.3 * (i % 4) + 2 * (i in (9, 19))}, set()),
    "0 or 1": ({"util": lambda i: i % 2}, {}, {UNCLEAR}),
    "0 or 1, seldom a fraction": ({"util": lambda i: 0.5 if i == 7 else 1}, {}, {UNCLEAR}),
    "fractions with damage": ({"util": lambda i: 77 if i == 7 else use(i) / 100}, {}, {UNCLEAR}),
    "0": ({"util": lambda i: 0}, {USE: lambda i: 0}, set()),
    "0 or 1 of the tool": ({"utilization.gpu": lambda i: i % 2}, {USE: lambda i: i % 2}, set()),
    "0 or 1 in percent": ({"util": lambda i: f"{i % 2} %"}, {USE: lambda i: i % 2}, set()),
    "0 or 1 and the name says fraction": ({"gpu_util_fraction": lambda i: i % 2}, {USE: lambda i: 100 * (i % 2)}, set()),
    "fractions and the name says percent": ({"gpu_util_pct": lambda i: use(i) / 100}, {}, {UNCLEAR}),
    "mW": ({"power": lambda i: 61_000 + i}, {POWER: lambda i: 61 + i / 1000}, {ASSUMED}),
    "mW and some W": ({"power": lambda i: f"{61 + i} W" if i % 2 else 61_000 + 1000 * i}, {}, {MIXED}),
    "mW and the name says W": ({"gpu_power_w": lambda i: 4_939 + i}, {}, {IMPOSSIBLE}),
    "mW in the name": ({"power_mw": lambda i: 61_000 + i}, {POWER: lambda i: 61 + i / 1000}, set()),
    "W with and without": ({"power": lambda i: f"{61 + i} W" if i % 2 else 61 + i}, {}, {MIXED}),
    "W with damage": ({"power": lambda i: 61_000 if i == 7 else 61}, {POWER: lambda i: None if i == 7 else 61}, set()),
    "nobody's power": ({"power": lambda i: 3e6}, {}, {IMPOSSIBLE}),
    "past all numbers": ({"power": lambda i: "1e308", "memory_used": lambda i: "1e400"}, {}, {IMPOSSIBLE}),
    "m°C": ({"temp": lambda i: 48_500}, {HEAT: lambda i: 48.5}, {ASSUMED}),
    "Kelvin": ({"temp_c": lambda i: 320}, {}, {IMPOSSIBLE}),
    "kHz": ({"sm_clock": lambda i: 1_410_000}, {CLOCK: lambda i: 1410}, {ASSUMED}),
    "GHz": ({"sm_clock": lambda i: 1.41}, {CLOCK: lambda i: 1410}, {ASSUMED}),
    "GiB in all": ({"memory_total": lambda i: 80}, {TOTAL: lambda i: 80 << 30}, {ASSUMED}),
    "MiB of the tool": ({"memory.used": memory}, {USED: lambda i: memory(i) * MIB}, set()),
    "MiB in the name": ({"mem_used_mb": memory}, {USED: lambda i: memory(i) * MIB}, set()),
    "GiB in the name": ({"gpu_mem_gb": lambda i: memory(i) / 1024}, {USED: lambda i: memory(i) * MIB}, set()),
    "MiB": ({"memory_used": memory}, {USED: lambda i: memory(i) * MIB}, {ASSUMED}),
    "bytes": ({"memory_used": lambda i: memory(i) * MIB}, {USED: lambda i: memory(i) * MIB}, {ASSUMED}),
    "bytes and nothing at first": ({"memory_used": lambda i: memory(i) * MIB * (i > 40)}, {USED: lambda i: memory(i) * MIB * (i > 40)}, {ASSUMED}),
    "bytes and the name says MiB": ({"memory_used_mib": lambda i: memory(i) * MIB}, {}, {IMPOSSIBLE}),
    "GiB": ({"memory_used": lambda i: memory(i) / 1024}, {}, {UNCLEAR}),
    "used and free": ({"memory_used_gib": lambda i: 8, "memory_free_gib": lambda i: 72}, {USED: lambda i: 8 << 30}, set()),
    "mem in MiB": ({"mem": memory}, {USED: lambda i: memory(i) * MIB}, {ASSUMED}),
    "mem with MiB": ({"mem": lambda i: f"{memory(i)}MiB"}, {USED: lambda i: memory(i) * MIB}, set()),
    "mem": ({"mem": use}, {ACTIVITY: use}, {AS_ACTIVITY}),
    "mem%": ({"mem%": use}, {}, set()),
    "mem of dmon": ({"sm": use, "mem": use}, {USE: use, ACTIVITY: use}, set()),
    "mem next to the CPU": ({"cpu": use, "mem": use}, {}, set()),
    "vram": ({"vram": use}, {}, {UNCLEAR}),
    "memory of GPUtil": ({"memoryUtil": lambda i: use(i) / 100, "memoryUsed": lambda i: f"{memory(i)}.0"}, {USED: lambda i: memory(i) * MIB}, {NOT_ACTIVITY, ASSUMED}),
    "a share of memory": ({"mem_util_pct": lambda i: use(i) / 3}, {}, {NOT_ACTIVITY}),
    "memory activity": ({"mem_util": use}, {ACTIVITY: use}, {AS_ACTIVITY}),
    "a whole share of memory": ({"mem_util": lambda i: round(memory(i) / 400), "mem_used_mb": memory, "mem_total_mb": lambda i: 40_000}, {USED: lambda i: memory(i) * MIB, TOTAL: lambda i: 40_000 * MIB}, {NOT_ACTIVITY}),
    "activity of a GPU that mostly idles": ({"mem_util": lambda i: 40 * (i > 50), "mem_used_mb": lambda i: 20_000 if i > 50 else 4, "mem_total_mb": lambda i: 81_920}, {ACTIVITY: lambda i: 40 * (i > 50), USED: lambda i: (20_000 if i > 50 else 4) * MIB, TOTAL: lambda i: 81_920 * MIB}, {AS_ACTIVITY}),
    "no share of memory": ({"mem_util": use, "mem_used_mb": memory, "mem_total_mb": lambda i: 40_000}, {ACTIVITY: use, USED: lambda i: memory(i) * MIB, TOTAL: lambda i: 40_000 * MIB}, {AS_ACTIVITY}),
    "gpu": ({"gpu": use}, {USE: use}, {USE_IN_GPU}),
    "GPU and mem": ({"GPU": use, "mem": memory}, {USE: use, USED: lambda i: memory(i) * MIB}, {USE_IN_GPU, ASSUMED}),
    "gpu, idle": ({"gpu": lambda i: 7 * (i % 9 == 8)}, {USE: lambda i: 7 * (i % 9 == 8)}, {USE_IN_GPU}),
    "gpu in percent": ({"gpu": lambda i: f"{i % 2}%"}, {USE: lambda i: i % 2}, {USE_IN_GPU}),
    "gpu as a fraction": ({"gpu": lambda i: use(i) / 100}, {USE: use}, {USE_IN_GPU, FRACTION}),
    "gpu next to an index": ({"index": lambda i: 3, "gpu": use}, {USE: use}, set()),
    "gpu next to the use": ({"gpu": lambda i: 3, "util": use}, {USE: use}, set()),
    "numbers of rows": ({"index": lambda i: 100 + i, "util": use}, {USE: use}, set()),
    "gpu%": ({"gpu%": use}, {USE: use}, set()),
    "gpu and neither": ({"gpu": lambda i: 1000 + use(i)}, {}, {IMPOSSIBLE}),
    "use and damage": ({"util": lambda i: 250 if i == 7 else 50}, {USE: lambda i: None if i == 7 else 50}, set()),
    "no use": ({"util": lambda i: 250 * (i % 9 == 8)}, {}, {IMPOSSIBLE}),
    "thousands": (
        {"memory.used": lambda i: f"{memory(i) + 15_000:,} MiB", "power": lambda i: "1,234.5" if i % 2 else "234,5"},
        {USED: lambda i: (memory(i) + 15_000) * MIB, POWER: lambda i: 1234.5 if i % 2 else 234.5},
        set(),
    ),
    "blanks for thousands": ({"memory.used": lambda i: f"{memory(i) + 15_000:,} MiB".replace(",", " ")}, {USED: lambda i: (memory(i) + 15_000) * MIB}, set()),
    "fractions of two GPUs": ({"gpu0_util": lambda i: i % 2, "gpu1_util": lambda i: use(i) / 100}, {USE: lambda i: 100 * (i % 2)}, {FRACTION}),
    "percent of two GPUs": ({"gpu0_util": lambda i: i % 2, "gpu1_util": use}, {USE: lambda i: i % 2}, set()),
}  # fmt: skip


def text_of(columns: Mapping[str, Cell]) -> str:
    """A log with these columns, and one that is read whatever they are."""
    written = [";".join(["time", *columns, "power.limit [W]"])]
    written += [
        ";".join(map(str, [1_767_454_613 + i, *(cell(i) for cell in columns.values()), "400 W"]))
        for i in range(ROWS)
    ]
    return "\n".join(written) + "\n"


def read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files in pieces of some rows, each a table of its own."""

    def chunks(path: Path) -> Iterator[bytes]:
        data = path.read_bytes()
        yield from (data[begin : begin + 150] for begin in range(0, len(data), 150))

    monkeypatch.setattr(lines, "_PIECE", 1)
    monkeypatch.setattr(text_files, "chunks", chunks)


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_unit_of_a_column_is_found_or_said(
    name: str, in_pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_pieces and name != "numbers of rows":  # which the first piece must show
        read_in_pieces(monkeypatch)
    columns, truth, said = CASES[name]

    job, remarks = read(text_of(columns))

    found = values_of(job)
    del found[Metric.GPU_POWER_LIMIT]
    assert found.keys() == truth.keys()
    for metric, cell in truth.items():
        assert found[metric] == pytest.approx([cell(i) for i in range(ROWS) if cell(i) is not None]), metric
    assert codes(remarks) == said
    columns_named = {str(one.fields["name"]) for one in remarks if one.code.partition(".")[2] in UNITS}
    assert columns_named <= {*columns, "gpu_util"}


def test_a_column_gpu_is_the_index_where_its_numbers_come_in_turn() -> None:
    rows = [
        (1_767_454_613 + i, gpu, 100 + 50 * gpu)
        for i in range(ROWS)
        for gpu in (0, 2, 5)
        if (i, gpu) != (9, 2)
    ]
    text = "\n".join(["time,gpu,power.draw [W]", *(",".join(map(str, row)) for row in rows), ""])

    for some in (text, re.sub(",([025]),", r",gpu\1,", text), text.replace(",5,", ",5.0,")):
        job, remarks = read(some)

        (panel,) = job.panels
        assert panel.devices == ("gpu0", "gpu2", "gpu5")
        assert np.nanmean(panel.values, axis=0).tolist() == [100, 200, 350]
        assert codes(remarks) == set()


@given(
    st.lists(
        st.from_regex(r" ?[0-9]{1,40}(\.[0-9]{0,3})?( (%|MiB|W|x))? ?", fullmatch=True)
        | st.text("0123456789.,-+eE_ %xinfaNMBW\u0661'", max_size=9),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["B", "W", "%", ""]),
)
@pytest.mark.slow
def test_the_short_way_to_numbers_is_that_of_the_grammar(texts: list[str], unit: str) -> None:
    for column in (Column(), Column(factor=2.0), Column(bits=1)):
        if plain := _plain_numbers(texts, column, unit):
            values, kind = plain
            assert [(value, kind) for value in values.tolist()] == [
                _value(text, column, unit) for text in texts
            ]


LOG = "timestamp, index, utilization.gpu [%]\n" + "".join(
    f"2026/01/03 15:{i // 60:02}:{i % 60:02}.000, 0, {i} %\n" for i in range(ROWS)
)
#: What other queries of the tool write.
QUERIES = {
    "accounted-apps": (
        "gpu_name, gpu_bus_id, pid, gpu_utilization [%], mem_utilization [%], max_memory_usage [MiB], time [ms]\n"
        "NVIDIA A100, 00000000:07:00.0, 4242, 97 %, 40 %, 1000 MiB, 73600 ms\n"
    ),
    "compute-apps": (
        "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        "2026/01/03 15:00:00.000, GPU-1, 4242, python, 1000 MiB\n"
    ),
    "retired-pages": (
        "timestamp, gpu_uuid, retired_pages.cause\n2026/01/03 15:00:00.000, GPU-1, Single Bit ECC\n"
    ),
}


@pytest.mark.parametrize("query", QUERIES)
def test_what_other_queries_list_is_no_sample(query: str, tmp_path: Path) -> None:
    rows = QUERIES[query].partition("\n")[2]
    alone, _ = read(LOG)

    job, remarks = read(LOG + QUERIES[query] + rows + LOG.replace(" 15:", " 16:"))

    (panel,) = job.panels
    (expected,) = alone.panels
    assert (panel.devices, panel.values[:ROWS].tolist()) == (expected.devices, expected.values.tolist())
    assert len(panel.values) == 2 * ROWS
    (remark,) = [one for one in remarks if one.action != "corrected"]
    assert (remark.action, remark.count, remark.place) == ("skipped", 2, f"gpu.csv:{ROWS + 3}")
    assert f"--query-{query}" in remark.reason

    (tmp_path / "apps.csv").write_text(QUERIES[query])
    with pytest.raises(NothingReadableError, match=f"--query-{query}"):
        read_job(tmp_path)


def test_a_remark_has_the_line_and_the_text_of_the_first_place() -> None:
    rows = LOG.splitlines()
    rows[20] = rows[20].replace("2026/01", "2026/13")
    rows[25] = rows[25].replace(" 24 %", " " + "x" * 99)
    rows[30] = rows[30].replace(" 29 %", " 290 %")
    rows.insert(11, rows[0])

    _, remarks = read("\n".join([*rows, ""]))

    places = {one.code: (one.count, one.place, one.fields["text"]) for one in remarks if "text" in one.fields}
    assert places == {
        "nvidia_smi.no_time": (1, "gpu.csv:22", "2026/13/03 15:00:19.000"),
        "samples.implausible": (2, "gpu.csv:27", escape_name("x" * 99, 60)),
    }
    assert [one.place for one in remarks if one.code == "nvidia_smi.no_value"] == ["gpu.csv:27"]
    assert all(one.reason.endswith("”") for one in remarks if "text" in one.fields)


def test_moments_go_on_from_table_to_table(monkeypatch: pytest.MonkeyPatch) -> None:
    dmon = "# gpu pwr sm\n" + "".join(f"{gpu} 100 {use(i + gpu)}\n" for i in range(30) for gpu in (0, 1))
    whole, _ = read(dmon)
    read_in_pieces(monkeypatch)

    pieces, _ = read(dmon)

    assert [len(panel.time_us) for panel in pieces.panels] == [30] * len(whole.panels)
    for one, other in zip(whole.panels, pieces.panels, strict=True):
        assert np.array_equal(one.time_us, other.time_us)
        assert np.array_equal(one.values, other.values)


#: By metric: names without a unit, and how a value of it may be written: a unit for the name, one for the cell, and the
#: number. Where it is written without a unit, the reader has to find it.
NAMES = {
    USE: ("gpu_util", "utilization", "load", "GPU Utilization"),
    ACTIVITY: ("mem_util", "memory_utilization"),
    USED: ("memory_used", "mem_used", "gpu_mem", "vram"),
    TOTAL: ("memory_total", "gpu_memory_total"),
    POWER: ("power", "gpu_power", "power_draw"),
    HEAT: ("temp", "gpu_temperature"),
    CLOCK: ("sm_clock", "clocks_sm"),
}
SCALES: Mapping[Metric, Mapping[str, float]] = {
    USE: {"percent": 1, "ratio": 100},
    ACTIVITY: {"percent": 1, "ratio": 100},
    USED: {"mib": MIB, "bytes": 1, "gib": 1 << 30, "kib": 1024},
    TOTAL: {"mib": MIB, "bytes": 1, "gib": 1 << 30},
    POWER: {"w": 1, "mw": 1e-3},
    HEAT: {"c": 1},
    CLOCK: {"mhz": 1, "ghz": 1e3},
}
#: Lowest and highest whole number of a metric, and what makes a value of it.
RANGES = {
    USE: (0, 100, 1),
    ACTIVITY: (0, 100, 1),
    USED: (0, 180_000, MIB),
    TOTAL: (4_000, 180_000, MIB),
    POWER: (20, 1_200, 1),
    HEAT: (20, 100, 1),
    CLOCK: (135, 2_600, 1),
}


@st.composite
def columns_(draw: st.DrawFn) -> tuple[Metric, str, list[float], list[str]]:
    metric = draw(st.sampled_from([*NAMES]))
    low, high, factor = RANGES[metric]
    high = draw(st.sampled_from([high, high, low + 1, low + (high - low) // 10]))
    seed = draw(st.integers(0, 1 << 30))
    truth = np.random.default_rng(seed).integers(low, high + 1, ROWS) * float(factor)
    unit = draw(st.sampled_from([*SCALES[metric]]))
    numbers = [f"{value / SCALES[metric][unit]:.10g}" for value in truth.tolist()]
    name = draw(st.sampled_from(NAMES[metric]))
    named, in_cells = draw(st.sampled_from([(True, 0.0), (False, 1.0), (False, 0.5), (False, 0.0)]))
    has_unit = np.random.default_rng(seed + 1).random(ROWS) < in_cells
    cells = [f"{number} {unit}" if one else number for number, one in zip(numbers, has_unit, strict=True)]
    return metric, f"{name}_{unit}" if named else name, truth.tolist(), cells


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(columns_(), min_size=1, max_size=5, unique_by=lambda column: column[0]), st.integers(0, 5))
def test_columns_in_any_unit_and_order_are_the_truth_or_named_in_a_remark(
    columns: list[tuple[Metric, str, list[float], list[str]]], time_place: int
) -> None:
    by_name: dict[str, Cell] = {name: cells.__getitem__ for _, name, _, cells in columns}
    names = [*by_name, "power.limit [W]"]
    names.insert(min(time_place, len(names)), "time")
    cells: dict[str, Cell] = {
        **by_name,
        "time": lambda i: 1_767_454_613 + i,
        "power.limit [W]": lambda i: "400 W",
    }
    rows = [";".join(names), *(";".join(str(cells[name](i)) for name in names) for i in range(ROWS)), ""]

    job, remarks = read("\n".join(rows))

    found = values_of(job)
    named = {one.fields.get("name") for one in remarks}
    for metric, name, truth, _ in columns:
        if name not in named:
            assert found[metric] == pytest.approx(truth), name
        elif any(one.action == "dropped" and one.fields.get("name") == name for one in remarks):
            assert metric not in found
