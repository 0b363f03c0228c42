"""What tools that know no header line write of GPUs with known values, as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import numpy as np
from msgspec import Struct

from jobreport.readers.registry import read_job
from jobreport.remarks import SourceQuality
from jobrules.model import Job, Metric

MIB = float(1 << 20)
START = datetime(2025, 2, 16, 8, 59, 50, tzinfo=UTC)
TOTAL_MIB = 81559
LIMIT_W = 400
#: What every form of log has.
METRICS = {
    Metric.GPU_UTILIZATION,
    Metric.GPU_MEMORY_USED,
    Metric.GPU_MEMORY_TOTAL,
    Metric.GPU_POWER,
    Metric.GPU_POWER_LIMIT,
    Metric.GPU_TEMPERATURE,
}


class Known(Protocol):
    """What is known of a GPU at a moment."""

    @property
    def gpu(self) -> int: ...
    @property
    def time(self) -> datetime: ...
    @property
    def machine(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def bus(self) -> str: ...

    def value(self, metric: Metric) -> float:
        """In the unit of the metric."""

    def whole(self, metric: Metric) -> int:
        """As it is written; memory in MiB."""


class Sample(Struct, frozen=True):
    """A GPU at a moment; every value follows from number and GPU, and differs from its neighbors."""

    number: int
    gpu: int
    time: datetime
    machine: str = "worker-7"

    def value(self, metric: Metric) -> float:
        """In the unit of the metric."""
        n = 10 * self.number + self.gpu
        return {
            Metric.GPU_UTILIZATION: n % 101,
            Metric.GPU_MEMORY_ACTIVITY: n % 97,
            Metric.GPU_MEMORY_USED: (1000 + n) * MIB,
            Metric.GPU_MEMORY_TOTAL: TOTAL_MIB * MIB,
            Metric.GPU_POWER: 60 + n % 300,
            Metric.GPU_POWER_LIMIT: LIMIT_W,
            Metric.GPU_TEMPERATURE: 20 + n % 70,
            Metric.GPU_CLOCK: 210 + n,
            Metric.GPU_THERMAL_SLOWDOWN: 100 * (n % 3 == 0),
            Metric.GPU_POWER_CAP: 100 * (n % 2),
            Metric.GPU_HARDWARE_SLOWDOWN: 100 * (n % 5 == 0),
            Metric.GPU_ECC_CORRECTED: n,
            Metric.GPU_ECC_UNCORRECTED: n // 10,
        }[metric]

    def whole(self, metric: Metric) -> int:
        """As it is written; memory in MiB."""
        value = self.value(metric)
        return int(value / MIB if metric.unit == "B" else value)

    @property
    def uuid(self) -> str:
        """As NVML writes it."""
        return f"GPU-5428af19-1e82-a38c-ee42-cdd3ad745b7{self.gpu}"

    @property
    def bus(self) -> str:
        """Bus id."""
        return f"00000000:{0x10 + self.gpu:02X}:00.0"


def moments(count: int, gpus: int, interval_s: float = 2.0) -> list[list[Sample]]:
    """All GPUs at each moment."""
    times = [START + timedelta(seconds=i * interval_s) for i in range(count)]
    return [[Sample(i, gpu, time) for gpu in range(gpus)] for i, time in enumerate(times)]


def ctime(time: datetime) -> str:
    return time.strftime("%a %b %e %H:%M:%S %Y")


#: Widths of the three columns of the box up to drivers 470, 530, and of later ones.
_BOXES = {470: (31, 22, 22), 530: (41, 22, 22), 999: (41, 24, 22)}


def boxed(
    samples: Sequence[Known],
    *,
    driver: str = "550.54.15",
    mode: str = "Off",
    cap: str = f"{LIMIT_W}W",
    mig: bool = False,
    date: bool = True,
) -> str:
    """A box of nvidia-smi."""
    widths = next(one for last, one in _BOXES.items() if int(driver[:3]) <= last)
    whole = sum(widths) + 2
    # Old drivers write no blank behind the first column.
    blank = " " * (widths[1] > 22)
    cells = ["-" * width for width in widths]

    def line(first: str, second: str, third: str) -> str:
        return f"|{first:{widths[0]}}|{second:>{widths[1]}}|{third:>{widths[2]}}|"

    lines = [f"{ctime(samples[0].time)}       "] if date else []
    lines += [
        f"+{'-' * whole}+",
        f"|{f' NVIDIA-SMI {driver:<13}Driver Version: {driver:<13}CUDA Version: 12.4':{whole}}|",
        f"|{'+'.join(cells)}+",
        line(
            f" GPU  Name{'Persistence-M':>{widths[0] - 10 - len(blank)}}",
            "Bus-Id        Disp.A ",
            "Volatile Uncorr. ECC ",
        ),
        line(
            f" Fan  Temp  Perf{'Pwr:Usage/Cap':>{widths[0] - 16 - len(blank)}}",
            "Memory-Usage ",
            "GPU-Util  Compute M. ",
        ),
        line("", "", "MIG M. "),
        f"|{'+'.join(cells).replace('-', '=')}|",
    ]
    for one in samples:
        use = "N/A" if mig else f"{one.whole(Metric.GPU_UTILIZATION)}%"
        power = f"{one.whole(Metric.GPU_POWER)}W / {cap:>5}"
        memory = f"{one.whole(Metric.GPU_MEMORY_USED)}MiB / {TOTAL_MIB:>6}MiB "
        name = f"   {one.gpu}  NVIDIA A100-SXM4-80GB"
        lines += [
            line(f"{name}{mode:>{widths[0] - len(name) - len(blank)}}", f"{one.bus} Off ", "0 "),
            line(
                f" N/A   {one.whole(Metric.GPU_TEMPERATURE)}C    P0{power:>{widths[0] - 16 - len(blank)}}",
                memory,
                f"{use:>8}      Default ",
            ),
            line("", "", f"{'Enabled' if mig else 'Disabled':>8} "),
            f"+{'+'.join(cells)}+",
        ]
    if mig:
        lines += [
            f"+{'-' * whole}+",
            "| MIG devices:                                                                            |",
            "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |",
            "|==================+==================================+===========+=======================|",
            "|  0    7   0   0  |              37MiB /  9728MiB    | 14      0 |  1   0    0    0    0 |",
            "|                  |                 0MiB / 16383MiB  |           |                       |",
        ]
    lines += [
        "",
        f"+{'-' * whole}+",
        f"|{' Processes:':{whole}}|",
        f"|{'  GPU   GI   CI        PID   Type   Process name             GPU Memory ':{whole}}|",
        f"|{'=' * whole}|",
        f"|{'    0   N/A  N/A   3242651   C   python train.py --at 8 / 9   5716MiB ':{whole}}|",
        f"+{'-' * whole}+",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def gpustat(samples: Sequence[Known], *, options: str = "power", iso: bool = False) -> str:
    """A header and a line for each GPU."""
    time = f"{samples[0].time:%Y-%m-%d %H:%M:%S}" if iso else ctime(samples[0].time)
    lines = [f"{samples[0].machine:28}{time}  535.104.05"]
    for one in samples:
        fan = " 31 %, " if "fan" in options else " "
        codec = " (E:  77 %  D:  88 %)" if "codec" in options else ""
        limit = "??" if "no limit" in options else LIMIT_W
        power = f",  {one.whole(Metric.GPU_POWER)} / {limit} W" if "power" in options else ""
        sensors = f"{one.whole(Metric.GPU_TEMPERATURE)}{'°' if iso else chr(39)}C,{fan}{one.whole(Metric.GPU_UTILIZATION):>3} %{codec}{power}"
        memory = f"{one.whole(Metric.GPU_MEMORY_USED):>5} / {TOTAL_MIB} MB"
        lines.append(f"[{one.gpu}] NVIDIA A100-SXM4-80GB |{sensors} | {memory} | ann:python/77(98M) bob(3M)")
    return "\n".join(lines) + "\n"


def gpustat_json(samples: Sequence[Known], *, indent: int | None = 4) -> str:
    """An object of ``--json``."""
    found = {
        "hostname": samples[0].machine,
        "driver_version": "535.104.05",
        "query_time": samples[0].time.replace(tzinfo=None).isoformat(),
        "gpus": [
            {
                "index": one.gpu,
                "uuid": one.uuid,
                "name": "NVIDIA A100-SXM4-80GB",
                "temperature.gpu": one.whole(Metric.GPU_TEMPERATURE),
                "fan.speed": None,
                "utilization.gpu": one.whole(Metric.GPU_UTILIZATION),
                "utilization.enc": 3,
                "power.draw": one.whole(Metric.GPU_POWER),
                "enforced.power.limit": LIMIT_W,
                "memory.used": one.whole(Metric.GPU_MEMORY_USED),
                "memory.total": TOTAL_MIB,
                "processes": [{"username": "ann", "command": "python {", "gpu_memory_usage": 98}],
            }
            for one in samples
        ],
    }
    return json.dumps(found, indent=indent) + "\n"


def _reasons(one: Known) -> dict[str, str]:
    active = {
        "SW Power Cap": one.value(Metric.GPU_POWER_CAP),
        "HW Slowdown": one.value(Metric.GPU_HARDWARE_SLOWDOWN),
        "HW Thermal Slowdown": one.value(Metric.GPU_THERMAL_SLOWDOWN),
        "HW Power Brake Slowdown": 0,
        "Sync Boost": 0,
        "SW Thermal Slowdown": 0,
    }
    return {key: "Active" if value else "Not Active" for key, value in active.items()}


def query_text(samples: Sequence[Known], *, driver: int = 550) -> str:
    """What ``-q`` writes, shortened to what is read and what could be taken for it."""
    power = "GPU Power Readings" if driver >= 530 else "Power Readings"
    draw = "Average Power Draw" if driver >= 550 else "Power Draw"
    limit = "Current Power Limit" if driver >= 530 else "Enforced Power Limit"
    clocks = "Clocks Event Reasons" if driver >= 545 else "Clocks Throttle Reasons"
    gpu = "GPU" if driver >= 555 else "Gpu"
    lines = [
        *("", "==============NVSMI LOG==============", ""),
        f"Timestamp                                 : {ctime(samples[0].time)}",
        f"Driver Version                            : {driver}.54.15",
        *("CUDA Version                              : 12.4", ""),
        f"Attached GPUs                             : {len(samples)}",
    ]

    def add(level: int, key: str, value: object = None) -> None:
        text = " " * 4 * level + key
        lines.append(text if value is None else f"{text:<42}: {value}")

    for one in samples:
        add(0, f"GPU {one.bus}")
        add(1, "Product Name", "NVIDIA A100-SXM4-80GB")
        add(1, "GPU UUID", one.uuid)
        add(1, "PCI")
        add(2, "GPU Link Info")
        add(3, "PCIe Generation")
        add(4, "Max", 4)
        add(1, clocks)
        for key, value in _reasons(one).items():
            add(3 if key.startswith("HW ") and key != "HW Slowdown" else 2, key, value)
        add(1, "FB Memory Usage")
        add(2, "Total", f"{TOTAL_MIB} MiB")
        add(2, "Reserved", "551 MiB")
        add(2, "Used", f"{one.whole(Metric.GPU_MEMORY_USED)} MiB")
        add(2, "Free", "3 MiB")
        add(1, "BAR1 Memory Usage")
        add(2, "Total", "131072 MiB")
        add(2, "Used", "27 MiB")
        add(1, "Utilization")
        add(2, gpu, f"{one.whole(Metric.GPU_UTILIZATION)} %")
        add(2, "Memory", f"{one.whole(Metric.GPU_MEMORY_ACTIVITY)} %")
        add(2, "Encoder", "0 %")
        add(1, "ECC Errors")
        add(2, "Volatile")
        corrected, uncorrected = one.whole(Metric.GPU_ECC_CORRECTED), one.whole(Metric.GPU_ECC_UNCORRECTED)
        if driver >= 530:
            add(3, "SRAM Correctable", 0)
            add(3, "SRAM Uncorrectable Parity", uncorrected)
            add(3, "SRAM Uncorrectable SEC-DED", 0)
            add(3, "DRAM Correctable", corrected)
            add(3, "DRAM Uncorrectable", 0)
        else:
            for name, number in (("Single Bit", corrected), ("Double Bit", uncorrected)):
                add(3, name)
                add(4, "Device Memory", number)
                add(4, "Total", number)
        add(2, "Aggregate")
        add(3, "DRAM Correctable", 999)
        add(1, "Temperature")
        add(2, "GPU Current Temp", f"{one.whole(Metric.GPU_TEMPERATURE)} C")
        add(2, "GPU Shutdown Temp", "92 C")
        add(1, power)
        add(2, draw, f"{one.value(Metric.GPU_POWER):.2f} W")
        add(2, limit, f"{LIMIT_W}.00 W")
        add(2, "Max Power Limit", "700.00 W")
        add(1, "Module Power Readings")
        add(2, draw, "N/A")
        add(1, "Clocks")
        add(2, "Graphics", "1 MHz")
        add(2, "SM", f"{one.whole(Metric.GPU_CLOCK)} MHz")
        add(1, "Max Clocks")
        add(2, "SM", "1980 MHz")
        add(1, "Processes", "None")
        lines.append("")
    return "\n".join(lines) + "\n"


def query_xml(samples: Sequence[Known], *, driver: int = 550) -> str:
    """A document of ``-q -x``, shortened in the same way."""
    power = "gpu_power_readings" if driver >= 530 else "power_readings"
    draw = "average_power_draw" if driver >= 550 else "power_draw"
    limit = "current_power_limit" if driver >= 530 else "enforced_power_limit"
    of = "event" if driver >= 545 else "throttle"

    def gpu(one: Known) -> str:
        reasons = "".join(
            f"<clocks_{of}_reason_{key.lower().replace(' ', '_')}>{value}</clocks_{of}_reason_{key.lower().replace(' ', '_')}>\n"
            for key, value in _reasons(one).items()
        )
        return f"""\t<gpu id="{one.bus}">
