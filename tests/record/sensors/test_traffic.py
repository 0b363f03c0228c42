"""Disks, network interfaces, RDMA ports, pressure: counters that become rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrecord.sensors.containers import Container
from jobrecord.sensors.disks import Disks
from jobrecord.sensors.network import RDMA, Interfaces
from jobrecord.sensors.pressure import Pressure
from jobrecord.sensors.space import Space
from tests.record.sensors.trees import machine, read, read_later


def disk(reads: int, read_sectors: int, writes: int, written_sectors: int) -> str:
    return f"{reads} 0 {read_sectors} 0 {writes} 0 {written_sectors} 0 0 0 0\n"


def test_only_whole_disks_count(tmp_path: Path) -> None:
    of = machine(
        tmp_path,
        {
            "sys/block/nvme0n1/stat": disk(10, 100, 20, 200),
            "sys/block/nvme0n1/device/model": "",
            "sys/block/sda/stat": disk(0, 0, 0, 0),
            "sys/block/sda/device/model": "",
            "sys/block/dm-0/stat": disk(10, 100, 20, 200),
            "sys/block/loop0/stat": disk(1, 1, 1, 1),
        },
    )

    rates = read_later(
        Disks(of),
        of,
        {
            "sys/block/nvme0n1/stat": disk(14, 108, 26, 204),
            "sys/block/sda/stat": disk(2, 4, 0, 0),
            "sys/block/dm-0/stat": disk(99, 999, 99, 999),
        },
    )

    assert rates == {
        ("i/o", "IOPS", ""): 6.0,
        ("i/o", "ReadThroughputInBytesPerSecond", ""): 12 * 512 / 2,
        ("i/o", "WriteThroughputInBytesPerSecond", ""): 4 * 512 / 2,
    }


def test_a_counter_that_falls_gives_no_row(tmp_path: Path) -> None:
    of = machine(tmp_path, {"sys/block/sda/stat": disk(10, 100, 20, 200), "sys/block/sda/device/model": ""})
    sensor = Disks(of)

    fallen = read_later(sensor, of, {"sys/block/sda/stat": disk(0, 0, 0, 0)})
    later = read_later(sensor, of, {"sys/block/sda/stat": disk(2, 0, 0, 0)})

    assert fallen == {}
    assert later["i/o", "IOPS", ""] == 1.0


def network(**interfaces: tuple[int, int]) -> dict[str, str]:
    head = "Inter-|   Receive   |  Transmit\n face |bytes packets|bytes packets\n"
    lines = (
        f"  {name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"
        for name, (received, sent) in interfaces.items()
    )
    return {"proc/net/dev": head + "".join(lines)}


@pytest.mark.parametrize(("real", "received"), [(("eth0",), 500.0), (("eth0", "ib0"), 550.0), ((), 850.0)])
def test_interfaces_are_the_real_ones_or_all_of_a_container(
    tmp_path: Path, real: tuple[str, ...], received: float
) -> None:
    files = network(lo=(0, 0), eth0=(0, 0), ib0=(0, 0), veth1=(0, 0))
    of = machine(tmp_path, files | {f"sys/class/net/{name}/device/vendor": "" for name in real})

    rates = read_later(
        Interfaces(of), of, network(lo=(9999, 9999), eth0=(1000, 10), ib0=(100, 10), veth1=(600, 10))
    )

    assert rates["network", "ReceiveBytesPerSecond", "Algorithm"] == received
    assert rates["network", "TransmitBytesPerSecond", "Algorithm"] == 5.0 * (len(real) or 3)


def test_rdma_counts_in_words_of_four_bytes(tmp_path: Path) -> None:
    folder = "sys/class/infiniband/mlx5_0/ports/1/counters"
    of = machine(tmp_path, {f"{folder}/port_rcv_data": "100\n", f"{folder}/port_xmit_data": "0\n"})

    rates = read_later(RDMA(of), of, {f"{folder}/port_rcv_data": "350\n", f"{folder}/port_xmit_data": "50\n"})

    assert rates["network", "ReceiveBytesPerSecond", "RDMA"] == 500.0
    assert rates["network", "TransmitBytesPerSecond", "RDMA"] == 100.0
    assert read(RDMA(machine(tmp_path / "none"))) == {}


def test_free_space_where_the_job_removed_its_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    rows = read(Space(tmp_path, machine(tmp_path)))

    assert {dimension for _, _, dimension in rows} == {"FreeBytes"}


def pressure(total_us: int) -> str:
    line = "avg10=0.00 avg60=0.00 avg300=0.00 total="
    return f"some {line}{total_us}\nfull {line}999999999\n"


def test_pressure_of_the_machine_or_of_the_cgroup(tmp_path: Path) -> None:
    host = {f"proc/pressure/{name}": pressure(0) for name in ("cpu", "io", "memory")}
    cgroup = {f"sys/fs/cgroup/job/{name}.pressure": pressure(0) for name in ("cpu", "io", "memory")}
    is_v2 = {"sys/fs/cgroup/cgroup.controllers": "cpu", "proc/100/cgroup": "0::/job\n"}

    of = machine(tmp_path / "host", host)
    by_host = read_later(Pressure(of, Container(of)), of, {"proc/pressure/io": pressure(500_000)})
    of = machine(tmp_path / "cgroup", host | cgroup | is_v2)
    by_cgroup = read_later(
        Pressure(of, Container(of)), of, {"sys/fs/cgroup/job/io.pressure": pressure(1_000_000)}
    )

    zero = {("pressure", "CPU", "SomePercentage"): 0.0, ("pressure", "Memory", "SomePercentage"): 0.0}
    assert by_host == zero | {("pressure", "IO", "SomePercentage"): 25.0}
    assert by_cgroup == zero | {("pressure", "IO", "SomePercentage"): 50.0}
    assert of.facts["pressure"] == "cgroup"


def test_a_kernel_without_pressure_is_in_the_facts(tmp_path: Path) -> None:
    of = machine(tmp_path)

    assert read(Pressure(of, Container(of))) == {}
    assert {found["sensor"] for found in of.left_out.facts()} == {
        "pressure CPU",
        "pressure IO",
        "pressure Memory",
    }
