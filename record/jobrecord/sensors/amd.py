"""AMD GPUs, by the module ``amdsmi`` of the driver's maker, or without it from ``/sys``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobrecord.sensors.gpus import Device, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jobrecord.sensors.base import Machine

_MIB = 1 << 20
_SLOW_S, _MINUTE_S = 1.0, 60.0
_WHOLE = ("gpu",)
#: All bits set means that there is no value.
_NO_VALUES = {0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
_VENDOR = "0x1002"
_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


class AMDSMI:
    """The library of AMD's driver. Raises ImportError without the module, its own errors without the driver."""

    variables = _VARIABLES

    def __init__(self) -> None:
        import amdsmi  # noqa: PLC0415 - part of ROCm, never a dependency

        self._smi: Any = amdsmi
        amdsmi.amdsmi_init()
        self.readings = (
            Reading("utilization", 0.0, _WHOLE, self._utilization),
            Reading("memory in use", 0.0, _WHOLE, self._memory_used),
            Reading("power", 0.0, _WHOLE, self._power),
            Reading("temperature", _SLOW_S, _WHOLE, self._temperature),
            Reading("clock", _SLOW_S, _WHOLE, self._clock),
            Reading("throttling", _SLOW_S, _WHOLE, self._throttling),
            Reading("memory size", _MINUTE_S, _WHOLE, self._memory_total),
        )

    def devices(self) -> list[Device]:
        """All GPUs in the driver's order."""
        handles = self._smi.amdsmi_get_processor_handles()
        return [self._device(index, handle) for index, handle in enumerate(handles)]

    def is_final(self, error: Exception) -> bool:
        """True for "not supported" and "no permission"."""
        codes = self._smi.amdsmi_wrapper
        finals = {
            codes.AMDSMI_STATUS_NOT_SUPPORTED,
            codes.AMDSMI_STATUS_NOT_YET_IMPLEMENTED,
            codes.AMDSMI_STATUS_NO_PERM,
        }
        return getattr(error, "err_code", None) in finals

    def reconnect(self, devices: Sequence[Device]) -> None:
        """Start the library again; handles of before are void."""
        self._smi.amdsmi_shut_down()
        self._smi.amdsmi_init()
        handles = self._smi.amdsmi_get_processor_handles()
        for device in devices:
            device.handle = handles[device.index]

    def _device(self, index: int, handle: Any) -> Device:
        uuid = str(self._smi.amdsmi_get_gpu_device_uuid(handle))
        device = Device(name=f"gpu{index}", index=index, uuid=uuid, handle=handle)
        try:
            device.model = str(self._smi.amdsmi_get_gpu_asic_info(handle)["market_name"])
            device.memory_bytes = self._smi.amdsmi_get_gpu_vram_usage(handle)["vram_total"] * _MIB
        except (self._smi.AmdSmiException, KeyError, TypeError):
            # The GPU is sampled without them.
            device.memory_bytes = None
        return device

    def _utilization(self, device: Device) -> Iterator[tuple[str, float]]:
        activity = self._smi.amdsmi_get_gpu_activity(device.handle)
        yield from _value(activity, "gfx_activity", "GPUUtilization")
        yield from _value(activity, "umc_activity", "GPUMemoryUtilization")

    def _memory_used(self, device: Device) -> Iterator[tuple[str, float]]:
        usage = self._smi.amdsmi_get_gpu_vram_usage(device.handle)
        yield from _value(usage, "vram_used", "GPUMemoryUsedInBytes", _MIB)

    def _memory_total(self, device: Device) -> Iterator[tuple[str, float]]:
        usage = self._smi.amdsmi_get_gpu_vram_usage(device.handle)
        yield from _value(usage, "vram_total", "GPUMemoryTotalInBytes", _MIB)

    def _power(self, device: Device) -> Iterator[tuple[str, float]]:
        power = self._smi.amdsmi_get_power_info(device.handle)
        # Newer GPUs have the first, older ones the second.
        current = [*_value(power, "current_socket_power", "PowerInWatts")]
        yield from current or _value(power, "average_socket_power", "PowerInWatts")

    def _temperature(self, device: Device) -> Iterator[tuple[str, float]]:
        smi = self._smi
        kind, metric = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        value = smi.amdsmi_get_temp_metric(device.handle, kind, metric)
        yield from _value({"hotspot": value}, "hotspot", "TemperatureInCelsius")

    def _clock(self, device: Device) -> Iterator[tuple[str, float]]:
        clock = self._smi.amdsmi_get_clock_info(device.handle, self._smi.AmdSmiClkType.GFX)
        yield from _value(clock, "clk", "SMClockInMHz")

    def _throttling(self, device: Device) -> Iterator[tuple[str, float]]:
        """Whether the driver holds the clock down now, for power or for heat."""
        status = self._smi.amdsmi_get_violation_status(device.handle)
        for dimension, keys in (
            ("PowerCapPercentage", ("active_ppt_pwr",)),
            ("ThermalSlowdownPercentage", ("active_socket_thrm", "active_vr_thrm", "active_hbm_thrm")),
        ):
            flags = [status[key] for key in keys if isinstance(status.get(key), bool)]
            if flags:
                yield dimension, 100 * any(flags)


class Sysfs:
    """What the kernel's driver shows without any library. Raises FileNotFoundError without an AMD GPU."""

    variables = _VARIABLES

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.readings = (
            Reading("utilization", 0.0, _WHOLE, self._utilization),
            Reading("memory in use", 0.0, _WHOLE, self._memory_used),
            Reading("memory size", _MINUTE_S, _WHOLE, self._memory_total),
        )
        if not self.devices():
            raise FileNotFoundError("no AMD GPU")

    def devices(self) -> list[Device]:
        """Cards of the maker, in the order of their numbers."""
        folders = (self._machine.root / "sys/class/drm").glob("card*/device/gpu_busy_percent")
        names = sorted((file.parent.parent.name for file in folders), key=lambda name: (len(name), name))
        return [self._device(index, f"sys/class/drm/{name}/device") for index, name in enumerate(names)]

    def is_final(self, error: Exception) -> bool:
        """True for a file that is missing or may not be read."""
        return isinstance(error, (FileNotFoundError, PermissionError))

    def reconnect(self, devices: Sequence[Device]) -> None:
        """Nothing to renew."""

    def _device(self, index: int, folder: str) -> Device:
        device = Device(name=f"gpu{index}", index=index, uuid=folder.split("/")[-2], handle=folder)
        device.memory_bytes = next((int(value) for _, value in self._memory_total(device)), None)
        return device

    def _utilization(self, device: Device) -> Iterator[tuple[str, float]]:
        return self._row(device, "gpu_busy_percent", "GPUUtilization")

    def _memory_used(self, device: Device) -> Iterator[tuple[str, float]]:
        return self._row(device, "mem_info_vram_used", "GPUMemoryUsedInBytes")

    def _memory_total(self, device: Device) -> Iterator[tuple[str, float]]:
        return self._row(device, "mem_info_vram_total", "GPUMemoryTotalInBytes")

    def _row(self, device: Device, file: str, dimension: str) -> Iterator[tuple[str, float]]:
        number = self._machine.number(f"{device.handle}/{file}")
        if number is not None:
            yield dimension, number


def _value(
    values: Mapping[str, Any], key: str, dimension: str, factor: float = 1
) -> Iterator[tuple[str, float]]:
    """A row, unless the driver has no value: ``N/A``, or all bits set."""
    value = values.get(key)
    if isinstance(value, (int, float)) and value not in _NO_VALUES:
        yield dimension, factor * value
