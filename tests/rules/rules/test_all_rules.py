"""What holds for every rule: its documentation, what it says of what it lacks, and results that agree with themselves."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from jobrules import RULES, Dataloader, Rule
from jobrules.model import Job, Metric, RuleResult, Status, in_words
from jobrules.rule import not_recorded, parameter_fields, run_rules
from jobrules.rules.traces.shares import CaptureRule
from tests.copies import replace
from tests.jobs import make_job, make_panel
from tests.rules.test_elsewhere import odd_job, rules_of

every_rule = pytest.mark.parametrize("kind", RULES, ids=lambda kind: kind.__name__)
SMALL = {
    "nothing": make_job(),
    "one GPU sample": make_job(gpu=[1.0]),
    "one CPU sample": make_job(cpu=[1.0]),
    "no value first": make_job(gpu=[np.nan, 1.0]),
    "one sample of each kind": make_job(extra=[make_panel(metric, [1.0]) for metric in Metric]),
}


@cache
def results(seed: int, eager: bool) -> tuple[Job, dict[str, RuleResult]]:
    """An odd job and the result of every rule, with thresholds that nearly everything exceeds if eager."""
    job = odd_job(seed)
    found = run_rules(rules_of(eager=eager), job, strict=True)
    return job, {result.rule: result for result in found}


@every_rule
def test_it_is_documented_and_its_thresholds_lie_in_their_ranges(kind: type[Rule]) -> None:
    told = kind.documentation()
    assert all((kind.title, told.checks, told.why, told.advice))
    assert len(" ".join((told.checks, told.why, *told.advice)).split()) <= 60
    assert kind.__module__.rpartition(".")[2].replace("_", "") == kind.__name__.lower()
    for name, default, known in parameter_fields(kind):
        assert known["help"], name
        if isinstance(default, int | float):
            assert known["low"] <= default <= (known["high"] if known["high"] is not None else np.inf), name


@every_rule
@pytest.mark.parametrize("name", SMALL)
def test_a_small_job_is_no_failure(kind: type[Rule], name: str) -> None:
    (result,) = run_rules([kind()], SMALL[name], strict=True)

    assert result.findings == ()
    assert (result.status is Status.NOT_EVALUATED) == (result.reason is not None)


@every_rule
def test_it_says_which_of_its_metrics_was_not_recorded(kind: type[Rule]) -> None:
    for missing in kind.requires:
        present = {Metric.GPU_UTILIZATION, Metric.GPU_POWER, *kind.requires} - {missing}
        job = make_job(extra=[make_panel(metric, [50.0] * 20) for metric in present])

        (result,) = run_rules([kind()], job, strict=True)

        assert (result.status, result.reason) == (Status.NOT_EVALUATED, not_recorded(missing))


@every_rule
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_result_agrees_with_itself(kind: type[Rule], seed: int, eager: bool) -> None:
    job, found = results(seed, eager)
    result = found[kind.__name__]

    assert 0 <= result.violating <= result.evaluated or not result.evaluated
    assert 0 <= result.severity <= 1
    assert (result.reason is not None) == (result.status is Status.NOT_EVALUATED)
    assert bool(result.triggered) == (result.status is Status.TRIGGERED)
    assert not result.findings or result.status is Status.TRIGGERED
    for one in result.devices:
        assert one.violating <= one.evaluated
        assert (one.reason is not None) == (one.status is Status.NOT_EVALUATED)
        assert one.name.partition("/")[0].partition(" ")[0] in job.nodes
    if result.status is Status.TRIGGERED and result.devices:
        assert any(one.status is Status.TRIGGERED for one in result.devices)
    if result.first_us is not None and result.last_us is not None:
        assert job.span_us[0] // 60_000_000 * 60_000_000 <= result.first_us <= result.last_us
    for finding in result.findings:
        assert finding.title
        assert finding.advice
        assert {name.partition("/")[0] for name in finding.devices} <= set(job.nodes)


def test_the_odd_jobs_give_every_rule_on_samples_and_steps_something_to_say() -> None:
    found = [result for seed in range(4) for result in results(seed, eager=True)[1].values()]

    told = {
        kind.__name__
        for kind in RULES
        if not (kind.of_learning or issubclass(kind, CaptureRule | Dataloader))
    }
    assert {one.rule for one in found if one.status is not Status.NOT_EVALUATED} == told
    assert len({one.rule for one in found if one.status is Status.TRIGGERED}) >= 14


@every_rule
def test_names_from_data_stay_on_one_line(kind: type[Rule]) -> None:
    job, _ = results(2, eager=True)
    names = {node: f"{node}\n</script>\u202e" for node in job.nodes}
    panels = tuple(replace(panel, node=names[panel.node], last_us=panel.last_us) for panel in job.panels)
    (chosen,) = (rule for rule in rules_of(eager=True) if type(rule) is kind)

    (result,) = run_rules([chosen], make_job(extra=panels), strict=True)

    texts = [result.headline, str(result.reason or "")]
    texts += [text for one in result.findings for text in (one.title, in_words(one.evidence), *one.advice)]
    assert [text for text in texts if "\n" in text or "\u202e" in text] == []
