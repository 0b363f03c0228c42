"""Rows of NVIDIA GPUs, by a driver that answers from a script."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from jobrecord.sensors import drivers, nvidia
from jobrecord.sensors.base import Machine
from jobrecord.settings import SettingError, read
from tests.record.fake_nvml import FakeNVML, gpu
from tests.record.sensors.trees import PID, Clock, machine

GIB = 1 << 30


class Driver:
    """A fake driver, with the sensors of it."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        root: Path,
        *gpus: dict[str, Any],
        setting: str = "auto",
        **variables: str,
    ) -> None:
        self.nvml = FakeNVML({"gpus": list(gpus)})
        monkeypatch.setitem(sys.modules, "pynvml", self.nvml)
        self.machine = machine(root)
        self.sensors = drivers.sensors(read({"JOBRECORD_GPUS": setting}), self.machine, variables)

    def rows(self, seconds: float = 1.0) -> dict[tuple[str, str], float]:
        """Rows of all sensors, then `seconds` pass."""
        found = {(row.name, row.dimension): row.value for one in self.sensors for row in self._of(one)}
        self.advance(seconds)
        return found

    def advance(self, seconds: float) -> None:
        assert isinstance(self.machine.clock, Clock)
        self.machine.clock.now_s += seconds

    def _of(self, sensor: Any) -> Any:
        return [] if type(sensor).__name__ == "OtherUsers" else list(sensor.rows())

    def left_out(self) -> dict[str, tuple[str, int]]:
        return {row["sensor"]: (row["reason"], row["count"]) for row in self.machine.left_out.facts()}


EXPECTED = {
    "GPUUtilization": 87,
    "GPUMemoryUtilization": 40,
    "GPUMemoryUsedInBytes": 10 * GIB,
    "GPUMemoryTotalInBytes": 80 * GIB,
    "PowerInWatts": 250.5,
    "PowerLimitInWatts": 400,
    "TemperatureInCelsius": 61,
    "SMClockInMHz": 1410,
    "ThermalSlowdownPercentage": 0,
    "PowerCapPercentage": 0,
    "HardwareSlowdownPercentage": 0,
    "EnergyInJoules": 5000,
    "ECCCorrected": 2,
    "ECCUncorrected": 0,
}


@pytest.mark.parametrize("count", [1, 8])
def test_rows_of_each_gpu(count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = Driver(monkeypatch, tmp_path, *(gpu(f"GPU-{number}") for number in range(count)))

    rows = driver.rows()

    assert rows == {
        (f"gpu{n}", dimension): value for n in range(count) for dimension, value in EXPECTED.items()
    }
    assert driver.machine.facts["gpus"][-1] == {
        "index": count - 1,
        "uuid": f"GPU-{count - 1}",
        "name": "Fake GPU",
        "memory_bytes": 80 * GIB,
        "mig": False,
        "rank": None,
    }
    assert driver.machine.facts["gpu_reason"] is None


def test_the_real_module_has_all_names_that_are_used() -> None:
    source = Path(nvidia.__file__).read_text()

    names = set(re.findall(r"nvml\.((?:c_)?nvml\w+|NVML_?\w+)", source))

    assert len(names) > 30
    assert [name for name in names if not hasattr(pynvml, name)] == []


def test_cadences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = Driver(monkeypatch, tmp_path, gpu())

    assert sorted({sensor.every_s for sensor in driver.sensors}) == [0.0, 1.0, 5.0, 60.0]


@pytest.mark.parametrize(
    ("bits", "raised"),
    [
        (0x1, set()),
        (0x4, {"PowerCapPercentage"}),
        (0x8, {"HardwareSlowdownPercentage"}),
        (0x20, {"ThermalSlowdownPercentage"}),
        (0x48, {"ThermalSlowdownPercentage", "HardwareSlowdownPercentage"}),
        (0x80, {"HardwareSlowdownPercentage"}),
    ],
)
def test_reasons_for_a_lower_clock(
    bits: int, raised: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = Driver(monkeypatch, tmp_path, gpu(reasons=[bits])).rows()

    assert {name for (_, name), value in rows.items() if value == 100} == raised


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "NO_PERMISSION"])
def test_a_reading_that_is_not_offered_is_asked_for_once(
    error: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, gpu(power=[{"error": error}]))

    first, second = driver.rows(), driver.rows()

    assert first == second
    assert {name for _, name in first} == {*EXPECTED} - {"PowerInWatts"}
    assert driver.nvml.asked["GPU-a", "power"] == 1
    assert driver.left_out()["gpu0 power"] == (error, 1)


