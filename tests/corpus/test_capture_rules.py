"""Which rules trigger on published traces whose cause is known."""

from __future__ import annotations

import pytest

from jobrules import RULES
from jobrules.model import JobInMemory, Status
from jobrules.rules.traces.shares import CaptureRule
from tests.corpus.test_kineto import FOLDER, read
from tests.once import slow_but
from tests.paths import needs_corpus

pytestmark = needs_corpus

#: By folder: rules that trigger, and some that have to pass.
KNOWN: dict[str, tuple[set[str], set[str]]] = {
    # ResNet-50 that loads its batches in the training process, and with 4 loader processes.
    "resnet50-workers0-a": ({"DataLoaderWait", "LaunchBound"}, set()),
    "resnet50-workers0-b": ({"DataLoaderWait", "NoTensorCores"}, {"LaunchBound"}),
    "resnet50-workers4-a": ({"LaunchBound", "NoTensorCores"}, {"DataLoaderWait"}),
    "resnet50-workers4-b": ({"LaunchBound"}, {"DataLoaderWait"}),
    "resnet50-autograd-api": ({"LaunchBound"}, {"DataLoaderWait", "AllocationStall"}),
    # One rank of a job on several A100.
    "hta-trace_diff-control": ({"ExposedCommunication", "LaunchBound"}, {"DataLoaderWait", "NoTensorCores"}),
    # Thinned by a tool: its gaps are no idle time.
    "hta-trace_filter": ({"ExposedCommunication"}, set()),
    # First iterations alone: they allocate once.
    "hta-critical_path-alexnet": ({"LaunchBound", "NoTensorCores"}, {"AllocationStall"}),
    "hta-critical_path-simple_add": ({"LaunchBound", "NoTensorCores"}, {"AllocationStall"}),
    # Of 20 ns, and without GPU activity.
    "before-fix": (set(), set()),
    "after-fix": (set(), set()),
    "hta-cpu_only": (set(), set()),
}


@pytest.mark.parametrize(
    "name",
    slow_but({"resnet50-workers0-a", "resnet50-workers4-a", "hta-trace_filter", "hta-cpu_only"}, KNOWN),
)
def test_the_known_cause_is_found(name: str) -> None:
    (path,) = (FOLDER / name).iterdir()
    job = JobInMemory(name=name, captures=read(f"{name}/{path.name}").captures)

    results = [rule().check(job) for rule in RULES if issubclass(rule, CaptureRule)]

    triggered, passed = KNOWN[name]
    assert {one.rule for one in results if one.status is Status.TRIGGERED} == triggered
    assert passed <= {one.rule for one in results if one.status is Status.PASSED}
