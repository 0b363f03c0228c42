"""Prices and machines from the user's file: TOML, or a CSV in the columns of SkyPilot's catalog.

There is no built-in list: a price is that of a place, a day, and a contract, and a stale one is worse than none.
"""

from __future__ import annotations

import csv
import io
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from jobreport.errors import UsageError
from jobreport.user_files import read, read_toml
from jobrules.text import escape_name

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 50 << 20
MAX_MACHINES = 200_000
#: What ``--redact`` calls a list.
ANY_PRICES = "a list of prices"
#: Some list machines of one provider with a prefix.
_PREFIX = "ml."


#: Of a price, cores, or GiB; products and ratios of others may overflow.
Amount = Annotated[float, Meta(ge=1e-9, lt=1e15)]


class Machine(Struct, frozen=True, kw_only=True):
    """A machine that can be rented; None for what the list does not say."""

    type: str
    region: str = ""
    per_hour: Amount
    spot_per_hour: Amount | None = None
    gpus: Annotated[int, Meta(ge=0, lt=10**15)] | None = None
    gpu_model: str = ""
    gpu_memory_gib: Amount | None = None
    cores: Amount | None = None
    memory_gib: Amount | None = None


class Prices(Struct, frozen=True, kw_only=True):
    """A list of machines."""

    currency: str
    source: str
    as_of: str
    machines: tuple[Machine, ...]

    def machine(self, kind: str, region: str = "", *, spot: bool = False) -> Machine | None:
        """The machine of a type; None if it is not listed.

        Raises ``UsageError`` if it has prices in several regions, or several in a region; of spot machines with ``spot``.
        """
        for prefix in ("", _PREFIX):
            named = [
                one for one in self.machines if one.type.removeprefix(prefix) == kind.removeprefix(prefix)
            ]
            found = [one for one in named if region and one.region == region]
            found = found or [one for one in named if not region or not one.region]
            if len({one.region for one in found}) > 1:
                regions = ", ".join(sorted(escape_name(one.region) for one in found)[:5])
                raise UsageError(
                    f"{escape_name(kind)} has prices in several regions: {regions}. "
                    "Choose one with --set region=REGION, or --set LABEL.region=REGION of compare-reports."
                )
            if len({one.spot_per_hour if spot else one.per_hour for one in found}) > 1:
                raise UsageError(f"{escape_name(kind)} is listed with several prices.")
            if found:
                return found[0]
        return None


class Pricing(Struct, frozen=True, kw_only=True):
    """What the user said of the price of a job."""

    prices: Prices | None = None
    #: A key of ``cost.BILLING``.
    billing: str = "1s"
    #: As of ``--set``.
    facts: dict[str, str | float] = {}
    #: Options of a command line that give the same.
    options: tuple[str, ...] = ()


def read_prices(path: Path, date: str | None = None) -> Prices:
    """The list in a file. Raises ``UsageError`` if it is not one, with what is wrong."""
    try:
        data = read(path, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text.") from error
    if path.suffix == ".csv":
        written = f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d} (date of the file)"
        found = _from_csv(path, text, date or written)
    else:
        found = _from_toml(path, text)
    if len(found.machines) > MAX_MACHINES:
        raise UsageError(f"{path} lists more than {MAX_MACHINES:,} machines.")
    return found


def _from_toml(path: Path, text: str) -> Prices:
    try:
        found = read_toml(text)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    for key in ("currency", "source", "as_of"):
        if not found.get(key):
            raise UsageError(f"{path} lacks {key}, which is printed with each price.")
    rows = found.get("machine", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{path}: machines are tables [[machine]].")
    return Prices(
        currency=str(found["currency"]),
        source=str(found["source"]),
        as_of=str(found["as_of"]),
        machines=tuple(_machine(path, row) for row in rows),
    )


def _machine(path: Path, row: dict[str, Any]) -> Machine:
    """Raises ``UsageError`` that names the machine and the key."""
    kind = row.get("type")
    if not isinstance(kind, str) or not kind:
        raise UsageError(f"{path}: a machine lacks its type.")
    name = escape_name(kind)
    if unknown := sorted(row.keys() - set(Machine.__struct_fields__)):
        raise UsageError(f"{path}: unknown key {escape_name(unknown[0])} of {name}.")
    if "per_hour" not in row:
        raise UsageError(f"{path}: {name} lacks per_hour.")
    try:
        return msgspec.convert(row, Machine)
    except msgspec.ValidationError as error:
        key = str(error).rpartition("$.")[2].rstrip("`")
        what = {"gpus": "number of GPUs", "region": "text", "gpu_model": "text"}
        raise UsageError(
            f"{path}: {key} of {name} is no {what.get(key, 'number from 1e-9 to 1e15')}."
        ) from error


def _from_csv(path: Path, text: str, as_of: str) -> Prices:
    rows = csv.DictReader(io.StringIO(text))
    missing = {"InstanceType", "Price"} - set(rows.fieldnames or ())
    if missing:
        raise UsageError(f"{path} lacks the columns {', '.join(sorted(missing))}.")
    machines = []
    try:
        for row in rows:
            if row["InstanceType"] and row["Price"]:  # some are offered as spot machines only
                machines.append(_of_row(path, row))
            if len(machines) > MAX_MACHINES:
                break
    except csv.Error as error:
        raise UsageError(f"{path}: {error}") from error
    return Prices(currency="USD", source=path.name, as_of=as_of, machines=tuple(machines))


def _of_row(path: Path, row: dict[str, str]) -> Machine:
    def number(key: str) -> float | None:
        try:
            value = float(row.get(key) or "nan")
        except ValueError as error:
            kind = escape_name(row["InstanceType"])
            raise UsageError(f"{path}: {key} of {kind} is no number.") from error
        return value if math.isfinite(value) else None

    columns = {
        "per_hour": number("Price"),
        "spot_per_hour": number("SpotPrice"),
        "cores": number("vCPUs"),
        "memory_gib": number("MemoryGiB"),
    }
    known = {key: value for key, value in columns.items() if value is not None}
    gpus = number("AcceleratorCount")
    named = {
        "type": row["InstanceType"],
        "region": row.get("Region") or "",
        "gpu_model": row.get("AcceleratorName") or "",
    }
    return _machine(path, named | known | ({"gpus": int(gpus)} if gpus is not None else {"gpus": 0}))