def test_memory_of_a_driver_without_the_second_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = gpu(memory=[[3 * GIB, 16 * GIB]])
    old["answers"]["memory v2"] = [{"error": "FUNCTION_NOT_FOUND"}]

    assert Driver(monkeypatch, tmp_path, old).rows()["gpu0", "GPUMemoryUsedInBytes"] == 3 * GIB


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "UNKNOWN", "TIMEOUT"])
def test_a_lost_gpu_is_asked_again_after_1_2_4_seconds(
    error: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lost = {"error": error}
    driver = Driver(
        monkeypatch,
        tmp_path,
        gpu(utilization=[[1, 1], lost, lost, lost, [2, 2]]),
        gpu("GPU-b", utilization=[[9, 9]]),
    )

    (tick, *_) = driver.sensors
    driver.sensors = [tick]
    seen = [driver.rows() for _ in range(10)]

    # Asked at 0, 1 (lost), 2, 4, 8 s.
    assert [rows.get(("gpu0", "GPUUtilization")) for rows in seen] == [1, *[None] * 7, 2, 2]
    assert [rows["gpu1", "GPUUtilization"] for rows in seen] == [9] * 10
    assert driver.left_out()["gpu0 utilization"] == (error, 3)
    assert driver.nvml.starts == 1 + 3


def test_a_call_that_takes_long_makes_the_pause_longer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, gpu(utilization=[{"sleep": 0.4, "value": [1, 1]}]))
    monkeypatch.setattr("time.sleep", driver.advance)
    (tick, *_) = driver.sensors

    [*tick.rows()]
    first = tick.every_s
    [*tick.rows()]

    assert (first, tick.every_s) == (1.0, 1.0)
    assert driver.machine.facts["gpu_interval_ms"] == 1000


def part(uuid: str, instance: int, **answers: list[Any]) -> dict[str, Any]:
    return {"uuid": uuid, "instance": instance, "answers": {"memory v2": [[GIB, 10 * GIB]], **answers}}


