"""Rows of AMD GPUs, by a library that answers from a table, and from the kernel's files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobrecord.sensors import drivers
from jobrecord.sensors.base import Machine
from jobrecord.settings import read
from tests.record.fake_nvml import FakeNVML
from tests.record.sensors.trees import machine

MIB = 1 << 20


class AmdSmiException(Exception):  # noqa: N818 - the real name
    def __init__(self, err_code: int) -> None:
        super().__init__(f"code {err_code}")
        self.err_code = err_code


def library(**answers: Any) -> SimpleNamespace:
    """A module ``amdsmi`` with two GPUs; an answer that is an exception is raised."""

    def answer(name: str) -> Any:
        def call(*_: Any) -> Any:
            found = known[name]
            if isinstance(found, Exception):
                raise found
            return found

        return call

    known: dict[str, Any] = {
        "amdsmi_init": None,
        "amdsmi_shut_down": None,
        "amdsmi_get_processor_handles": ["a", "b"],
        "amdsmi_get_gpu_device_uuid": "uuid",
        "amdsmi_get_gpu_asic_info": {"market_name": "MI300X"},
        "amdsmi_get_gpu_activity": {"gfx_activity": 93, "umc_activity": 41, "mm_activity": "N/A"},
        "amdsmi_get_gpu_vram_usage": {"vram_total": 1000, "vram_used": 10},
        "amdsmi_get_power_info": {"current_socket_power": 500, "average_socket_power": "N/A"},
        "amdsmi_get_temp_metric": 55,
        "amdsmi_get_clock_info": {"clk": 2100},
        "amdsmi_get_violation_status": {
            "active_ppt_pwr": True,
            "active_socket_thrm": False,
            "active_vr_thrm": "N/A",
        },
        **answers,
    }
    return SimpleNamespace(
        AmdSmiException=AmdSmiException,
        amdsmi_wrapper=SimpleNamespace(
            AMDSMI_STATUS_NOT_SUPPORTED=2, AMDSMI_STATUS_NOT_YET_IMPLEMENTED=3, AMDSMI_STATUS_NO_PERM=10
        ),
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT=1),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0),
        AmdSmiClkType=SimpleNamespace(GFX=0),
        **{name: answer(name) for name in known},
    )


@pytest.fixture(autouse=True)
def _no_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNVML({"init": "LIBRARY_NOT_FOUND"}))


def rows(of: Machine, **variables: str) -> dict[tuple[str, str], float]:
    sensors = drivers.sensors(read({}), of, variables)
    return {(row.name, row.dimension): row.value for sensor in sensors for row in sensor.rows()}


EXPECTED = {
    "GPUUtilization": 93,
    "GPUMemoryUtilization": 41,
    "GPUMemoryUsedInBytes": 10 * MIB,
    "GPUMemoryTotalInBytes": 1000 * MIB,
    "PowerInWatts": 500,
    "TemperatureInCelsius": 55,
    "SMClockInMHz": 2100,
    "PowerCapPercentage": 100,
    "ThermalSlowdownPercentage": 0,
}


def test_rows_by_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", library())
    of = machine(tmp_path)

    assert rows(of) == {(f"gpu{n}", name): value for n in (0, 1) for name, value in EXPECTED.items()}
    assert of.facts["gpus"][1]["name"] == "MI300X"
    assert {name for name, _ in rows(machine(tmp_path), ROCR_VISIBLE_DEVICES="1")} == {"gpu1"}


@pytest.mark.parametrize("nothing", ["N/A", 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, None])
def test_no_value_is_no_row(nothing: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(
        sys.modules,
        "amdsmi",
        library(
            amdsmi_get_gpu_activity={"gfx_activity": nothing, "umc_activity": nothing},
            amdsmi_get_power_info={"current_socket_power": nothing, "average_socket_power": 300},
            amdsmi_get_temp_metric=nothing,
        ),
    )

    found = rows(machine(tmp_path))

    without = {"GPUUtilization", "GPUMemoryUtilization", "TemperatureInCelsius"}
    assert {name for _, name in found} == {*EXPECTED} - without
    assert found["gpu0", "PowerInWatts"] == 300


def test_activity_that_a_virtual_gpu_does_not_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", library(amdsmi_get_gpu_activity=AmdSmiException(2)))
    of = machine(tmp_path)

    found = rows(of)

    assert {name for _, name in found} == {*EXPECTED} - {"GPUUtilization", "GPUMemoryUtilization"}
    assert of.left_out.facts()[0]["sensor"] == "gpu0 utilization"


def card(number: int, busy: int) -> dict[str, str]:
    folder = f"sys/class/drm/card{number}/device"
    return {
        f"{folder}/gpu_busy_percent": f"{busy}\n",
        f"{folder}/mem_info_vram_used": "5\n",
        f"{folder}/mem_info_vram_total": "50\n",
    }


def test_rows_from_the_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    of = machine(tmp_path, card(2, 20) | card(10, 100) | {"sys/class/drm/card0/device/vendor": "0x8086"})

    found = rows(of)

    assert found["gpu0", "GPUUtilization"] == 20
    assert found["gpu1", "GPUUtilization"] == 100
    assert found["gpu1", "GPUMemoryTotalInBytes"] == 50
    assert [row["uuid"] for row in of.facts["gpus"]] == ["card2", "card10"]
