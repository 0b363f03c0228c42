"""What columns of nvidia-smi logs mean: the tool's own names, old and new, and those of scripts around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobreport.readers.nvidia_smi.columns import column, columns
from jobreport.readers.nvidia_smi.units import MIB
from jobreport.readers.registry import read_job
from jobrules.model import Metric

SAYS = {
    "time": ("timestamp", "Time", "time_s", "unix_time"),
    "date": ("Date",),
    "elapsed": ("elapsed_sec",),
    "index": ("index", "gpu", "gpu_index", "GPU ID", "id"),
    "uuid": ("uuid", "gpu_uuid"),
    "bus": ("pci.bus_id",),
    "name": ("name",),
    "host": ("hostname",),
    "process": ("pid",),
    "mask": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
}
METRICS = {
    Metric.GPU_UTILIZATION: (
        *("utilization.gpu [%]", "utilization_gpu_percent", "gpu_util_pct", "GPU Utilization (%)", "sm"),
        *("A100-80GB gpu_util [%]", "gpu_util (A100 80GB)", "gpu%", "GPU [%]", "gpu_pct"),
    ),
    Metric.GPU_MEMORY_ACTIVITY: ("utilization.memory [%]", "mem"),
    Metric.GPU_MEMORY_USED: (
        "memory.used [MiB]",
        "mem_used_mb",
        "Memory Usage (MiB)",
        "fb",
        "vram",
        "gpu_mem_mb",
    ),
    Metric.GPU_MEMORY_TOTAL: ("memory.total [MiB]",),
    Metric.GPU_POWER: ("power.draw [W]", "power_W", "pwr", "NVIDIA A100-SXM4-80GB GPU 0 power [W]"),
    Metric.GPU_POWER_LIMIT: ("power.limit [W]", "enforced.power.limit [W]"),
    Metric.GPU_TEMPERATURE: ("temperature.gpu", "temp_c", "GPU Temp (°C)", "gtemp"),
    Metric.GPU_CLOCK: ("clocks.sm [MHz]", "clocks.current.graphics [MHz]", "pclk"),
    Metric.GPU_THERMAL_SLOWDOWN: (
        "clocks_event_reasons.hw_thermal_slowdown",
        "clocks_throttle_reasons.sw_thermal_slowdown",
    ),
    Metric.GPU_POWER_CAP: ("clocks_event_reasons.sw_power_cap",),
    Metric.GPU_HARDWARE_SLOWDOWN: (
        "clocks_event_reasons.hw_slowdown",
        "clocks_event_reasons.hw_power_brake_slowdown",
    ),
    Metric.GPU_ECC_CORRECTED: ("ecc.errors.corrected.volatile.total",),
    Metric.GPU_ECC_UNCORRECTED: ("ecc.errors.uncorrected.aggregate.total",),
}
#: What would be mistaken for one of these by a careless reader.
NEITHER = (
    *("temperature.memory", "temperature.gpu.tlimit", "mtemp", "utilization.encoder [%]"),
    *("utilization.decoder [%]", "power.max_limit [W]", "power.default_limit [W]", "power.management"),
    *("module.power.draw.average [W]", "clocks.mem [MHz]", "clocks.max.sm [MHz]", "pstate", "fan.speed [%]"),
    *(
        "clocks.applications.graphics [MHz]",
        "clocks_event_reasons.supported",
        "clocks_event_reasons.gpu_idle",
    ),
    *("clocks_event_reasons.sync_boost", "clocks_event_reasons_counters.sw_power_cap [us]"),
    *("memory.reserved [MiB]", "memory.free [MiB]", "protected_memory.used [MiB]", "Memory Usage (%)"),
    *("ecc.mode.current", "retired_pages.pending", "loss", "", "\x00"),
    # Measured, but in a unit of something else.
    *("memory.used [%]", "gpu_mem_used_pct", "mem_used_percent", "memory_used_%", "memory_total_ratio"),
    *("power_pct", "power.limit [%]", "clocks.sm (% of max)", "gpu_usage_mb", "GPU Load (W)"),
    *("mem%", "gpu_mem_pct", "gpu_fan_pct", "temperature_f", "GPU Temp (°F)", "temp (deg F)"),
    # Of something else.
    *("cpu_util", "cpu temp", "cpu_power_w", "disk_usage", "net_usage", "data_load_time", "dataLoadTime"),
    "load_time",
)


def test_what_a_column_says_of_its_row() -> None:
    for says, names in SAYS.items():
        for name in names:
            found = column(name)
            assert found, name
            assert (found.says, found.metric) == (says, None), name


def test_what_a_column_measures() -> None:
    for metric, names in METRICS.items():
        for name in names:
            found = column(name)
            assert found, name
            assert (found.says, found.metric) == ("", metric), name
            assert found.factor in (None, MIB if metric.unit == "B" else 1.0), name


def test_what_is_something_else_is_not_mistaken() -> None:
    assert [name for name in NEITHER if column(name)] == []


def test_next_to_columns_of_the_machine_those_of_the_gpu_have_to_say_so() -> None:
    names = ("timestamp", "cpu_util", "gpu_util", "memory_used", "temp_c", "gpu_mem_used", "power.draw [W]")

    assert [name for name, found in zip(names, columns(names), strict=True) if found] == [
        "timestamp",
        "gpu_util",
        "gpu_mem_used",
        "power.draw [W]",
    ]
    assert all(columns([name for name in names if name != "cpu_util"]))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("gpu0_util", 0),
        ("GPU 11 Utilization (%)", 11),
        ("mem_used_mb_gpu3", 3),
        ("gpu_util_2", 2),
        ("mem_1_mb", 1),
        ("util_b", None),
        ("utilization.gpu [%]", None),
        ("utilization.gpu [%].1", None),
        ("temperature.gpu", None),
    ],
)
def test_the_number_of_a_gpu_in_a_name(name: str, number: int | None) -> None:
    found = column(name)
    assert found
    assert found.gpu == number


@pytest.mark.parametrize(
    ("names", "best"),
    [
        (("power.draw [W]", "power.draw.instant [W]", "power.draw.average [W]"), "power.draw.average [W]"),
        (("power.limit [W]", "enforced.power.limit [W]"), "enforced.power.limit [W]"),
        (("clocks.gr [MHz]", "clocks.sm [MHz]"), "clocks.sm [MHz]"),
        (
            (
                "ecc.errors.uncorrected.aggregate.total",
                "ecc.errors.uncorrected.volatile.dram",
                "ecc.errors.uncorrected.volatile.total",
            ),
            "ecc.errors.uncorrected.volatile.total",
        ),
    ],
)
def test_of_several_columns_of_one_metric_the_best_is_used(names: tuple[str, ...], best: str) -> None:
    ranks = {name: found.rank for name in names if (found := column(name))}
    assert min(ranks, key=ranks.__getitem__) == best


@pytest.mark.parametrize(
    ("names", "rows", "heat"),
    [
        ("sw_thermal_slowdown, hw_slowdown", ["no, no", "no, yes", "yes, yes"], [0, None, 100]),
        ("sw_thermal_slowdown, hw_power_brake_slowdown", ["no, yes", "no, no"], [None, 0]),
        ("hw_thermal_slowdown, hw_slowdown", ["no, no", "no, yes", "yes, yes"], [0, 0, 100]),
        ("sw_thermal_slowdown, hw_thermal_slowdown, hw_slowdown", ["no, no, yes", "no, yes, yes"], [0, 100]),
        ("sw_thermal_slowdown, hw_slowdown, active", ["no, yes, 0x8", "no, yes, 0x48"], [0, 100]),
        ("sw_thermal_slowdown, sw_power_cap", ["no, yes", "yes, no"], [0, 100]),
    ],
)
def test_heat_is_not_known_where_the_hardware_slows_and_was_not_asked_why(
    names: str, rows: list[str], heat: list[float | None], tmp_path: Path
) -> None:
    header = ", ".join(f"clocks_event_reasons.{name}" for name in names.split(", "))
    lines = [f"2026/03/04 10:00:{i:02d}.000, 0, {row}" for i, row in enumerate(rows)]
    text = f"timestamp, index, {header}\n" + "\n".join(lines)
    text = text.replace(" yes", " Active").replace(" no", " Not Active")
    (tmp_path / "gpu.csv").write_text(text + "\n", "utf-8")

    job, _ = read_job(tmp_path, strict=True)

    (panel,) = job.panels_of(Metric.GPU_THERMAL_SLOWDOWN)
    seconds = (panel.time_us - panel.time_us[0]) // 1_000_000
    first = next(i for i, value in enumerate(heat) if value is not None)
    found = {first + int(s): value for s, value in zip(seconds, panel.values[:, 0].tolist(), strict=True)}
    assert found == {i: value for i, value in enumerate(heat) if value is not None}