\t\t<product_name>NVIDIA A100-SXM4-80GB</product_name>
\t\t<uuid>{one.uuid}</uuid>
\t\t<clocks_{of}_reasons>{reasons}</clocks_{of}_reasons>
\t\t<fb_memory_usage>
\t\t\t<total>{TOTAL_MIB} MiB</total>
\t\t\t<used>{one.whole(Metric.GPU_MEMORY_USED)} MiB</used>
\t\t</fb_memory_usage>
\t\t<bar1_memory_usage><total>131072 MiB</total><used>27 MiB</used></bar1_memory_usage>
\t\t<utilization>
\t\t\t<gpu_util>{one.whole(Metric.GPU_UTILIZATION)} %</gpu_util>
\t\t\t<memory_util>{one.whole(Metric.GPU_MEMORY_ACTIVITY)} %</memory_util>
\t\t</utilization>
\t\t<ecc_errors>
\t\t\t<volatile>
\t\t\t\t<sram_correctable>0</sram_correctable>
\t\t\t\t<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
\t\t\t\t<dram_correctable>{one.whole(Metric.GPU_ECC_CORRECTED)}</dram_correctable>
\t\t\t\t<dram_uncorrectable>{one.whole(Metric.GPU_ECC_UNCORRECTED)}</dram_uncorrectable>
\t\t\t</volatile>
\t\t</ecc_errors>
\t\t<temperature><gpu_temp>{one.whole(Metric.GPU_TEMPERATURE)} C</gpu_temp></temperature>
\t\t<{power}>
\t\t\t<{draw}>{one.value(Metric.GPU_POWER):.2f} W</{draw}>
\t\t\t<{limit}>{LIMIT_W}.00 W</{limit}>
\t\t</{power}>
\t\t<module_power_readings><{draw}>N/A</{draw}></module_power_readings>
\t\t<clocks><graphics_clock>1 MHz</graphics_clock><sm_clock>{one.whole(Metric.GPU_CLOCK)} MHz</sm_clock></clocks>
\t\t<mig_devices><mig_device><fb_memory_usage><used>9 MiB</used></fb_memory_usage></mig_device></mig_devices>
\t</gpu>
"""

    head = (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
    )
    head += f"\t<timestamp>{ctime(samples[0].time)}</timestamp>\n"
    return head + "".join(map(gpu, samples)) + "</nvidia_smi_log>\n"


def read(folder: Path, text: str | bytes, name: str = "gpu.log") -> tuple[Job, SourceQuality]:
    """The job of a log, and what became of its rows."""
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    job, quality = read_job(folder, strict=True)
    (found,) = quality.sources
    return job, found


def left(found: SourceQuality, *, unit: str = "rows") -> int:
    """What was counted as not in use."""
    return sum(r.count for r in found.remarks if r.unit == unit and r.action in ("skipped", "dropped"))


def assert_same(job: Job, samples: Iterable[Sequence[Sample]], metrics: set[Metric]) -> None:
    """Compare all panels of the only node with the samples."""
    wanted = list(samples)
    assert len(job.nodes) == 1
    assert {panel.metric for panel in job.panels} == metrics
    for panel in job.panels:
        time_us = [round(some[0].time.timestamp() * 1e6) for some in wanted]
        assert panel.time_us.tolist() == time_us, panel.metric
        assert panel.devices == tuple(f"gpu{one.gpu}" for one in wanted[0])
        values = [[one.value(panel.metric) for one in some] for some in wanted]
        assert np.array_equal(panel.values, values), panel.metric
