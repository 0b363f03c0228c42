"""Traces of PyTorch's profiler that others published, against numbers that a slow script of plain lists computed."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jobreport.readers.base import Found, SourceFile
from jobreport.readers.kineto.reader import Kineto
from jobreport.readers.registry import read_job
from jobrules.model.captures import Capture, DeviceCapture
from tests.paths import CORPUS, needs_corpus

pytestmark = needs_corpus

FOLDER = CORPUS / "kineto"
EXPECTED: dict[str, Any] = (
    json.loads((FOLDER / "expected.json").read_text()) if (FOLDER / "expected.json").exists() else {}
)
#: Expected in microseconds, and our field.
PARTS = {
    "lead_in_us": "lead_in_ns",
    "window_us": "window_ns",
    "busy_us": "busy_ns",
    "compute_us": "compute_ns",
    "comm_us": "communication_ns",
    "copy_us": "copies_ns",
    "exposed_comm_us": "exposed_communication_ns",
    "exposed_copy_us": "exposed_copies_ns",
    "idle_us": "idle_ns",
    "kernel_busy_us": "kernel_busy_ns",
    "kernel_sum_us": "kernel_total_ns",
    "compute_sum_us": "compute_total_ns",
}
STEPS = "step_rows(n,host_us,window_us,compute,xcomm,xcopy,idle,launched)"
#: Characters of a name that are kept there, of operators and of kernels.
OPERATOR, KERNEL = 50, 60


def ns(us: float) -> int:
    return round(Fraction(str(us)) * 1000)


@cache
def read(name: str) -> Found:
    path = FOLDER / name
    file = SourceFile(name=name, place=str(path), size=path.stat().st_size)
    assert Kineto().matches_content(file)
    return Kineto().read([file])


def of_host(found: Capture, expected: dict[str, Any]) -> dict[str, Any]:
    count = len(expected["top_ops_self"])
    return {
        "world": found.world_size,
        "steps": found.steps,
        "steps_elsewhere": found.steps_elsewhere,
        "n_device_events": sum(device.events for device in found.devices),
        "loader": (found.loader_calls, found.loader_ns),
        "ops_n": found.operator_calls,
        "top_ops_self": [[one.name[:OPERATOR], one.calls, one.self_ns] for one in found.operators[:count]],
        "sync_calls": dict(found.blocking_calls),
        "devices": sorted(str(device.device) for device in found.devices),
    }


def device_operators(found: Capture, count: int) -> list[list[Any]]:
    rows = [(one.name, one.device_self_ns) for one in found.operators if one.device_self_ns]
    rows += [("(no operator)", found.no_operator_ns)] * bool(found.no_operator_ns)
    return [[name[:OPERATOR], own] for name, own in sorted(rows, key=lambda one: -one[1])[:count]]


def of_device(device: DeviceCapture, steps: Capture, kernels: int) -> dict[str, Any]:
    launches = device.launches
    assert launches is not None
    percents = (device.overlap_percent, device.occupancy_percent, device.sm_efficiency_percent)
    return {
        **{key: getattr(device, field) for key, field in PARTS.items()},
        "idle_cause_us": {cause: spent for cause, spent in device.idle_by_cause_ns.items() if spent},
        "percents": [None if one is None else round(one, 4) for one in percents],
        "launch": [
            launches.linked,
            launches.shorter_than_call,
            launches.below_10_us,
            launches.kernel_ns[0],
            launches.call_ns[0],
            launches.delay_ns[0],
        ],
        "kernel_names": device.kernel_names,
        "top_kernels": [[one.name[:KERNEL], one.calls, one.total_ns] for one in device.kernels[:kernels]],
        STEPS: [
            [
                step.number,
                host.host_ns,
                step.window_ns,
                step.compute_ns,
                step.exposed_communication_ns,
                step.exposed_copies_ns,
                step.idle_ns,
                step.events,
            ]
            for step, host in zip(device.steps, steps.step_times, strict=True)
        ],
    }


def expected_of_device(known: dict[str, Any]) -> dict[str, Any]:
    number, short, below, *medians = (
        known["launch"][key]
        for key in (
            "n",
            "short(kernel<launch)",
            "under10us",
            "median_kernel_us",
            "median_launch_us",
            "median_delay_us",
        )
    )
    return {
        **{key: ns(known[key]) for key in PARTS},
        "idle_cause_us": {cause: ns(spent) for cause, spent in known["idle_cause_us"].items()},
        "percents": [known.get(key) for key in ("overlap_pct", "occupancy_pct", "sm_eff_pct")],
        "launch": [number, short, below, *map(ns, medians)],
        "kernel_names": known["kernel_names"],
        "top_kernels": [[name[:KERNEL], calls, ns(total)] for name, calls, total in known["top_kernels"]],
        STEPS: [[row[0], *map(ns, row[1:-1]), row[-1]] for row in known.get(STEPS, ())],
    }


@pytest.mark.parametrize("name", [name for name in EXPECTED if "memory_timeline" not in name])
def test_a_trace_has_the_numbers_of_the_slow_script(name: str) -> None:
    expected = EXPECTED[name]

    (found,) = read(name).captures

    assert of_host(found, expected) == {
        **{
            key: expected[key]
            for key in ("world", "steps", "steps_elsewhere", "n_device_events", "ops_n", "sync_calls")
        },
        "loader": (expected["loader_n"], ns(expected["loader_us"])),
        "top_ops_self": [[one, calls, ns(own)] for one, calls, own in expected["top_ops_self"]],
        "devices": sorted(expected["devices"]),
    }
    by_device = expected["top_ops_device_self"]
    assert device_operators(found, len(by_device)) == [[one, ns(own)] for one, own in by_device]
    for device in found.devices:
        known = expected["devices"][str(device.device)]
        own = of_device(device, found, len(known["top_kernels"]))
        assert own == expected_of_device(known)
    # The script reads no file names; this one is named for its rank.
    assert found.rank == (0 if "mtia" in name else expected["rank"])


def test_memory_above_the_start_of_the_recording() -> None:
    name = "resnet50-workers0-b/worker0.1623143089861.pt.trace.json.gz"

    (found,) = read(name).captures

    assert [(one.device, one.allocated_peak) for one in found.memory] == [(0, 2_791_636_480)]


def test_what_is_no_trace_is_not_read() -> None:
    path = FOLDER / "hta-memory_analysis" / "memory_timeline.raw.gz"

    assert not Kineto().matches_content(SourceFile(name=path.name, place=str(path)))


@pytest.mark.slow
def test_the_folder_of_all_traces_is_a_job() -> None:
    job, quality = read_job(Path(FOLDER))

    traces = [path for path in EXPECTED if "memory_timeline" not in path]
    assert {one.file for one in job.captures} >= set(traces)
    assert quality.sources[0].files == len(job.captures)
    assert {one.copy_of for one in job.captures} > {""}
