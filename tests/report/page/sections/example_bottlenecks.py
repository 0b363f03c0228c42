"""Bottlenecks for the reports of ``examples``."""

from __future__ import annotations

from typing import Any

from jobrules.analyses.bottlenecks import (
    BottleneckRun,
    Bottlenecks,
    BottlenecksOverTime,
    CoreShare,
    NodeBottlenecks,
    NodeCores,
    Ran,
    Split,
    StepSpan,
    stretch_of,
)
from jobrules.analyses.time_lines import Columns
from tests.copies import replace

START_US = 1_763_107_200_000_000


def course(node: str, share: tuple[float | None, ...], limit: float = 50.0) -> BottlenecksOverTime:
    """Of an hour, with bottlenecks from its first second to its last minute."""
    return BottlenecksOverTime.of(
        node,
        share,
        limit=limit,
        grid=Columns(start_us=START_US, width_us=3_600_000_000 // len(share), count=len(share)),
        span_us=(START_US + 1_000_000, START_US + 3_540_000_000),
    )


def node(name: str, **facts: Any) -> NodeBottlenecks:
    """A node that waits for its CPU in 2,000 of 3,600 snapshots."""
    known: dict[str, Any] = {
        "reason": "",
        "snapshots": 3600,
        "low": 2400,
        "no_core_sample": 1,
        "bottlenecks": 2000,
        "in_loop": True,
        "busy": 900,
        "partly": 400,
        "idle_unsaturated": 200,
        "idle_no_core_sample": 0,
        "bottleneck": 1500,
    }
    return NodeBottlenecks.of(node=name, **(known | facts))


def stalls(name: str, nodes: tuple[str, ...] = ("algo-1",), columns: int = 600) -> tuple[Bottlenecks, ...]:
    """CPU bottlenecks that are too many, and not one of I/O; ``name`` is that of whatever has one."""
    share = [None if 0.5 < i / columns < 0.6 else 75.0 if i > columns / 4 else 0.0 for i in range(columns)]
    n = len(nodes)
    cpu = Bottlenecks(
        key="cpu",
        gpu_below=10.0,
        core_above=90.0,
        limit=50.0,
        snapshots=3600 * n,
        low=2400 * n,
        no_core_sample=n,
        bottlenecks=2000 * n,
        split=Split.of(snapshots=3600 * n, low=2400 * n, no_core_sample=n, bottlenecks=2000 * n),
        nodes=tuple(map(node, nodes)),
        more_nodes=0,
        without_cores=(),
        courses=tuple(course(node, tuple(share)) for node in nodes[:4]),
        stretch=stretch_of(columns),
        runs=(
            BottleneckRun(
                node=nodes[0],
                start_us=START_US + 1_000_000,
                end_us=START_US + 61_500_000,
                snapshots=121,
                most_cores=2,
                place="in",
                steps=(StepSpan(mode=name, first=240, last=243),),
            ),
        ),
        cores=tuple(
            NodeCores(
                node=node,
                bottlenecks=2000,
                cores=(
                    CoreShare(core=name, percent=80.0),
                    CoreShare(core="cpu1", percent=80.0),
                    CoreShare(core="cpu2", percent=12.5),
                ),
                ever=3,
                count=8,
            )
            for node in nodes[:4]
        ),
        more_cores=0,
        ran=(Ran.of(name, 80.0, 20.0), Ran.of("Backward", 5.0, 45.5)),
        more_ran=1,
    )
    io = replace(
        cpu,
        key="io",
        core_above=50.0,
        no_core_sample=0,
        bottlenecks=0,
        split=Split.of(snapshots=3600 * n, low=2400 * n, no_core_sample=0, bottlenecks=0),
        nodes=tuple(
            node(name, no_core_sample=0, bottlenecks=0, idle_unsaturated=1700, bottleneck=0) for name in nodes
        ),
        courses=(),
        runs=(),
        cores=(),
        ran=(),
        more_ran=0,
    )
    return cpu, io
