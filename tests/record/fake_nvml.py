# ruff: noqa: N801, N802, N815, N818 - the names of the real module
"""A module ``pynvml`` that answers from a script, in this process or in the sampler's.

The script: ``{"gpus": [{"uuid": …, "answers": {<question>: [<answer>, …]}, "mig": [<gpu>, …]}], "init": <error>}``. Each
question gets the next answer of its list, the last one again and again; an answer is a value, ``{"error": <name>}``, or
``{"sleep": <seconds>, "value": …}``. A question without answers is not supported.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

ERRORS = {
    "INVALID_ARGUMENT": 2,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "NOT_FOUND": 6,
    "TIMEOUT": 10,
    "LIBRARY_NOT_FOUND": 12,
    "FUNCTION_NOT_FOUND": 13,
    "GPU_IS_LOST": 15,
    "UNKNOWN": 999,
}


class NVMLError(Exception):
    """As pynvml's: the code is ``value``."""

    def __init__(self, value: int) -> None:
        super().__init__(next(name for name, code in ERRORS.items() if code == value))
        self.value = value


class NVMLError_LibraryNotFound(NVMLError):
    """No driver."""


class FakeNVML:
    """The functions and constants that the recorder uses; `asked` counts the questions."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = "ecc corrected", "ecc uncorrected"
    NVML_VOLATILE_ECC = 0
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_UTIL = 2
    NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
    NVML_GPM_METRIC_DRAM_BW_UTIL = 10
    nvmlMemory_v2 = 2

    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.asked: dict[tuple[str, str], int] = {}
        self.starts = 0
        for name, code in ERRORS.items():
            setattr(self, f"NVML_ERROR_{name}", code)

    def answer(self, gpu: dict[str, Any], question: str) -> Any:
        answers = gpu["answers"].get(question, [{"error": "NOT_SUPPORTED"}])
        number = self.asked.get((gpu["uuid"], question), 0)
        self.asked[gpu["uuid"], question] = number + 1
        found = answers[min(number, len(answers) - 1)]
        if isinstance(found, dict) and "sleep" in found:
            time.sleep(found["sleep"])
            found = found["value"]
        if isinstance(found, dict) and "error" in found:
            raise NVMLError(ERRORS[found["error"]])
        return found

    def nvmlInit(self) -> None:
        if "init" in self.script:
            raise NVMLError_LibraryNotFound(ERRORS[self.script["init"]])
        self.starts += 1

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return len(self.script["gpus"])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self.script["gpus"][index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        gpus = self.script["gpus"]
        return next(
            gpu
            for gpu in [*gpus, *(part for one in gpus for part in one.get("mig", ()) if part)]
            if gpu["uuid"] == uuid
        )

    def nvmlDeviceGetUUID(self, gpu: Any) -> str:
        return str(gpu["uuid"])

    def nvmlDeviceGetName(self, gpu: Any) -> str:
        return str(gpu.get("name", "Fake GPU"))

    def nvmlDeviceGetMigMode(self, gpu: Any) -> tuple[int, int]:
        return (1, 1) if "mig" in gpu else (0, 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Any) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Any, number: int) -> Any:
        if number >= len(gpu["mig"]) or gpu["mig"][number] is None:
            raise NVMLError(ERRORS["NOT_FOUND"])
        return gpu["mig"][number]

    def nvmlDeviceGetGpuInstanceId(self, gpu: Any) -> int:
        return int(gpu["instance"])

    def nvmlDeviceGetUtilizationRates(self, gpu: Any) -> Any:
        use, memory = self.answer(gpu, "utilization")
        return SimpleNamespace(gpu=use, memory=memory)

    def nvmlDeviceGetMemoryInfo(self, gpu: Any, version: int | None = None) -> Any:
        used, total = self.answer(gpu, "memory v2" if version else "memory")
        return SimpleNamespace(used=used, total=total)

    def nvmlDeviceGetPowerUsage(self, gpu: Any) -> Any:
        return self.answer(gpu, "power")

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: Any) -> Any:
        return self.answer(gpu, "power limit")

    def nvmlDeviceGetTemperature(self, gpu: Any, _kind: int) -> Any:
        return self.answer(gpu, "temperature")

    def nvmlDeviceGetClockInfo(self, gpu: Any, _kind: int) -> Any:
        return self.answer(gpu, "clock")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: Any) -> Any:
        return self.answer(gpu, "reasons")

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: Any) -> Any:
        return self.answer(gpu, "energy")

    def nvmlDeviceGetTotalEccErrors(self, gpu: Any, kind: str, _counter: int) -> Any:
        return self.answer(gpu, kind)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: Any) -> Any:
        return [SimpleNamespace(pid=pid) for pid in self.answer(gpu, "processes")]

    def nvmlGpmQueryDeviceSupport(self, gpu: Any) -> Any:
        return SimpleNamespace(isSupportedDevice=int(gpu.get("gpm", 0)))

    def nvmlGpmSampleAlloc(self) -> dict[str, Any]:
        return {}

    def nvmlGpmSampleGet(self, gpu: Any, sample: dict[str, Any]) -> None:
        sample["activity"] = self.answer(gpu, "activity")

    def nvmlGpmMigSampleGet(self, gpu: Any, instance: int, sample: dict[str, Any]) -> None:
        sample["activity"] = self.answer(
            next(part for part in gpu["mig"] if part and part["instance"] == instance), "activity"
        )

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        return SimpleNamespace(metrics=[SimpleNamespace() for _ in range(3)])

    def nvmlGpmMetricsGet(self, request: Any) -> None:
        for metric, value in zip(request.metrics, request.sample2["activity"], strict=True):
            metric.nvmlReturn, metric.value = (0, value) if value is not None else (3, 0)


def gpu(uuid: str = "GPU-a", **answers: list[Any]) -> dict[str, Any]:
    """A GPU that answers all questions but that for activity; `answers` replace some, ``_`` for a space."""
    gib = 1 << 30
    known: dict[str, list[Any]] = {
        "utilization": [[87, 40]],
        "memory v2": [[10 * gib, 80 * gib]],
        "power": [250_500],
        "power limit": [400_000],
        "temperature": [61],
        "clock": [1410],
        "reasons": [0],
        "energy": [5_000_000],
        "ecc corrected": [2],
        "ecc uncorrected": [0],
        "processes": [[]],
    }
    return {
        "uuid": uuid,
        "answers": known | {name.replace("_", " "): list_ for name, list_ in answers.items()},
    }
