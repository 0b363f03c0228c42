from __future__ import annotations

from pathlib import Path

import pytest

from jobrecord.sensors.containers import Container
from jobrecord.sensors.memory import MemoryBytes, MemoryUse
from tests.record.sensors.trees import machine, read, read_later

GIB = 1 << 30
HOST = 8 * GIB
MEMINFO = {
    "proc/meminfo": f"MemTotal: {HOST >> 10} kB\nMemFree: 1 kB\nMemAvailable: {HOST >> 11} kB\n"
    "SwapTotal: 2048 kB\nSwapFree: 1024 kB\nHugePages_Total: 0\n"
}
V2 = {"sys/fs/cgroup/cgroup.controllers": "cpu memory\n", "proc/100/cgroup": "0::/pod/job\n"}
POD, JOB = "sys/fs/cgroup/pod", "sys/fs/cgroup/pod/job"
V1 = {
    "proc/100/cgroup": "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
}


def v2_memory(folder: str, limit: str, current: int, inactive: int) -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{current}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {inactive}\n",
        f"{folder}/memory.events": "low 0\noom 2\noom_kill 1\n",
    }


@pytest.mark.parametrize(
    ("files", "percent", "limit"),
    [
        pytest.param({}, 50.0, None, id="no cgroup"),
        pytest.param(V2 | v2_memory(JOB, "max", GIB, 0), 50.0, None, id="v2 without a limit"),
        pytest.param(V2 | v2_memory(JOB, str(HOST), GIB, 0), 50.0, None, id="v2 limit of the machine"),
        pytest.param(V2 | v2_memory(JOB, str(4 * GIB), 2 * GIB, GIB), 25.0, 4 * GIB, id="v2"),
        pytest.param(
            V2 | v2_memory(JOB, "max", GIB, 0) | v2_memory(POD, str(2 * GIB), GIB, 0),
            50.0,
            2 * GIB,
            id="v2 nested: the pod's limit and use",
        ),
        pytest.param(
            V2 | v2_memory(JOB, str(4 * GIB), GIB, 0) | v2_memory(POD, str(5 * GIB), 4 * GIB, 0),
            25.0,
            4 * GIB,
            id="v2 nested: the tighter one",
        ),
        pytest.param(V1, 50.0, None, id="v1 without a limit"),
        pytest.param(
            V1
            | {
                "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": str(2 * GIB),
                "sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes": str(GIB),
                "sys/fs/cgroup/memory/docker/1/memory.stat": f"cache 1\ntotal_inactive_file {GIB // 2}\n",
            },
            25.0,
            2 * GIB,
            id="v1",
        ),
        pytest.param(
            V1
            | {
                # The path is the machine's, the mount the container's own.
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
                "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB),
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
            },
            50.0,
            2 * GIB,
            id="v1 inside a container",
        ),
    ],
)
def test_memory_of_the_container_or_of_the_machine(
    tmp_path: Path, files: dict[str, str], percent: float, limit: int | None
) -> None:
    of = machine(tmp_path, MEMINFO | files)
    container = Container(of)

    found = read(MemoryUse(of, container)) | read(MemoryBytes(of, container))

    total = limit or HOST
    assert found == {
        ("memory", "MemoryUsedPercent", ""): percent,
        ("memory", "MemoryUsedInBytes", ""): percent / 100 * total,
        ("memory", "MemoryTotalInBytes", ""): total,
        ("memory", "SwapUsedInBytes", ""): 1 << 20,
    }
    assert of.facts["memory"] == {"host_bytes": HOST, "limit_bytes": limit}


def test_memory_that_cannot_be_read_is_no_row(tmp_path: Path) -> None:
    files = V2 | v2_memory(JOB, str(GIB), 1, 0)
    del files[f"{JOB}/memory.current"]
    of = machine(tmp_path, MEMINFO | files)

    with pytest.raises(FileNotFoundError):
        read(MemoryUse(of, Container(of)))


def cpu_stat(usage_us: int, periods: int, throttled: int) -> str:
    return f"usage_usec {usage_us}\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 77\n"


def test_cpu_of_a_cgroup_v2(tmp_path: Path) -> None:
    of = machine(
        tmp_path,
        V2
        | v2_memory(JOB, "max", 1, 0)
        | {
            f"{JOB}/cpu.max": "max 100000\n",
            f"{POD}/cpu.max": "150000 100000\n",
            f"{POD}/cpu.stat": cpu_stat(0, 0, 0),
            f"{JOB}/cpu.stat": cpu_stat(9, 9, 9),
        },
    )
    container = Container(of)

    found = read_later(container, of, {f"{POD}/cpu.stat": cpu_stat(3_000_000, 20, 5)})

    assert found == {
        ("container", "CPUUsedCores", ""): 1.5,
        ("container", "CPULimitCores", ""): 1.5,
        ("container", "CPUThrottledPercentage", ""): 25.0,
        ("container", "OOMKills", ""): 1.0,
    }
    assert of.facts["cores"] == {"limit": 1.5}


def test_cpu_of_a_cgroup_v1(tmp_path: Path) -> None:
    cpu, use = "sys/fs/cgroup/cpu/docker/1", "sys/fs/cgroup/cpuacct/docker/1/cpuacct.usage"
    of = machine(
        tmp_path,
        V1
        | {
            f"{cpu}/cpu.cfs_quota_us": "200000\n",
            f"{cpu}/cpu.cfs_period_us": "100000\n",
            f"{cpu}/cpu.stat": "nr_periods 10\nnr_throttled 1\nthrottled_time 5\n",
            use: "0\n",
            "sys/fs/cgroup/memory/docker/1/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        },
    )
    container = Container(of)

    found = read_later(
        container, of, {use: "1000000000\n", f"{cpu}/cpu.stat": "nr_periods 20\nnr_throttled 6\n"}
    )

    assert found == {
        ("container", "CPUUsedCores", ""): 0.5,
        ("container", "CPULimitCores", ""): 2.0,
        ("container", "CPUThrottledPercentage", ""): 50.0,
        ("container", "OOMKills", ""): 3.0,
    }


def test_files_that_are_missing_are_in_the_facts(tmp_path: Path) -> None:
    of = machine(tmp_path, V2 | {f"{JOB}/cpu.max": "100000 100000\n"})

    read(Container(of))

    reasons = {found["sensor"].rpartition("/")[2]: found["reason"] for found in of.left_out.facts()}
    assert reasons == {"cpu.stat": "No such file or directory"}


def test_a_path_that_leads_out_of_the_namespace_is_the_root(tmp_path: Path) -> None:
    of = machine(tmp_path, {"sys/fs/cgroup/cgroup.controllers": "", "proc/100/cgroup": "0::/../../other\n"})

    assert Container(of).folder == "sys/fs/cgroup"
