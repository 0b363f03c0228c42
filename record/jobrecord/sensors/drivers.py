"""The driver of this machine's GPUs, and their sensors."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from jobrecord.sensors import amd, nvidia
from jobrecord.sensors.base import Machine
from jobrecord.sensors.gpus import by_cadence, select, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobrecord.sensors.base import Sensor
    from jobrecord.sensors.gpus import Driver
    from jobrecord.settings import Settings

_WORDS = ("auto", "all", "none")


def connect(machine: Machine) -> tuple[Driver | None, str | None]:
    """The first driver that answers, else the reason for none."""
    try:
        return nvidia.NVML(), None
    except Exception as error:  # noqa: BLE001 - the library is absent, too old, or of another kind
        reason = _reason(machine, error)
    for driver in (amd.AMDSMI, lambda: amd.Sysfs(machine)):
        try:
            return driver(), None
        except Exception:  # noqa: BLE001, S112 - as above
            continue
    return None, reason


def check(setting: str) -> None:
    """Raise SettingError for a GPU that `setting` names and this machine lacks."""
    if setting not in _WORDS:
        driver, _ = connect(Machine(pid=0))
        select(setting, driver.devices() if driver else [], strict=True)


def sensors(settings: Settings, machine: Machine, environment: Mapping[str, str]) -> list[Sensor]:
    """Sensors of the GPUs that the job sees; without any, the facts have the reason."""
    machine.facts.update(gpus=[], gpu_reason=None)
    if settings.gpus == "none":
        machine.facts["gpu_reason"] = "--gpus none"
        return []
    driver, reason = connect(machine)
    if driver is None:
        machine.facts["gpu_reason"] = reason
        if settings.gpus != "auto" or _is_unmounted(machine):
            # Of a log that is full; everything else is sampled.
            with contextlib.suppress(OSError):
                print(f"record-job: no GPU is sampled: {reason}.", file=sys.stderr)
        return []
    with contextlib.suppress(Exception):
        machine.facts["driver"] = driver.version()  # type: ignore[attr-defined]
    devices = select(visible(settings.gpus, environment, driver.variables), driver.devices(), strict=False)
    machine.facts["gpus"] = [device.facts() for device in devices]
    if not devices:
        machine.facts["gpu_reason"] = f"the job sees no GPU ({', '.join(driver.variables)})"
    found: list[Sensor] = [*by_cadence(driver, devices, machine, settings.interval_s)]
    whole = [device for device in devices if device.kind == "gpu"]
    if isinstance(driver, nvidia.NVML) and whole:
        found.append(nvidia.OtherUsers(driver, whole, machine))
    return found


def _is_unmounted(machine: Machine) -> bool:
    """True if there are NVIDIA GPUs, but not the driver's library, as in many containers."""
    return any((machine.root / "dev").glob("nvidia[0-9]*"))


def _reason(machine: Machine, error: Exception) -> str:
    if _is_unmounted(machine):
        return (
            "/dev/nvidia0 exists, but the driver's library does not answer "
            f"({error}); start the container with the driver capability 'utility'"
        )
    if type(error).__name__ in {"NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded"}:
        return "no NVIDIA driver found"
    return f"no NVIDIA driver answers: {error}"
