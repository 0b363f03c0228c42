"""What Method says about recordings: restarts, kills, dropped rows, and several nodes in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from jobreport.document import Report
from jobreport.headline import headline
from jobreport.page import sections
from jobreport.page.sections.parts.recordings import interruptions, pause_reason
from jobreport.recordings import LessWritten, Logged, RecordedRun, Recording, SharedGPU
from jobreport.remarks import Quality, SourceQuality
from jobreport.sentences import bad_end
from jobrules.measures.sample_weights import Gap
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.html import Page

MINUTE_US = 60 * 10**6
START_US = examples.gpu_job().job.start_us


def run(number: int, **facts: Any) -> RecordedRun:
    """The run that starts so many minutes after the job's start and takes a minute."""
    start_us = examples.gpu_job().job.start_us + number * MINUTE_US
    known: dict[str, Any] = {
        "start_us": start_us,
        "end_us": start_us + MINUTE_US,
        "ended_by": "exit",
        "exit_status": 0,
        "sampler_ended_by": "",
        "dropped_samples": 0,
        "dropped_events": 0,
        "dropped_reason": "",
        "dropped_since_us": None,
        "dropped_until_us": None,
    }
    return RecordedRun(**known | facts)


def recording(node: str, *runs: RecordedRun, **facts: Any) -> Recording:
    known: dict[str, Any] = dict.fromkeys(Recording.__struct_fields__)
    zeros = ("late_ticks", "clock_steps", "hooked_processes", "other_threads", "other_lane_events")
    known |= dict.fromkeys(zeros, 0)
    lists = ("gpus", "shared_gpus", "left_out", "less_written", "labels", "parts", "exceptions", "libraries")
    known |= dict.fromkeys((*lists, "versions", "config", "flops_per_step", "logged"), ())
    known |= {
        "node": node,
        "runs": runs or (run(0),),
        "recorder": "jobrecord 1",
        "gpu_reason": "",
        "no_steps": "",
        "command": "",
        "framework": "",
        "commit": "",
        "system": "",
        "cpu_model": "",
        "flops_source": "",
        "precision": "",
    }
    known |= {
        "interval_s": 0.5,
        "container_pressure": False,
        "tick_p50_ms": 1.0,
        "tick_p99_ms": 2.0,
        "sampler_s": 0.1,
    }
    return Recording(**known | facts)


def report_of(*recordings: Recording) -> Report:
    source = SourceQuality(source="facts of record-job", files=1, rows=1, recordings=recordings)
    return replace(examples.gpu_job(), quality=Quality(sources=(source,)))


def of_run(**facts: Any) -> sections.Fragment:
    return sections.quality(report_of(recording("n1", run(0, **facts))))


def of_one(**facts: Any) -> sections.Fragment:
    return sections.quality(report_of(recording("n1", **facts)))


FULL = {"dropped_reason": "No space left on device", "dropped_since_us": START_US + 10**6}
RESTARTED = recording(
    "n1",
    run(
        0,
        ended_by="signal:9",
        exit_status=137,
        dropped_samples=1000,
        **FULL,
        dropped_until_us=START_US + MINUTE_US,
    ),
    run(1, ended_by="", exit_status=None),
    run(2, ended_by="parent gone", exit_status=None, end_us=None),
    run(3, ended_by="signal:15", exit_status=143, sampler_ended_by="signal:9"),
    run(4, dropped_samples=234, dropped_events=1, **FULL, dropped_until_us=START_US + 5 * MINUTE_US),
)
LESS = (
    tuple(
        LessWritten(rank="0", at_us=START_US + i, written=one)
        for i, one in enumerate(("steps only", "everything, every 10 s", "everything"))
    )
    + (LessWritten(rank="1", at_us=START_US, written="nothing"),) * 6
)
SHARED = (SharedGPU(device="gpu0", processes=1),)
BAD = tuple(recording(name, run(0, exit_status=137, ended_by="signal:9")) for name in ("n2", "n3"))
VARIANTS: dict[str, Callable[[], sections.Fragment]] = {
    "good": of_one,
    "restarted": lambda: sections.quality(report_of(RESTARTED)),
    "recorder killed": lambda: of_run(ended_by="parent gone"),
    "sampler killed": lambda: of_run(sampler_ended_by="signal:9"),
    "an event dropped": lambda: of_run(dropped_events=1),
    "samples dropped": lambda: of_run(dropped_samples=2, dropped_since_us=START_US, dropped_reason="x"),
    "three of six nodes share a GPU": lambda: sections.quality(
        report_of(*(recording(f"n{i}", shared_gpus=SHARED[: i % 2]) for i in range(6)))
    ),
    "a limit below the cores": lambda: of_one(affinity=8, cores=16, core_limit=2.5),
    "a limit of all cores": lambda: of_one(affinity=4, cores=4, core_limit=4.0),
    "clocks that were set": lambda: sections.quality(
        report_of(
            recording("n1", run(2, end_us=START_US + 2 * MINUTE_US), run(0, end_us=START_US), hook_s=5.0)
        )
    ),
    "written less": lambda: of_one(less_written=LESS),
    "head, killed on two of three": lambda: sections.head(report_of(recording("n1"), *BAD)),
    "head, failed": lambda: sections.head(report_of(recording("n1", run(0, exit_status=3)))),
    "head, good": lambda: sections.head(report_of(recording("n1"))),
}


