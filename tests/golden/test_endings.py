"""The first lines on a job that ended badly, as the terminal shows them: what ended it, where, and what was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobreport.build import build_report
from jobreport.document import Report
from jobreport.ended import ENDED
from jobreport.output import summary
from jobreport.recordings import Raised, Recording
from jobreport.redaction.pseudonyms import Pseudonyms
from jobreport.remarks import Quality, SourceQuality
from jobrules import RULES
from jobrules.model import Job, Metric
from jobrules.rule import run_rules
from tests.copies import replace
from tests.golden.accepted import hold
from tests.jobs import START_US, joined_steps, make_events, make_job, make_panel, make_steps
from tests.report.page.sections.test_recordings import recording, run

GIB = 1 << 30
STEPS, STEP_S = 300, 2.0
END_US = START_US + round(STEPS * STEP_S * 10**6)
FILES = Path(__file__).parent / "endings"


def job(
    *,
    saved_s: float | None = 400.0,
    failed: bool = False,
    kills: int = 0,
    memory: float = 20.0,
    parts: int = 1,
) -> Job:
    """Two ranks of 300 steps of 2 s or parts of it, with a checkpoint after 400 s, and memory in use in GiB."""
    saves = [("Checkpoint", "Checkpoint", saved_s - 1, saved_s)] if saved_s else []
    saves += [("Checkpoint", "failed", 599.0, 600.0)] if failed else []
    n = round(STEPS * STEP_S) + 1
    spans = [(STEP_S / parts * i, STEP_S / parts * (i + 1)) for i in range(STEPS * parts)]
    killed = np.zeros(n)
    killed[-1] = kills
    panels = {
        Metric.HOST_MEMORY_USED: np.linspace(20.0, memory, n) * GIB,
        Metric.HOST_MEMORY_TOTAL: np.full(n, 32.0 * GIB),
        Metric.OOM_KILLS: killed,
    }
    return make_job(
        gpu=np.full((n, 2), 95.0),
        interval_s=1.0,
        steps=joined_steps(*(make_steps(spans, rank=rank) for rank in "01")),
        events=make_events(saves, rank="0") if saves else None,
        extra=[make_panel(metric, values, interval_s=1.0) for metric, values in panels.items()],
    )


def raised(**facts: Any) -> Raised:
    known: dict[str, Any] = dict.fromkeys(("asked", "used", "total", "exit_code"))
    known |= {"rank": "0", "type": "ValueError", "message": "bad sample 17", "memory": "", "step": 300}
    known |= {"file": "src/train.py", "line": 41, "function": "collate", "at_us": END_US + 10**6}
    return Raised(**known | facts)


def ended(
    *exceptions: Raised,
    ended_by: str = "exit",
    exit_status: int | None = 1,
    end_us: int = END_US + 2 * 10**6,
    **more: Any,
) -> tuple[Recording, ...]:
    how = more | {
        "ended_by": ended_by,
        "exit_status": exit_status,
        "start_us": START_US,
        "end_us": end_us,
    }
    return (recording("algo-1", run(0, **how), exceptions=exceptions),)


GPU = raised(
    type="torch.OutOfMemoryError",
    message="CUDA out of memory. Tried to allocate 20.00 GiB.",
    memory="gpu",
    asked=20 * GIB,
    used=74 * GIB,
    total=80 * GIB,
)
HOST = raised(type="MemoryError", message="", memory="host")
CHILD = raised(
    type="torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
    file="",
    line=0,
    message="",
    rank="1",
)
VICTIM = raised(type="RuntimeError", message="Connection closed by peer")
KILLED: dict[str, Any] = {"ended_by": "signal:9", "exit_status": 137}
CASES: dict[str, tuple[Job, tuple[Recording, ...]]] = {
    "an exception": (job(), ended(raised())),
    "an exception, no checkpoint": (job(saved_s=None), ended(raised())),
    "an exception in a checkpoint": (
        job(failed=True),
        ended(raised(type="OSError", message="No space left on device", function="save")),
    ),
    "an exception of the first of two ranks": (
        job(),
        ended(raised(rank="1", message="first"), raised(at_us=END_US + 2 * 10**6), replace(CHILD, exit_code=1)),
    ),
    "an exception while the process crashes": (job(), ended(raised(), ended_by="signal:6", exit_status=134)),
    "an exception that was handled long before": (job(), ended(raised(at_us=END_US - 10**8))),
    "GPU memory": (job(), ended(GPU)),
    "memory": (job(memory=31.5), ended(replace(HOST, asked=8 * GIB))),
    "memory kill": (job(kills=1, memory=31.9), ended(**KILLED)),
    "memory kill in a shell": (job(kills=1, memory=31.9), ended(ended_by="exit", exit_status=137)),
    "memory kill of a rank, seen by another": (job(kills=1, memory=31.9), ended(VICTIM, replace(CHILD, exit_code=-9))),
    "memory kill of a loader process": (
        job(kills=1, memory=31.9),
        ended(replace(VICTIM, message="DataLoader worker (pid 17) is killed by signal: Killed.")),
    ),
    "killed": (job(), ended(**KILLED)),
    "killed in short steps": (job(parts=10), ended(**KILLED, end_us=END_US + 10**6)),
    "asked in short steps": (job(parts=10), ended(ended_by="signal:15", exit_status=143, end_us=END_US + 10**6)),
    "an exception in short steps": (job(parts=10), ended(raised(step=3000))),
    "killed with full memory": (job(memory=31.9), ended(**KILLED)),
    "a rank was killed": (job(), ended(VICTIM, replace(CHILD, exit_code=-11))),
    "a rank was killed for good": (job(), ended(VICTIM, replace(CHILD, exit_code=-9))),
    "a rank ended": (job(), ended(replace(CHILD, exit_code=3))),
    "asked": (job(), ended(ended_by="signal:15", exit_status=143)),
    "asked, through a launcher": (job(), ended(replace(CHILD, exit_code=-15, rank=""))),
    "stopped by a rule": (job(), ended(raised(), ended_by="signal:15", exit_status=143, stopped_by="UnusedGPU")),
    "stopped by a rule, well": (job(saved_s=599.9), ended(exit_status=0, stopped_by="UnusedGPU")),
    "interrupted": (job(), ended(raised(type="KeyboardInterrupt", message=""))),
    "an exit status": (job(), ended(exit_status=3)),
    "well, but memory grows": (job(memory=27.0), ended(exit_status=0)),
    "well": (job(), ended(exit_status=0)),
}  # fmt: skip


def report_of(found: Job, recordings: tuple[Recording, ...], *, redact: bool = False) -> Report:
    source = SourceQuality(source="facts of record-job", files=1, rows=1, recordings=recordings)
    if redact:
        source = Pseudonyms.of(
            [("file", "src/train.py"), ("function", "collate"), ("node", "algo-1")]
        ).source(source)
    rules = [rule() for rule in RULES]
    return build_report(
        found, Quality(sources=(source,)), rules, run_rules(rules, found), "make-report", strict=True
    )


def test_the_first_lines_say_what_ended_the_job(request: pytest.FixtureRequest) -> None:
    reports = {name: report_of(*case) for name, case in CASES.items()}
    reports["an exception, redacted"] = report_of(*CASES["an exception"], redact=True)
    texts = [f"## {name}\n" + "\n".join(summary.terminal(one)[:3]) + "\n" for name, one in reports.items()]
    hold({FILES / "first_lines.txt": "\n".join(texts)}, request, FILES.glob("*.txt"))


@pytest.mark.parametrize("case", CASES)
def test_a_job_that_ended_badly_is_never_cleared(case: str) -> None:
    """What somebody asked for is no fault of the job."""
    report = report_of(*CASES[case])
    first = summary.terminal(report)[0]
    assert ("Nothing to fix" in first) == (
        case
        in {
            "asked",
            "asked in short steps",
            "asked, through a launcher",
            "interrupted",
            "stopped by a rule",
            "stopped by a rule, well",
            "well",
            "well, but memory grows",
        }
    )
    assert [one.key for one in report.verdict.findings].count(ENDED) == bool(
        report.ended and report.ended.how not in ("exit", "asked", "rule")
    )
