"""What the recorder writes, make-report reads: all of it, without a remark, and shows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from jobreport.document import Report
from jobreport.options import Options
from jobreport.page import sections
from jobreport.pipeline import make_report
from jobreport.readers.registry import read_job
from jobreport.readers.system_samples.sensors import sensor
from jobreport.remarks import Quality
from jobrules.model import Job, Metric, in_words
from tests.record import simulated
from tests.record.recordings import rows
from tests.record.simulated import CORE_PERCENT, CORES, GIB, LIMIT, NODE, OWNER, PRESSURE, THROTTLED
from tests.report.page.sections.html import Page

pytestmark = pytest.mark.usefixtures("without_live_plots")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recorded") / "job"
    with pytest.MonkeyPatch.context() as monkeypatch:
        simulated.record(out, tmp_path_factory.mktemp("root"), monkeypatch)
    return out


@pytest.fixture(scope="module")
def job_and_quality(folder: Path) -> tuple[Job, Quality]:
    return read_job(folder, strict=True)


@pytest.fixture(scope="module")
def job(job_and_quality: tuple[Job, Quality]) -> Job:
    return job_and_quality[0]


@pytest.fixture(scope="module")
def report(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return make_report(
        folder, tmp_path_factory.mktemp("report"), Options(formats=["json"], strict=True)
    ).report


def text_of(report: Report, section: str) -> str:
    return " ".join(Page.of(getattr(sections, section)(report).html).text.replace("\xa0", " ").split())


@pytest.fixture(scope="module")
def text(report: Report, without_live_plots: None) -> Callable[[str], str]:
    return cache(lambda section: text_of(report, section))


def test_every_row_is_used_and_nothing_is_remarked(
    folder: Path, job_and_quality: tuple[Job, Quality]
) -> None:
    job, quality = job_and_quality
    written = rows(folder)
    samples, recorded = quality.sources

    assert quality.remarks == samples.remarks == recorded.remarks == ()
    assert samples.rows == len(written)
    assert (recorded.files, [one.node for one in recorded.recordings]) == (1, [NODE])
    assert job.finished is True
    found = {sensor(row["Type"], row["Dimension"], row["Name"]) for row in written}
    assert {metric for metric, _ in filter(None, found)} == {panel.metric for panel in job.panels} - {
        Metric.MACHINE_CPU
    }


@pytest.mark.parametrize(
    ("metric", "device", "value"),
    [
        (Metric.GPU_MEMORY_USED, "gpu0", 10 * GIB),
        (Metric.GPU_MEMORY_TOTAL, "gpu0", 80 * GIB),
        (Metric.GPU_POWER, "gpu0", 100),
        (Metric.GPU_POWER_LIMIT, "gpu0", 400),
        (Metric.GPU_TEMPERATURE, "gpu0", 61),
        (Metric.GPU_CLOCK, "gpu0", 1410),
        (Metric.GPU_POWER_CAP, "gpu0", 100),
        (Metric.GPU_THERMAL_SLOWDOWN, "gpu0", 0),
        (Metric.GPU_HARDWARE_SLOWDOWN, "gpu0", 0),
        (Metric.GPU_ECC_CORRECTED, "gpu0", 2),
        (Metric.GPU_ECC_UNCORRECTED, "gpu0", 0),
        (Metric.GPU_SM_ACTIVITY, "gpu0", 3),
        (Metric.GPU_TENSOR_ACTIVITY, "gpu0", 1),
        (Metric.GPU_DRAM_ACTIVITY, "gpu0", 2),
        (Metric.HOST_MEMORY, "memory", 75),
        (Metric.HOST_MEMORY_USED, "memory", 3 * GIB),
        (Metric.HOST_MEMORY_TOTAL, "memory", 4 * GIB),
        (Metric.SWAP_USED, "swap", 4096),
        (Metric.RDMA_RECEIVE, "network", 1000),
        (Metric.RDMA_TRANSMIT, "network", 1000),
        (Metric.CONTAINER_CPU, "cpu", LIMIT),
        (Metric.CONTAINER_CPU_LIMIT, "cpu", LIMIT),
        (Metric.CONTAINER_CPU_THROTTLED, "cpu", THROTTLED),
        (Metric.CPU_PRESSURE, "cpu", PRESSURE["cpu"]),
        (Metric.IO_PRESSURE, "disk", PRESSURE["io"]),
        (Metric.MEMORY_PRESSURE, "memory", PRESSURE["memory"]),
        (Metric.JOB_CPU, "cpu", 2.0),
        (Metric.PROCESS_CPU, "0", 50),
        (Metric.PROCESS_CPU, "loaders-0", 150),
        (Metric.PROCESS_THREADS, "0", 3),
        (Metric.PROCESS_MEMORY, "loaders-0", 500 * 4096),
    ],
)
def test_sensors_keep_their_values(job: Job, metric: Metric, device: str, value: float) -> None:
    panel = job.panel(NODE, metric)
    assert panel is not None
    _, values = panel.series(panel.devices.index(device))

    assert values == pytest.approx(np.full(len(values), value), abs=0.01)


def test_cpu_utilization_is_that_of_the_cores_that_the_container_allows(job: Job) -> None:
    machine, allowed = (job.panel(NODE, one) for one in (Metric.MACHINE_CPU, Metric.CPU_UTILIZATION))

    assert machine is not None
    assert allowed is not None
    assert len(machine.devices) == CORES
    assert machine.values.mean() == pytest.approx(CORE_PERCENT, abs=1)
    assert allowed.devices == ("cpu0", "cpu1")
    assert allowed.values[1:].min() > 99


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("head", "End exit status 1"),
        ("head", "1 GPU, 2 cores"),
        ("utilization", "SM activity % 3.0 3.0"),
        ("utilization", "Tensor core activity % 1.0"),
        ("utilization", "DRAM activity % 2.0"),
        ("utilization", "Cores in use cores 2.0 2.0"),
        ("utilization", "CPU limit cores 2.0 2.0"),
        ("utilization", "CPU throttled % 60.0"),
        ("utilization", "CPU, whole machine % 12"),
        ("utilization", "CPU pressure % 80.0"),
        ("utilization", "I/O pressure % 30.0"),
        ("utilization", "Memory pressure % 10.0"),
        ("utilization", "Host memory in use GiB 3.0"),
        ("utilization", "Host memory size GiB 4.0"),
        ("utilization", "Swap in use KiB 4.0"),
        ("utilization", "RDMA, received and sent kB/s 2.0"),
        ("utilization", "Disk read MB/s 1.0"),
        ("utilization", "0 50.0 50.0 4 3 loaders of 0 150.0 150.0 2 1"),
        ("power", "100.0 100.0 400 9.1 9.0 61.0 61"),
        ("power", "The power limit slowed gpu0 for 100.0% of the time."),
        ("gpu_memory", "GPU memory in use"),
        ("rules", "No memory errors on 1 GPU during the job; 2 corrected errors before the job"),
        ("findings", "CPU throttled: 60.0%. CPU pressure: 80.0%."),
        ("findings", "The kernel killed 1 process for lack of memory"),
        ("findings", "had less than 1 GiB of free space"),
        ("findings", "Lowest free space: "),
        ("nodes", "I/O pressure"),
        ("quality", "Warning Sampling took more than 1% of a core"),
        ("quality", "trainer-7 exit status 1 1 2 of 16 4.0 GiB of 64.0 GiB"),
        ("quality", "1 × NVIDIA <b>Fake</b> and 1 × Fake GPU 1.99 1.00"),
        ("quality", "Processes of others computed on gpu0 (1), so utilization"),
        ("quality", "0 samples and 5 events, the first at 22:14:00"),
        ("quality", "so rank 0 wrote steps only from 22:14:00"),
        ("quality", "The container's CPU limit allows 2 of 16 cores."),
        ("quality", "Host memory is that of the container."),
        ("quality", "Labels: batch_size=256, owner=zoe-quimby."),
        ("quality", "gpu1 utilization NOT_SUPPORTED 1"),
        ("quality", "Steps of optimizers in other threads are not counted: 3."),
    ],
)
def test_page_shows_it(text: Callable[[str], str], section: str, words: str) -> None:
    assert words in text(section)


def test_cpu_limit_explains_why_the_gpu_waits(report: Report) -> None:
    main = report.verdict.main_finding

    assert main is not None
    assert main.key == "cpu-bottleneck"
    assert "Both cores were saturated" in in_words(main.evidence)


def test_redacted_report_names_nobody(folder: Path, tmp_path: Path) -> None:
    made = make_report(folder, tmp_path / "out", Options(formats=["json"], redact=True, strict=True))
    text = (tmp_path / "out/report.json").read_text()

    assert not [name for name in (NODE, OWNER, "Fake") if name in text]
    assert "batch_size=256" in text_of(made.report, "quality")
    assert "Permission denied" in text_of(made.report, "quality")
    assert made.report.devices is not None
    assert {device for rows in made.report.devices.rows for device in rows.devices} == {
        "gpu0",
        "cpu0",
        "cpu1",
    }
