"""What histograms of SageMaker Debugger say about the use of real GPUs, against their samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jobreport.debugger_report.histograms import histograms_of
from jobreport.readers.debugger_results import rule_results
from jobreport.readers.debugger_results.loop import loop_facts
from jobreport.readers.debugger_results.rule_results import RuleResults
from jobreport.readers.listing import listing
from jobreport.readers.registry import read_job
from jobreport.readers.tally import Tally
from jobrules.model import Metric
from tests.paths import CORPUS, needs_corpus

pytestmark = [needs_corpus, pytest.mark.slow]

JOBS = sorted((CORPUS / "sagemaker").glob("job-*/vendor-rules"))
WITH_SAMPLES = [one for one in JOBS if (one.parent / "profiler-output").exists()]


def results_of(folder: Path) -> RuleResults:
    return rule_results.read(listing(folder, Tally()))


def test_the_mean_of_a_histogram_is_that_of_the_samples() -> None:
    compared = 0
    for folder in WITH_SAMPLES:
        results, (job, _) = results_of(folder), read_job(folder.parent)
        for (node, device), histogram in histograms_of(results).items():
            panel = job.panel(node, Metric.GPU_UTILIZATION)
            assert panel is not None
            time_us, values = panel.series(panel.devices.index(device))
            assert results.end_us is not None
            mean = float(values[time_us <= results.end_us].mean())
            assert 100 * histogram.used == pytest.approx(mean, abs=0.1), folder
            compared += 1
    assert compared == 8


def test_the_time_outside_of_steps_fits_their_mean_and_number() -> None:
    """What the result says itself is too little by up to 46 points."""
    off = []
    for folder in JOBS:
        results = results_of(folder)
        facts, counted = loop_facts(results), results["StepOutlier"]
        training = [one.step_stats.mean for one in results.steps.values() if one.phase.endswith("TRAIN")]
        if facts is None or facts.outside is None or not training or not facts.steps_us or not counted:
            continue
        each = (counted.datapoints or 0) / len(results.steps)
        stepped = float(np.mean([mean or 0.0 for mean in training])) * each
        off.append(
            100 * facts.outside - 100 * (1 - stepped / ((facts.steps_us[1] - facts.steps_us[0]) / 1e6))
        )
    assert len(off) >= 15
    assert max(map(abs, off)) < 15
    assert float(np.median(np.abs(off))) < 2
