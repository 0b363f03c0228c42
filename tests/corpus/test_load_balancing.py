"""The histograms of use against those of SageMaker Debugger.

The edges of SageMaker Debugger are 0, 2, …, 98: 49 bins, the last one, from 96 on, closed at 98; it drops what is above.
It knows no training loop, so ours are taken without steps. A sample of exactly 98 stands in the
SageMaker Debugger's last bin and in bin 49 of ``all_workloads``, beside those above: how many they are is counted from
the samples. The last bin of ``workloads`` has all from 96 on.
"""

from __future__ import annotations

import numpy as np
import pytest

from jobrules.model import Metric, Steps
from jobrules.rule import run_rules
from jobrules.rules.load_balancing import LoadBalancing
from tests.copies import replace
from tests.corpus.test_debugger_results import JOBS, cut_job, written
from tests.paths import needs_corpus

pytestmark = needs_corpus


def test_there_are_histograms_to_compare() -> None:
    assert sum(bool(written(name, "LoadBalancing")["Details"]) for name in JOBS) >= 8


@pytest.mark.parametrize("name", JOBS)
def test_workloads_equal_those_of_sagemaker_debugger(name: str) -> None:
    theirs = written(name, "LoadBalancing")
    job = replace(cut_job(name), steps=Steps())

    (ours,) = run_rules([LoadBalancing()], job)

    assert ours.datapoints == theirs["Datapoints"]
    assert set(ours.details) == set(theirs["Details"])
    for node, block in theirs["Details"].items():
        panel = job.panel(node, Metric.GPU_UTILIZATION)
        assert panel
        assert list(block["workloads"]) == list(panel.devices)
        for gpu, expected in block["workloads"].items():
            drawn, found = (ours.details[node][key][gpu] for key in ("workloads", "all_workloads"))
            _, values = panel.series(panel.devices.index(gpu))
            at_98 = int(np.count_nonzero(values == 98))
            assert (len(found), len(expected)) == (50, 49)
            assert found[:48] == expected[:48]
            assert found[48] + at_98 == expected[48]
            assert found[49] == np.count_nonzero(values >= 98)
            assert drawn == [*found[:48], found[48] + found[49]]