def text_of(report: Report, section: str = "quality") -> str:
    return " ".join(Page.of(getattr(sections, section)(report).html).text.replace("\xa0", " ").split())


def test_a_pause_has_the_reason_that_the_recorder_noted() -> None:
    start_us = run(0).start_us
    full = {"dropped_samples": 9, "dropped_reason": "No space left on device"}
    runs = (
        run(
            0,
            ended_by="signal:9",
            exit_status=137,
            **full,
            dropped_since_us=start_us + 10 * 10**6,
            dropped_until_us=start_us + 20 * 10**6,
        ),
        run(5, ended_by=""),
        run(10, sampler_ended_by="signal:9"),
        run(15, ended_by="parent gone", **full, dropped_since_us=start_us + 15 * MINUTE_US),
        run(20),
    )
    report = report_of(recording("n1", *runs))
    reasons = {
        (-2, -1): "",
        (0.1, 0.4): "No space left on device",
        (0.5, 0.9): "",
        (1, 5): "killed by signal 9",
        (6, 10): "killed with record-job",
        (10.5, 15): "the sampler was killed by signal 9",
        (15.5, 20): "No space left on device",
        (20.5, 21): "",
    }
    gaps = {
        minutes: Gap(
            node="n1",
            start_us=int(start_us + minutes[0] * MINUTE_US),
            end_us=int(start_us + minutes[1] * MINUTE_US),
        )
        for minutes in reasons
    }

    assert {
        minutes: pause_reason(report, gap.node, gap.start_us, gap.end_us) for minutes, gap in gaps.items()
    } == reasons
    paused = replace(report, phases=replace(report.phases, gaps=(gaps[1, 5],)))
    assert "4 min killed by signal 9" in text_of(paused)


@pytest.mark.parametrize(
    ("sampler_s", "hook_s", "warnings"),
    [(0.9, 0.9, 0), (0.5, None, 0), (1.3, None, 1), (1.3, 4.0, 2), (0.1, 2.0, 1), (0.1, 2.6, 1)],
)
def test_overhead_above_one_percent_is_a_warning(
    sampler_s: float, hook_s: float | None, warnings: int
) -> None:
    """Of a minute; the hooks' is that of 2 processes. Less than a second is no warning."""
    found = recording("n1", sampler_s=sampler_s, hook_s=hook_s, hooked_processes=2)

    assert text_of(report_of(found)).count("Warning") == warnings


def test_of_several_nodes_the_one_that_failed_first_is_named() -> None:
    """The launcher ends the others by SIGTERM, sometimes before the failed one is gone."""
    end_us = run(1).start_us
    terminated: dict[str, Any] = {"ended_by": "signal:15", "exit_status": 143, "end_us": end_us}
    nodes = {
        "n1": terminated,
        "n2": terminated | {"ended_by": "exit"},
        "n3": {"exit_status": 1, "end_us": end_us + 2},
        "n4": {"exit_status": 7, "end_us": end_us + 1},
        "n5": {"exit_status": 8, "end_us": None},
    }

    def end(*names: str) -> str:
        return bad_end(report_of(*(recording(name, run(0, **nodes[name])) for name in names)))

    assert end(*nodes) == "exit status 7 on n4"
    assert end("n1", "n2", "n3") == "exit status 1 on n3"
    assert end("n1", "n5") == "exit status 8 on n5"
    assert end("n1", "n2") == "killed by signal 15 on n1"


def test_clocks_that_were_set_give_no_impossible_times() -> None:
    """A run that ended before it started, and one that started before the one before it had ended."""
    later, earlier = run(2, end_us=run(1).start_us), run(0, end_us=run(-1).start_us)
    found = report_of(recording("n1", later, earlier, sampler_s=5.0, hook_s=5.0))

    assert interruptions(found) == "The job was started again once."
    text = text_of(found)
    assert "more than 1%" not in text
    assert "none – – 2" in text


def test_many_nodes_with_facts_of_their_own_make_a_bounded_page() -> None:
    found = [recording(f"n{i}", clock_steps=i + 1, labels=()) for i in range(300)]
    page = sections.quality(report_of(*found)).html

    assert page.count("Warning") == 51
    assert set(re.findall(r"Not shown: 250\s(\w+)", page)) == {"sentences", "nodes"}


def test_what_a_script_logged_is_written_out() -> None:
    logged = Logged(mode="TRAIN", name="loss<b>", values=1000, not_finite=2, step=999, value=0.25)

    html = of_one(logged=(logged,)).html

    assert "loss&lt;b&gt;" in html
    assert "1,000\N{NO-BREAK SPACE}values" in html


def test_a_bad_end_is_the_first_that_a_ticket_says() -> None:
    failed = report_of(recording("n1", run(0, exit_status=1)))
    killed = report_of(recording("n1", run(0, ended_by="signal:15", exit_status=143)))

    assert headline(failed).sentence.startswith("The job ended: exit status 1. ")
    assert headline(killed).sentence.startswith("The job ended: killed by signal 15. ")
    assert "ended" not in headline(report_of(recording("n1"))).sentence
