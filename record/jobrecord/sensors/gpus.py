"""What the makers of GPUs have in common: which GPUs are sampled, and what happens when one does not answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jobrecord.files import Row
from jobrecord.settings import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from jobrecord.sensors.base import Machine

_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 60.0


@dataclass(kw_only=True)
class Device:
    """A GPU, or an instance of one that is divided (MIG)."""

    #: ``gpu0``, ``gpu0-mig3``.
    name: str
    index: int
    uuid: str
    handle: Any
    #: ``gpu``; ``divided`` for a GPU with MIG on, ``instance`` for its parts.
    kind: str = "gpu"
    model: str = ""
    memory_bytes: int | None = None
    #: Of an instance: its GPU, and its number there as the driver counts.
    parent: Device | None = None
    instance: int | None = None
    #: What a reading keeps for the next one.
    kept: list[Any] = field(default_factory=list)
    #: Readings that this device does not offer.
    refused: set[str] = field(default_factory=set)
    retry_at_s: float = 0.0
    retry_s: float = _FIRST_RETRY_S

    def facts(self) -> dict[str, Any]:
        """Row of ``gpus``."""
        return {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.model,
            "memory_bytes": self.memory_bytes,
            "mig": self.kind != "gpu",
            "rank": None,
        }


class Reading(NamedTuple):
    """One question to the driver, and the dimensions and values of the answer."""

    name: str
    every_s: float
    #: Kinds of devices that have it.
    kinds: tuple[str, ...]
    read: Callable[[Device], Iterable[tuple[str, float]]]


class Driver(Protocol):
    """Access to the GPUs of one maker."""

    @property
    def readings(self) -> Sequence[Reading]:
        """All that can be asked."""
        ...

    @property
    def variables(self) -> Sequence[str]:
        """Variables of the environment; the first one that is set lists the GPUs that the job sees."""
        ...

    def devices(self) -> list[Device]:
        """All GPUs of the machine."""
        ...

    def is_final(self, error: Exception) -> bool:
        """True if the same question need not be asked again: not supported, not permitted."""
        ...

    def reconnect(self, devices: Sequence[Device]) -> None:
        """Renew the handles after a device was lost."""
        ...


class GPUs:
    """Readings of one cadence of all GPUs.

    A reading that a GPU does not offer is left out from then on. A GPU that does not answer is asked again after 1,
    2, 4 … 60 s. If the readings take longer than half of their cadence, it is doubled.
    """

    def __init__(
        self,
        driver: Driver,
        devices: Sequence[Device],
        readings: Sequence[Reading],
        machine: Machine,
        interval_s: float,
    ) -> None:
        self.every_s = readings[0].every_s
        self._driver = driver
        self._devices = devices
        self._readings = readings
        self._machine = machine
        self._interval_s = interval_s

    def rows(self) -> Iterator[Row]:
        """Rows of each GPU."""
        began_s = self._machine.clock()
        for device in self._devices:
            if self._answers(device):
                yield from self._rows_of(device)
        cadence_s = max(self.every_s, self._interval_s)
        if self._machine.clock() - began_s > cadence_s / 2:
            self.every_s = 2 * cadence_s
            self._machine.facts["gpu_interval_ms"] = round(1000 * self.every_s)

    def _rows_of(self, device: Device) -> Iterator[Row]:
        for reading in self._readings:
            if device.kind not in reading.kinds or reading.name in device.refused:
                continue
            try:
                values = list(reading.read(device))
            except Exception as error:  # noqa: BLE001 - each maker's library raises its own
                self._machine.left_out.add(
                    f"{device.name} {reading.name}", str(error) or type(error).__name__
                )
                if not self._driver.is_final(error):
                    device.retry_at_s = self._machine.clock() + device.retry_s
                    device.retry_s = min(_LAST_RETRY_S, 2 * device.retry_s)
                    return
                device.refused.add(reading.name)
            else:
                device.retry_at_s, device.retry_s = 0.0, _FIRST_RETRY_S
                for dimension, value in values:
                    yield Row("gpu", device.name, dimension, value)

    def _answers(self, device: Device) -> bool:
        """True unless the device is lost; one whose time has come is asked after a new start of the driver."""
        if not device.retry_at_s:
            return True
        if self._machine.clock() < device.retry_at_s:
            return False
        device.retry_at_s = 0.0
        try:
            self._driver.reconnect(self._devices)
        except Exception as error:  # noqa: BLE001 - as above
            self._machine.left_out.add(f"{device.name} driver", str(error) or type(error).__name__)
        return True


def by_cadence(driver: Driver, devices: Sequence[Device], machine: Machine, interval_s: float) -> list[GPUs]:
    """A sensor for each cadence of the driver's readings."""
    groups: defaultdict[float, list[Reading]] = defaultdict(list)
    for reading in driver.readings:
        groups[reading.every_s].append(reading)
    return (
        [GPUs(driver, devices, readings, machine, interval_s) for readings in groups.values()]
        if devices
        else []
    )


def visible(setting: str, environment: Mapping[str, str], variables: Sequence[str]) -> str:
    """The GPUs to sample as a list of indices and UUIDs, ``all``, or ``none``.

    For ``auto``: what the first of the `variables` that is set names, ``all`` if none is.
    """
    if setting != "auto":
        return setting
    names = next((environment[variable] for variable in variables if variable in environment), "all")
    return names.strip() or "none"


def select(names: str, devices: Sequence[Device], *, strict: bool) -> list[Device]:
    """Devices that `names` lists; a GPU that is divided with its instances, an instance with its GPU.

    Without `strict`, an unknown name ends the list, as for CUDA; else it raises SettingError.
    """
    if names in {"all", "none"}:
        return list(devices) if names == "all" else []
    chosen: list[Device] = []
    for name in (part.strip() for part in names.split(",")):
        found = [device for device in devices if _has_name(device, name)]
        if not found and strict:
            indices = sorted({device.index for device in devices})
            has = f"GPUs {indices[0]} to {indices[-1]}" if indices else "no GPU that can be sampled"
            raise SettingError(f"--gpus {name}: this machine has {has}.")
        if not found:
            break
        chosen += found
    parents = [device.parent for device in chosen if device.parent]
    return [device for device in devices if device in chosen or device in parents]


def _has_name(device: Device, name: str) -> bool:
    if name.isdecimal():
        return device.index == int(name)
    # CUDA takes the beginning of a UUID.
    own = name.startswith(("GPU-", "MIG-")) and device.uuid.startswith(name)
    return own or (device.parent is not None and _has_name(device.parent, name))