def test_a_divided_gpu_has_no_utilization(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    divided = gpu(utilization=[[0, 0]])
    divided |= {"gpm": 1, "mig": [part("MIG-a", 7, activity=[[10, 20, 30]]), None, part("MIG-b", 9)]}
    driver = Driver(monkeypatch, tmp_path, divided)

    driver.rows()
    rows = driver.rows()

    by_name: dict[str, set[str]] = {}
    for name, dimension in rows:
        by_name.setdefault(name, set()).add(dimension)
    memory = {"GPUMemoryUsedInBytes", "GPUMemoryTotalInBytes"}
    of_whole = {"GPUUtilization", "GPUMemoryUtilization"}
    assert by_name == {
        "gpu0": {*EXPECTED} - memory - of_whole,
        "gpu0-mig0": memory | {"SMActivePercentage", "TensorActivePercentage", "DRAMActivePercentage"},
        "gpu0-mig2": memory,
    }
    assert [row["uuid"] for row in driver.machine.facts["gpus"]] == ["GPU-a", "MIG-a", "MIG-b"]


def test_activity_is_between_two_readings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hopper = gpu(activity=[[1, 1, 1], [50, None, 20]]) | {"gpm": 1}
    driver = Driver(monkeypatch, tmp_path, hopper)

    first, second = driver.rows(), driver.rows()

    assert {*first} == {("gpu0", name) for name in EXPECTED}
    assert {name: second["gpu0", name] for _, name in second.keys() - first.keys()} == {
        "SMActivePercentage": 50,
        "DRAMActivePercentage": 20,
    }


@pytest.mark.parametrize(
    ("setting", "variable", "expected"),
    [
        ("auto", None, [0, 1, 2]),
        ("auto", "", []),
        ("auto", "2,0", [0, 2]),
        ("auto", "1,7,2", [1]),
        ("auto", "-1", []),
        ("auto", "GPU-b1", [1]),
        ("all", "0", [0, 1, 2]),
        ("none", "0", []),
        ("1", "0", [1]),
        ("GPU-c3,0", None, [0, 2]),
    ],
)
def test_which_gpus(
    setting: str, variable: str | None, expected: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    gpus = (gpu("GPU-a123"), gpu("GPU-b123"), gpu("GPU-c345"))
    driver = Driver(monkeypatch, tmp_path, *gpus, setting=setting, **variables)

    assert [row["index"] for row in driver.machine.facts["gpus"]] == expected
    assert {name for name, _ in driver.rows()} == {f"gpu{number}" for number in expected}
    assert bool(driver.machine.facts["gpu_reason"]) == (not expected)


def test_an_instance_that_the_job_sees_comes_with_its_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    divided = gpu() | {"mig": [part("MIG-a", 7), part("MIG-b", 9)]}
    driver = Driver(monkeypatch, tmp_path, gpu("GPU-x"), divided, CUDA_VISIBLE_DEVICES="MIG-b")

    assert {name for name, _ in driver.rows()} == {"gpu1", "gpu1-mig1"}


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNVML({"gpus": [gpu() for _ in range(8)]}))

    drivers.check("auto")
    drivers.check("0,7")
    with pytest.raises(SettingError, match="--gpus 9: this machine has GPUs 0 to 7"):
        drivers.check("0,9")


@pytest.mark.parametrize(
    ("device", "setting", "reason", "printed"),
    [
        (None, "auto", "no NVIDIA driver found", False),
        (None, "all", "no NVIDIA driver found", True),
        ("dev/nvidia0", "auto", "driver capability 'utility'", True),
    ],
)
def test_no_driver(
    device: str | None,
    setting: str,
    reason: str,
    printed: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNVML({"init": "LIBRARY_NOT_FOUND"}))
    of = machine(tmp_path, {device: ""} if device else {})

    found = drivers.sensors(read({"JOBRECORD_GPUS": setting}), of, {})

    assert found == []
    assert of.facts["gpus"] == []
    assert reason in of.facts["gpu_reason"]
    assert (reason in capsys.readouterr().err) == printed


def test_processes_of_other_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    divided = gpu("GPU-b", processes=[{"error": "NOT_SUPPORTED"}]) | {"mig": []}
    driver = Driver(monkeypatch, tmp_path, divided, gpu(processes=[[PID, 900], [900, 901], [PID]]))
    users = driver.sensors[-1]
    root = driver.machine.root
    (root / f"proc/{PID}").mkdir(parents=True)
    (root / f"proc/{PID}/stat").write_text(f"{PID} (p) S 1 1 1 0 -1 4 0 0 0 0 1 0 0 0 20 0 3 0 5 999 10 0\n")
    (root / "proc/self/ns").mkdir(parents=True)
    namespace = root / "proc/self/ns/pid"

    namespace.symlink_to("pid:[4026531836]")
    for _ in range(3):
        [*users.rows()]
    namespace.unlink()
    namespace.symlink_to("pid:[4026532999]")
    [*users.rows()]

    assert driver.machine.facts["shared_gpus"] == {"gpu1": 2}
    assert "shared GPUs" in driver.left_out()


def test_processes_of_a_job_that_has_ended_are_not_those_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, gpu(processes=[[PID]]))
    namespace = driver.machine.root / "proc/self/ns/pid"
    namespace.parent.mkdir(parents=True)
    namespace.symlink_to("pid:[4026531836]")

    [*driver.sensors[-1].rows()]

    assert not driver.machine.facts.get("shared_gpus")


def test_without_the_module_there_are_no_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    of = Machine(pid=1, root=tmp_path)

    assert drivers.sensors(read({}), of, {}) == []
    assert of.facts["gpu_reason"]
