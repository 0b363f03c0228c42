"""The section on the training itself."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable

import numpy as np
import pytest

from jobreport import document
from jobreport.document import Report
from jobreport.headline import headline
from jobreport.output import summary
from jobreport.page.sections.learning.learning import learning
from jobreport.page.sections.learning.trees import trees
from jobreport.page.sections.order import page
from jobrules.analyses.learning.layers import NOT_RECORDED, LayerMap
from jobrules.model.learning import LOSS, VAL_LOSS, Collection, Learning, LearningEvent, Tensor, TensorRecords
from jobrules.rule import Rule
from jobrules.rules.learning.confusion import Confusion
from jobrules.rules.learning.dead_relu import DeadRelu
from jobrules.rules.learning.exploding_tensor import ExplodingTensor
from jobrules.rules.learning.loss_at_chance import LossAtChance
from jobrules.rules.learning.loss_not_decreasing import LossNotDecreasing
from jobrules.rules.learning.loss_spike import LossSpike
from jobrules.rules.learning.overfit import Overfit
from jobrules.rules.learning.tree_depth import TreeDepth
from jobrules.rules.learning.vanishing_gradient import VanishingGradient
from jobrules.rules.learning.weight_update_ratio import WeightUpdateRatio
from jobrules.rules.step_outlier import StepOutlier
from tests.learning_data import START_US, scalars
from tests.report.page.sections.example_learning import everything, report_of, series
from tests.report.page.sections.examples import HOSTILE
from tests.report.page.sections.html import Page

NAN = float("nan")
#: Of the section in the page of a large model.
MAX_BYTES = 150_000


def text_of(report: Report) -> str:
    return re.sub(r"<[^>]+>", " ", learning(report).html)


JOBS: dict[str, Callable[[], Learning]] = {
    "everything": everything,
    "only scalars without times": lambda: Learning(scalars=tuple(series(timed=False)[:4])),
    "one value": lambda: Learning(scalars=(scalars([2.0]),)),
    "no number": lambda: Learning(scalars=(scalars([NAN, NAN]),)),
    "only validation": lambda: Learning(scalars=(scalars([2.0, 1.0], VAL_LOSS),)),
    "no loss": lambda: Learning(scalars=(scalars([2.0, 1.0], "perplexity"),)),
    "nothing": Learning,
    "huge": lambda: Learning(
        scalars=(scalars([1e308, -1e308, 1e-320], LOSS, steps=[0, 2**40, 2**60], timed=False),)
    ),
    "hostile": lambda: everything(
        scalars=(scalars([1.0, 2.0], HOSTILE, logged_as=HOSTILE), scalars([3.0, 2.0])),
        not_recorded=(HOSTILE,),
        optimizer=HOSTILE,
    ),
}


#: All rules that have a section on the training, and some others.
EVERY = (
    *(ExplodingTensor(), LossNotDecreasing(), LossSpike(), Overfit(), VanishingGradient(), DeadRelu()),
    *(WeightUpdateRatio(), Confusion(), TreeDepth(), StepOutlier()),
)


@pytest.mark.parametrize("name", JOBS)
def test_every_training_gives_a_section_and_a_report_that_can_be_read_again(name: str) -> None:
    report = report_of(JOBS[name](), *EVERY)

    said = page(report)
    assert document.from_json(document.to_json(report)) == report
    assert "could not be drawn" not in "".join(one.html for one in said.values())
    assert Page.of("".join(one.html for one in said.values())).faults == []
    assert summary.markdown(report)


def test_the_page_of_a_job_without_a_training_has_neither_section() -> None:
    report = report_of(None)

    assert not report.learning
    assert not {"learning", "trees"} & page(report).keys()
    assert "No loss was found. Looked for: " in text_of(report)


def test_the_section_of_trees_needs_trees() -> None:
    assert "trees" not in page(report_of(everything(trees=None)))
    html = trees(report_of(everything())).html
    assert "feature 0" in html
    assert "of at most 6 that were allowed" in html
    # 100 / sum of 100 / 1 to 100 / 25
    assert "26.2%" in html


def test_captions_state_what_was_found() -> None:
    said = text_of(report_of(everything()))

    for sentence in (
        "The loss went from 2.33 to 0.0771 (median of the last tenth); the validation loss was best near step 379 (0.3407); 1\u00a0overflow.",
        "Accuracy at the end: training 0.9816, validation 0.8987.",
        "The median update of 6 of 12\u00a0layers is outside of the usual range",
        "Recorded from jobrecord, tensors each 10\u00a0steps, on 1 of 2\u00a0ranks.",
        "Recording took 1.2\u00a0s, 0.2% of the time from the first to the last record.",
        "Not recorded: inputs: not asked for.",
    ):
        assert sentence in said


def test_a_loss_that_is_not_finite_is_said_and_marked() -> None:
    report = report_of(Learning(scalars=(scalars([2.0, 1.0, NAN, NAN]),)))

    assert "The loss was NaN or infinite in 2 of 4\u00a0records, first at step 2." in text_of(report)
    assert '<path class="l"' in learning(report).html
    assert headline(report).rest.startswith("The loss was NaN or infinite")


def test_a_log_without_times_says_nothing_of_times_and_machines() -> None:
    report = report_of(JOBS["only scalars without times"]())

    head = re.sub(r"<[^>]+>", " ", page(report)["head"].html)
    assert "after the start" not in head
    assert "Duration" not in head
    assert headline(report).rest.startswith("The loss went from 2.33 to 0.0771 (median of the last tenth)")
    assert "at a time that was not recorded" in summary.markdown(report)


def test_a_log_with_times_says_when_it_ran() -> None:
    assert report_of(Learning(scalars=tuple(series()))).job.start_us == START_US


@pytest.mark.parametrize(
    ("rule", "figure"),
    [
        (VanishingGradient(), "learning-gradients"),
        (WeightUpdateRatio(low=1e-5), "learning-updates"),
        (DeadRelu(), "learning-activations"),
    ],
)
def test_the_figure_of_the_cause_is_the_first(rule: Rule, figure: str) -> None:
    pieces = page(report_of(everything(), rule))

    assert f'<figure id="fig-{figure}">' in pieces["evidence"].html
    assert f'<figure id="fig-{figure}">' not in pieces["learning"].html


def test_the_time_that_improved_nothing_is_a_line_of_the_verdict() -> None:
    report = report_of(Learning(scalars=(scalars([2.303] * 100),), class_count=10), LossAtChance())

    said = "100.0% of the steps passed while the loss was that of guessing, from step 0 on."
    assert f"<p><strong>{said}</strong></p>" in page(report)["verdict"].html
    assert said in summary.markdown(report)


def test_spikes_that_the_rule_finds_are_marked() -> None:
    values = [1.0 + 0.001 * (i % 3) for i in range(300)]
    values[200] = 5.0
    report = report_of(Learning(scalars=(scalars(values),)), LossSpike())

    assert report.learning
    assert report.learning.marks == {"spike": (100,)}
    assert "; 1\u00a0spike." in text_of(report)


def _large(records: int = 1000) -> TensorRecords:
    """A model of 292 parameters and 192 activations, in noise that no packing makes smaller."""
    chance = np.random.default_rng(34)
    names = [f"model.layers.{i // 12}.part{i % 12}.weight" for i in range(292)]
    tensors = [
        Tensor(name=name, collection=collection, shape=(2048, 2048))
        for collection in (Collection.GRADIENT, Collection.UPDATE)
        for name in names
    ]
    tensors += [Tensor(name=f"act.{i}", collection=Collection.OUTPUT) for i in range(192)]
    n = len(tensors) * records
    columns = {
        name: np.zeros(n)
        for name in ("nan", "inf", "zero", "sum", "l1", "min", "max", "positive", "saturated")
    }
    return TensorRecords(
        tensors=tuple(tensors),
        tensor=np.tile(np.arange(len(tensors), dtype=np.int32), records),
        step=np.repeat(np.arange(records) * 100, len(tensors)),
        time_us=np.repeat(START_US + np.arange(records) * 50_000_000, len(tensors)),
        count=np.full(n, 2048.0**2),
        l2=10 ** chance.uniform(-7, 0, n),
        ratio=10 ** chance.uniform(-7, 0, n),
        dead=chance.random(n),
        bins=np.empty((0, 64), np.int32),
        **columns,
    )


def test_a_large_model_takes_little_of_the_page() -> None:
    """However many records there are, no more than 100 columns of them are drawn."""
    steps = np.arange(100_000)
    chance = np.random.default_rng(35)
    noise = [
        scalars(chance.random(len(steps)).tolist(), name) for name in (LOSS, VAL_LOSS, "lr", "grad_norm")
    ]
    report = report_of(Learning(scalars=tuple(noise), tensors=_large()))

    found = report.learning
    assert found
    assert isinstance(found.gradients, LayerMap)
    assert {len(one.levels) for one in found.gradients.rows} == {found.gradients.columns.count} == {100}
    assert not any(NOT_RECORDED in one.levels for one in found.gradients.rows)
    assert len(gzip.compress(page(report)["learning"].html.encode())) < MAX_BYTES
    assert len(gzip.compress(document.to_json(report))) < MAX_BYTES


def test_a_value_without_neighbors_is_a_point() -> None:
    for values, points in (([2.0], 1), ([2.0, NAN, 1.0, 1.5], 1), ([2.0, 1.5], 0)):
        html = learning(report_of(Learning(scalars=(scalars(values),)))).html
        assert html.count("•</text>") == points
    assert "The loss was 2 in its only record." in text_of(report_of(Learning(scalars=(scalars([2.0]),))))


def test_steps_are_whole_and_times_differ() -> None:
    three = text_of(report_of(Learning(scalars=(scalars([3.0, 2.0, 1.0]),))))
    days = text_of(report_of(Learning(scalars=(scalars([2.0] * 1000, step_s=600),))))

    assert "0.5" not in three
    assert "10:00:02" in three
    assert "03-10 " in days


def test_a_job_that_was_resumed_has_a_line_with_a_key() -> None:
    resumed = LearningEvent(step=50, time_us=0, name="resume")
    said = [
        text_of(report_of(Learning(scalars=(scalars([2.0] * 100),), events=events)))
        for events in ((), (resumed,))
    ]

    assert ["resumed" in one for one in said] == [False, True]


def test_what_the_verdict_says_is_said_once() -> None:
    part = "50.0% of the steps"
    report = report_of(Learning(scalars=(scalars([1.0] * 50 + [NAN] * 50),)), ExplodingTensor())

    assert report.verdict.learning
    assert report.verdict.learning.share == 0.5
    assert page(report)["verdict"].html.count(part) == 1
    assert headline(report).rest == ""


def test_the_end_of_a_loss_is_that_of_its_last_tenth() -> None:
    said = text_of(report_of(Learning(scalars=(scalars([2.0] * 90 + [1.0] * 9 + [0.1]),))))

    assert "The loss went from 2 to 1 (median of the last tenth)." in said
