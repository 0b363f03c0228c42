"""The steps of generated jobs, and what the README says of those of the committed sample."""

from __future__ import annotations

from pathlib import Path

import generate
import numpy as np
import pytest
from generator.events import trace_files
from generator.job import JobSpec
from generator.steps import Steps

from jobreport.readers.registry import read_job
from jobrules import CPUBottleneck

# The generator is seldom changed, and the golden reports are made of what it wrote.
pytestmark = pytest.mark.slow

SAMPLE = Path(__file__).resolve().parents[2] / "sample_data" / "cpu-bottleneck-2gpu"


def spec_of(*options: str) -> JobSpec:
    parser = generate.build_parser()
    return generate.spec_from(parser, parser.parse_args(options))


def test_steps_that_could_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="may overlap"):
        Steps(gap_s=0.03, spread_s=0.02)


def test_a_job_that_ends_before_its_first_step_has_no_trace_files() -> None:
    assert dict(trace_files(spec_of("--duration=70"))) == {}
    assert len(dict(trace_files(spec_of("--duration=90", "--gpus=1")))) == 1


def test_the_committed_sample_is_as_the_readme_says() -> None:
    text = " ".join((SAMPLE.parent / "README.md").read_text(encoding="utf-8").split())
    job, _ = read_job(SAMPLE, strict=True)
    bottlenecks = CPUBottleneck().check(job)
    steps, events = job.steps, job.events
    train, evaluation = (
        np.flatnonzero((steps.rank == "0") & (steps.mode == mode)) for mode in ("TRAIN", "EVAL")
    )
    first = train[0]
    assert job.samples_us
    lanes = np.array([f"{lane.rank} {lane.event_type}" for lane in events.lanes])[events.lane]

    assert f"begins {(steps.start_us[first] - job.samples_us[0]) / 1e6:.0f} s after the start" in text
    assert (
        f"in {bottlenecks.violations / bottlenecks.datapoints:.0%} of all snapshots".replace("%", " %")
        in text
    )
    assert f"{len(train)} training steps" in text
    assert f"{len(evaluation)} validation steps" in text
    assert f"the first, which takes {(steps.end_us[first] - steps.start_us[first]) / 1e6:.1f} s" in text
    assert f"(about {events.duration_us[lanes == '0 DataLoaderIter'].mean() / 1e6:.1f} s)" in text
    assert {*events.step[lanes == "0 cpu_functions"].tolist()} == {5}
    assert (SAMPLE / "framework" / "training_job_end.ts").read_bytes() == b""
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*.*") if path.is_file()) < 700_000
