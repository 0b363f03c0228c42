"""What Method says about recordings: restarts, kills, dropped rows, and several nodes in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from jobreport.document import Report
from jobreport.output import summary
from jobreport.page import sections
from jobreport.page.sections.parts.recordings import interruptions, pause_reason
from jobreport.recordings import LessWritten, RecordedRun, Recording, SharedGPU
from jobreport.remarks import Quality, SourceQuality
from jobreport.sentences import bad_end
from jobrules.measures.sample_weights import Gap
from jobrules.text import clock
from tests.copies import replace
from tests.report.page.sections import examples
from tests.report.page.sections.html import Page

MINUTE_US = 60 * 10**6


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
    known |= dict.fromkeys(("gpus", "shared_gpus", "left_out", "less_written", "labels"), ())
    known |= {
        "node": node,
        "runs": runs or (run(0),),
        "recorder": "jobrecord 1",
        "gpu_reason": "",
        "no_steps": "",
        "command": "",
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


def text_of(report: Report, section: str = "quality") -> str:
    return " ".join(Page.of(getattr(sections, section)(report).html).text.replace("\xa0", " ").split())


def test_restarts_are_listed_and_their_losses_added_up() -> None:
    full = {"dropped_reason": "No space left on device", "dropped_since_us": run(0).start_us + 10**6}
    text = text_of(
        report_of(
            recording(
                "n1",
                run(
                    0,
                    ended_by="signal:9",
                    exit_status=137,
                    dropped_samples=1000,
                    **full,
                    dropped_until_us=run(1).start_us,
                ),
                run(1, ended_by="", exit_status=None),
                run(2, ended_by="parent gone", exit_status=None, end_us=None),
                run(3, ended_by="signal:15", exit_status=143, sampler_ended_by="signal:9"),
                run(4, dropped_samples=234, dropped_events=1, **full, dropped_until_us=run(5).start_us),
            )
        )
    )

    assert "killed by signal 9 1,000 0" in text
    assert "killed with record-job 0 0" in text
    assert "– record-job was killed 0 0" in text
    assert "The sampler was killed by signal 9 in the run from" in text
    assert "exit status 0 234 1" in text
    assert "1,234 samples and 1 event were dropped in 2 runs from" in text
    assert text.count("No space left on device") == 1


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"ended_by": "parent gone"}, "Warning The recorder was killed, so samples may end before the job."),
        (
            {"sampler_ended_by": "signal:9"},
            "The sampler was killed by signal 9, so samples end before the job.",
        ),
        ({"dropped_events": 1}, "1 event was dropped: not recorded."),
        (
            {"dropped_samples": 2, "dropped_since_us": run(0).start_us, "dropped_reason": "x"},
            "2 samples were dropped from",
        ),
    ],
)
def test_trouble_is_a_warning(facts: dict[str, Any], words: str) -> None:
    assert words in text_of(report_of(recording("n1", run(0, **facts))))


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


def test_a_good_recording_has_no_warning() -> None:
    text = text_of(report_of(recording("n1")))

    assert "Warning" not in text
    assert "Runs of the job" not in text


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


def test_nodes_with_the_same_facts_share_a_sentence() -> None:
    shared = (SharedGPU(device="gpu0", processes=1),)
    text = text_of(report_of(*(recording(f"n{i}", shared_gpus=shared[: i % 2]) for i in range(6))))

    assert "n1, n3, and n5: processes of others computed on gpu0 (1)" in text


def test_the_head_says_how_a_job_failed() -> None:
    bad = [
        recording("n1"),
        recording("n2", run(0, exit_status=137, ended_by="signal:9")),
        recording("n3", run(0, exit_status=137, ended_by="signal:9")),
    ]

    assert "End killed by signal 9 on n2 and n3" in text_of(report_of(*bad), "head")
    assert "End exit status 3" in text_of(report_of(recording("n1", run(0, exit_status=3))), "head")
    assert "signal" not in text_of(report_of(recording("n1")), "head")


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


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"affinity": 8, "cores": 16, "core_limit": 2.5}, "allows 2.5 of 8 cores"),
        ({"affinity": 4, "cores": 4, "core_limit": 4.0}, ""),
        ({"core_limit": 4.0}, ""),
    ],
)
def test_a_limit_below_the_cores_that_the_job_may_use_is_noted(facts: dict[str, Any], words: str) -> None:
    text = text_of(report_of(recording("n1", **facts)))

    assert ("CPU limit" in text) == bool(words)
    assert words in text


def test_clocks_that_were_set_give_no_impossible_times() -> None:
    """A run that ended before it started, and one that started before the one before it had ended."""
    later, earlier = run(2, end_us=run(1).start_us), run(0, end_us=run(-1).start_us)
    found = report_of(recording("n1", later, earlier, sampler_s=5.0, hook_s=5.0))

    assert interruptions(found) == "The job was started again once."
    text = text_of(found)
    assert "more than 1%" not in text
    assert "none – – 2" in text


def test_what_ranks_wrote_less_is_a_sentence_for_each() -> None:
    at_us = run(0).start_us
    written = ["steps only", "everything, every 10 s", "everything"]
    changes = [LessWritten(rank="0", at_us=at_us + i, written=one) for i, one in enumerate(written)]
    changes += [LessWritten(rank="1", at_us=at_us, written="nothing")] * 6
    text = text_of(report_of(recording("n1", less_written=tuple(changes))))

    times = clock(at_us).replace("\xa0", " ")
    assert (
        f"rank 0 wrote steps only from {times}; everything, every 10 s from {times}; everything from" in text
    )
    assert text.count("nothing from") == 4
    assert "and 2 more changes." in text


def test_many_nodes_with_facts_of_their_own_make_a_bounded_page() -> None:
    found = [recording(f"n{i}", clock_steps=i + 1, labels=()) for i in range(300)]
    page = sections.quality(report_of(*found)).html

    assert page.count("Warning") == 51
    assert "250 more in report.json" in page
    assert "Not shown: 250" in page.replace("\xa0", " ")


def test_a_bad_end_is_the_first_that_a_ticket_says() -> None:
    failed = report_of(recording("n1", run(0, exit_status=1)))
    killed = report_of(recording("n1", run(0, ended_by="signal:15", exit_status=143)))

    assert summary.headline(failed).startswith("The job ended: exit status 1. ")
    assert summary.headline(killed).startswith("The job ended: killed by signal 15. ")
    assert "ended" not in summary.headline(report_of(recording("n1")))
