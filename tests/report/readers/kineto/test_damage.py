"""Traces with damage of any kind: no exception, and parts that still add up."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from jobreport.readers.base import SourceFile
from jobreport.readers.kineto.reader import Kineto
from jobrules.captures.across import joined
from tests.kineto import Recording, adds_up
from tests.once import slow_but

MUTATIONS = 60
TOKENS = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b"null", b"NaN", b"-1", b"1e400", b"9" * 400, b"true", b'"\xff"'),
    *(
        b"\\",
        b"\n",
        b"0",
        b'{"a":[{}]}',
        b'"X"',
        b'"kernel"',
        b"99999999999999999999",
        b"1e15",
        b"-1e15",
        b'""',
    ),
]
_VALUE = re.compile(rb'": ?(-?[\d.]+|"[^"]*"|null)')


def whole() -> bytes:
    trace = Recording(0, world=2)
    trace.top |= {
        "deviceProperties": [{"id": 0, "name": "A100", "totalGlobalMem": 10**10, "computeMajor": 8}],
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    }
    known: dict[str, Any] = {
        "Collective name": "allreduce",
        "In msg nelems": 100,
        "Group size": 2,
        "dtype": "Float",
    }
    for number in range(12):
        at = 1000 + 150 * number
        trace.step(number, at, at + 150)
        trace.operator("aten::mm", at, at + 60)
        trace.operator("aten::copy_", at + 10, at + 30)
        trace.kernel("gemm", at + 70, at + 140, launch=(at + 15, at + 20))
        trace.kernel(
            "ncclDevKernel_AllReduce", at + 80, at + 149, 20, (at + 40, at + 45), **known, Seq=number
        )
        trace.memory(at, 100, **{"Total Allocated": 100 * number, "Total Reserved": 2000})
    trace.call("cudaMalloc", 1500, 1520)
    trace.call("cudaStreamSynchronize", 1700, 1790)
    trace.mark("enumerate(DataLoader)#_Iter.__next__", 1100, 1200)
    trace.add("overhead", "Buffer Flush", 1300, 1310)
    return trace.text()


def damaged(text: bytes, chance: Random) -> bytes:
    found = bytearray(text)
    for _ in range(chance.choice((1, 2, 5, 20))):
        at, kind = chance.randrange(len(found) + 1), chance.random()
        if kind < 0.2:
            found[at : at + 1] = bytes([chance.randrange(256)])
        elif kind < 0.4:
            found[at : at + chance.randrange(8)] = chance.choice(TOKENS)
        elif kind < 0.5:
            del found[at : at + chance.randrange(2000)]
        elif kind < 0.6:
            found[at:at] = found[: chance.randrange(2000)]
        elif values := list(_VALUE.finditer(bytes(found[at : at + 3000]))):
            value = chance.choice(values)
            found[at + value.start(1) : at + value.end(1)] = chance.choice(TOKENS)
    return bytes(found)


@pytest.mark.parametrize("seed", slow_but(0, range(5)))
def test_damage_stops_nothing(tmp_path: Path, seed: int) -> None:
    chance, text = Random(seed), whole()
    path = tmp_path / "a.json"
    for _ in range(MUTATIONS):
        path.write_bytes(damaged(text, chance))
        found = Kineto().read([SourceFile(name="a.json", place=str(path))])

        captures, ranks = joined(found.captures, found.communication)

        assert all(adds_up(device) for one in captures for device in one.devices)
        msgspec.json.encode((captures, ranks))
