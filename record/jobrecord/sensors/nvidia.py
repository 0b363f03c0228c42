"""NVIDIA GPUs through NVML, by the module ``pynvml``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobrecord.sensors import processes
from jobrecord.sensors.gpus import Device, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jobrecord.files import Row
    from jobrecord.sensors.base import Machine

_SLOW_S, _RARE_S, _MINUTE_S = 1.0, 5.0, 60.0
#: Kinds of devices: utilization is of whole GPUs, memory also of instances, the board also of a divided GPU.
_WHOLE, _MEMORY, _BOARD = ("gpu",), ("gpu", "instance"), ("gpu", "divided")
#: Bits of the reasons for a lower clock.
_POWER_CAP, _THERMAL, _HARDWARE = 0x4, 0x20 | 0x40, 0x8 | 0x80
#: The first process namespace of a machine; in others NVML's process numbers mean nothing.
_HOST_NAMESPACE = "pid:[4026531836]"


class NVML:
    """The driver's library. Raises ``pynvml.NVMLError`` if there is none."""

    variables = ("CUDA_VISIBLE_DEVICES",)

    def __init__(self) -> None:
        import pynvml  # noqa: PLC0415 - 20 ms that a machine without GPUs saves elsewhere

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._final = {
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_NO_PERMISSION,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_INVALID_ARGUMENT,
        }
        self.readings = (
            Reading("utilization", 0.0, _WHOLE, self._utilization),
            Reading("memory in use", 0.0, _MEMORY, self._memory_used),
            Reading("power", 0.0, _BOARD, self._power),
            Reading("activity", 0.0, _MEMORY, self._activity),
            Reading("temperature", _SLOW_S, _BOARD, self._temperature),
            Reading("clock", _SLOW_S, _BOARD, self._clock),
            Reading("clock reasons", _SLOW_S, _BOARD, self._reasons),
            Reading("energy", _RARE_S, _BOARD, self._energy),
            Reading("ECC errors", _RARE_S, _BOARD, self._ecc),
            Reading("power limit", _MINUTE_S, _BOARD, self._power_limit),
            Reading("memory size", _MINUTE_S, _MEMORY, self._memory_total),
        )

    def version(self) -> str:
        """That of the driver."""
        return str(self._nvml.nvmlSystemGetDriverVersion())

    def devices(self) -> list[Device]:
        """All GPUs in NVML's order (by PCI bus), each with its instances behind it."""
        found = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            gpu = self._device(f"gpu{index}", index, handle, "divided" if self._is_divided(handle) else "gpu")
            found += [gpu, *(self._instances(gpu) if gpu.kind == "divided" else ())]
        return found

    def is_final(self, error: Exception) -> bool:
        """True for errors that asking again does not change."""
        return getattr(error, "value", None) in self._final

    def reconnect(self, devices: Sequence[Device]) -> None:
        """Start NVML again; handles of before are void."""
        self._nvml.nvmlShutdown()
        self._nvml.nvmlInit()
        for device in devices:
            device.handle = self._nvml.nvmlDeviceGetHandleByUUID(device.uuid)
            device.kept.clear()

    def users(self, device: Device) -> set[int]:
        """Processes that compute on a GPU."""
        return {found.pid for found in self._nvml.nvmlDeviceGetComputeRunningProcesses(device.handle)}

    def _device(self, name: str, index: int, handle: Any, kind: str) -> Device:
        uuid, model = self._nvml.nvmlDeviceGetUUID(handle), self._nvml.nvmlDeviceGetName(handle)
        device = Device(name=name, index=index, uuid=uuid, handle=handle, kind=kind, model=model)
        try:
            device.memory_bytes = self._memory(device).total
        except self._nvml.NVMLError:
            device.memory_bytes = None
        return device

    def _is_divided(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
        except self._nvml.NVMLError:
            return False

    def _instances(self, gpu: Device) -> Iterator[Device]:
        for number in range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)):
            try:
                handle = self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, number)
            except self._nvml.NVMLError:
                # A place without an instance.
                continue
            device = self._device(f"{gpu.name}-mig{number}", gpu.index, handle, "instance")
            device.parent, device.instance = gpu, self._nvml.nvmlDeviceGetGpuInstanceId(handle)
            yield device

    def _utilization(self, device: Device) -> Iterator[tuple[str, float]]:
        rates = self._nvml.nvmlDeviceGetUtilizationRates(device.handle)
        yield "GPUUtilization", rates.gpu
        yield "GPUMemoryUtilization", rates.memory

    def _memory(self, device: Device) -> Any:
        try:
            # As nvidia-smi: without what the driver reserves for itself.
            return self._nvml.nvmlDeviceGetMemoryInfo(device.handle, version=self._nvml.nvmlMemory_v2)
        except self._nvml.NVMLError as error:
            if not self.is_final(error):
                raise
            return self._nvml.nvmlDeviceGetMemoryInfo(device.handle)

    def _memory_used(self, device: Device) -> Iterator[tuple[str, float]]:
        yield "GPUMemoryUsedInBytes", self._memory(device).used

    def _memory_total(self, device: Device) -> Iterator[tuple[str, float]]:
        yield "GPUMemoryTotalInBytes", self._memory(device).total

    def _power(self, device: Device) -> Iterator[tuple[str, float]]:
        yield "PowerInWatts", self._nvml.nvmlDeviceGetPowerUsage(device.handle) / 1000

    def _power_limit(self, device: Device) -> Iterator[tuple[str, float]]:
        yield "PowerLimitInWatts", self._nvml.nvmlDeviceGetEnforcedPowerLimit(device.handle) / 1000

    def _temperature(self, device: Device) -> Iterator[tuple[str, float]]:
        kind = self._nvml.NVML_TEMPERATURE_GPU
        yield "TemperatureInCelsius", self._nvml.nvmlDeviceGetTemperature(device.handle, kind)

    def _clock(self, device: Device) -> Iterator[tuple[str, float]]:
        yield "SMClockInMHz", self._nvml.nvmlDeviceGetClockInfo(device.handle, self._nvml.NVML_CLOCK_SM)

    def _reasons(self, device: Device) -> Iterator[tuple[str, float]]:
        bits = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device.handle)
        yield "ThermalSlowdownPercentage", 100 * bool(bits & _THERMAL)
        yield "PowerCapPercentage", 100 * bool(bits & _POWER_CAP)
        yield "HardwareSlowdownPercentage", 100 * bool(bits & _HARDWARE)

    def _energy(self, device: Device) -> Iterator[tuple[str, float]]:
        yield "EnergyInJoules", self._nvml.nvmlDeviceGetTotalEnergyConsumption(device.handle) / 1000

    def _ecc(self, device: Device) -> Iterator[tuple[str, float]]:
        nvml = self._nvml
        for dimension, kind in (
            ("ECCCorrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ("ECCUncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        ):
            yield dimension, nvml.nvmlDeviceGetTotalEccErrors(device.handle, kind, nvml.NVML_VOLATILE_ECC)

    def _activity(self, device: Device) -> Iterator[tuple[str, float]]:
        """Shares of time since the reading before, on Hopper and later (NVML-GPM)."""
        nvml = self._nvml
        gpu = device.parent or device
        if not device.kept:
            if not nvml.nvmlGpmQueryDeviceSupport(gpu.handle).isSupportedDevice:
                raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
            device.kept = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc(), False]
        before, now, is_second = device.kept
        if device.instance is None:
            nvml.nvmlGpmSampleGet(gpu.handle, now)
        else:
            nvml.nvmlGpmMigSampleGet(gpu.handle, device.instance, now)
        device.kept = [now, before, True]
        if is_second:
            yield from self._activity_between(before, now)

    def _activity_between(self, before: Any, now: Any) -> Iterator[tuple[str, float]]:
        nvml = self._nvml
        metrics = {
            "SMActivePercentage": nvml.NVML_GPM_METRIC_SM_UTIL,
            "TensorActivePercentage": nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
            "DRAMActivePercentage": nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
        }
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(metrics)
        request.sample1, request.sample2 = before, now
        for number, metric in enumerate(metrics.values()):
            request.metrics[number].metricId = metric
        nvml.nvmlGpmMetricsGet(request)
        for number, dimension in enumerate(metrics):
            if request.metrics[number].nvmlReturn == nvml.NVML_SUCCESS:
                yield dimension, request.metrics[number].value


class OtherUsers:
    """Notes in the facts how many processes outside of the job compute on its GPUs; writes no rows."""

    every_s = _MINUTE_S

    def __init__(self, nvml: NVML, devices: Sequence[Device], machine: Machine) -> None:
        self._nvml = nvml
        self._devices = devices
        self._machine = machine

    def rows(self) -> Iterator[Row]:
        """No rows. Raises what NVML raises."""
        namespace = str((self._machine.root / "proc/self/ns/pid").readlink())
        if namespace != _HOST_NAMESPACE:
            self._machine.left_out.add(
                "shared GPUs", "process numbers of the machine are unknown in a container"
            )
            return
        own = {process.pid for process in processes.of_job(self._machine)}
        if not own:
            # The job has ended, and the driver may list its processes for a while.
            return
        shared = self._machine.facts.setdefault("shared_gpus", {})
        for device in self._devices:
            if others := len(self._nvml.users(device) - own):
                shared[device.name] = max(shared.get(device.name, 0), others)
        yield from ()
