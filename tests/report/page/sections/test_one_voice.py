"""The sentences of a page about one thing do not exclude each other, whichever section they stand in."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from jobreport.build import build_report
from jobreport.document import Report
from jobreport.errors import NothingReadableError
from jobreport.options import Options
from jobreport.output import summary
from jobreport.page import sections
from jobreport.pipeline import make_report
from jobreport.remarks import Quality
from jobrules import RULES
from jobrules.rule import run_rules
from tests.paths import CORPUS, SAMPLES, needs_corpus
from tests.rules.diagnosis_jobs import CAUSES, SHAPES, made

BLOCKS = re.compile(
    r"</?(?:td|th|dt|dd|p|li|h1|h2|h3|h4|figcaption|summary|div|section|article|caption|tr|nav)\b[^>]*>"
)
UNREAD = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL)
#: Such a sentence is about more than the work, which all others are about.
WHOLE_JOB = re.compile(r"whole job|start-up")


class Topic(NamedTuple):
    """Two things that are not both true of a device and metric; what a pattern captures names the device or metric."""

    one: str
    other: str
    #: A sentence of each kind.
    examples: tuple[str, str]
    #: Whether they exclude each other even if one is of the whole job and one of the work.
    always: bool = True


TOPICS = {
    "busy or little used": Topic(
        r"\b(GPU|CPU) utilization (?:on \S+ )?was high|\b(CPU) is the likely limit",
        r"\b(GPU|CPU) utilization (?:on \S+ )?was (?:low|below \d+%)|\b(CPU)s? (?:was |is )?little used",
        ("CPU utilization was high: p95 97.5%", "CPU little used, too"),
    ),
    "the advice on the machine": Topic(
        r"smaller machine may do()",
        r"more cores per GPU()|CPU is the likely limit()",
        ("A smaller machine may do", "Or use a machine with more cores per GPU"),
    ),
    "alike or different": Topic(
        r"GPU utilization is similar within each node: largest distance()",
        r"(?:GPU utilization|Utilization of .*) (?:differs|differed)()",
        (
            "GPU utilization is similar within each node: largest distance 0.07",
            "GPU utilization differs within a node",
        ),
        always=False,
    ),
    "never used or used": Topic(
        r"^(?:No GPU was used|The GPU was never used|Every GPU sample is at most 1%|(?:both|all \S+) GPUs were never used)()",
        r"[Ff]irst GPU work()|GPU work took()|(?:Every|The) GPU was active()|^GPU utilization was high()",
        ("The GPU was never used", "GPU work took 92.5% of the job"),
    ),
    "began or never": Topic(
        r"Start-up and wind-down are unknown()|The job is one phase()",
        r"start-up (?:\d|took)()|Lost: start-up()|worked in the first()|^Start-up took()",
        ("Start-up and wind-down are unknown", "GPU work took 91.1% of the job, start-up 1 min 18 s"),
    ),
    "steps": Topic(
        r"[Nn]o (?:single )?step was recorded()|^Steps were not recorded()",
        r"Phases come from [^:.]*\bsteps?\b()|steps took \d()|^Steps \d()",
        ("No single step was recorded", "The middle half of steps took 0.6 to 0.7 s"),
    ),
    "low windows": Topic(
        r"low or fluctuated? in 0 of()|windows?, 0 low \(.*, 0 fluctuating()",
        r"fluctuated? in [1-9]()|low in [1-9]\S* and fluctuated()|windows?, [1-9]\S* low()",
        (
            "GPU utilization was low or fluctuated in 0 of 80 windows",
            "LowGPUUtilization: 9 windows, 5 low (p95 below 70%)",
        ),
        always=False,
    ),
    "low batches": Topic(
        r"activity reached its threshold in all()|activity were all low in 0 of()",
        r"activity were all low in [1-9]()",
        (
            "CPU, GPU, or GPU memory activity reached its threshold in all 14 windows",
            "CPU, GPU, and GPU memory activity were all low in 6 of 10 windows",
        ),
        always=False,
    ),
    "jumps": Topic(
        r"(?:[Nn]o|has no) jump(?: in GPU memory activity)? above()",
        r"GPU memory activity jumped by()|Largest jump of GPU memory activity()",
        (
            "GPU memory activity has no jump above 5 points",
            "Largest jump of GPU memory activity: 14.2 points",
        ),
    ),
    "a cause or none": Topic(
        r"^No cause found()|^Nothing to fix seen()|^No findings?()",
        r"was lost to it()",
        (
            "Nothing to fix seen: the GPUs were busy",
            "62% of GPU time was lost to it: 0.309 of 0.500 GPU-hours",
        ),
    ),
    "known or not": Topic(
        r"Utilization is unknown()",
        r"^\d\S*% of (?:GPU|CPU) time was used()",
        ("Utilization is unknown", "27.3% of GPU time was used"),
    ),
}


def sentences(page: str) -> list[str]:
    """The sentences of a page or a text, without markup; a period within a number ends none."""
    text = html.unescape(re.sub(r"<[^>]+>", "", BLOCKS.sub("\n", UNREAD.sub("", page))))
    lines = (" ".join(line.replace("\u00a0", " ").split()) for line in text.splitlines())
    return list(
        dict.fromkeys(one for line in lines for one in re.split(r"(?<=[.;])\s(?=[A-Z])", line) if one)
    )


def contradictions(texts: list[str]) -> list[tuple[str, str, str]]:
    """(topic, sentence, sentence) of all pairs that exclude each other."""
    found = []
    for name, topic in TOPICS.items():
        sides = [
            [
                (text, next((group for group in hit.groups() if group), ""))
                for text in texts
                if (hit := pattern.search(text))
            ]
            for pattern in (re.compile(topic.one), re.compile(topic.other))
        ]
        found += [
            (name, one, other)
            for one, what in sides[0]
            for other, whose in sides[1]
            if what == whose
            and (topic.always or bool(WHOLE_JOB.search(one)) == bool(WHOLE_JOB.search(other)))
        ]
    return found


def texts_of(report: Report) -> list[str]:
    """The sentences of the page, the terminal, and the ticket."""
    pages = [one.html for one in sections.page(report).values()]
    return [text for page in (*pages, "\n".join(summary.terminal(report))) for text in sentences(page)]


def judged_otherwise(report: Report) -> list[str]:
    """Shares beside a threshold that they are on the other side of than the result of the rule."""
    wrong = []
    for card in report.rules:
        for key in ("cpu", "io"):
            if card.name != f"{key.upper()}Bottleneck" or not card.can_trigger:
                continue
            section = getattr(sections, f"{key}_bottlenecks")
            for share, limit in re.findall(r"([\d.]+)%; threshold ([\d.]+)%", section(report).html):
                if (float(share) > float(limit)) != (card.status == "triggered"):
                    wrong.append(f"{card.name} {card.status}: {share}%, threshold {limit}%")
    return wrong


@cache
def read(job: Path) -> Report | None:
    """The report of a job directory; None if it is refused."""
    with TemporaryDirectory() as folder:
        try:
            return make_report(job, Path(folder) / "report", Options(formats=("json",))).report
        except NothingReadableError:
            return None


@cache
def made_report(cause: str) -> Report:
    """The report of a made job with this cause."""
    one = made(cause, SHAPES[1], 1)
    rules = [rule() for rule in RULES]
    results = run_rules(rules, one.job, strict=True)
    return build_report(one.job, Quality(), rules, results, "make-report", strict=True)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_sample_speaks_with_one_voice(sample: Path) -> None:
    report = read(sample)

    assert report
    assert contradictions(texts_of(report)) == []
    assert judged_otherwise(report) == []


@pytest.mark.parametrize(
    "cause",
    [pytest.param(name, marks=() if i % 3 == 0 else pytest.mark.slow) for i, name in enumerate(CAUSES)],
)
def test_a_made_job_speaks_with_one_voice(cause: str) -> None:
    report = made_report(cause)

    assert contradictions(texts_of(report)) == []
    assert judged_otherwise(report) == []


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize(
    "job",
    [*sorted((CORPUS / "sagemaker").glob("job-*")), CORPUS / "nvidia-smi", CORPUS / "sagemaker-fixtures"],
    ids=lambda path: path.name,
)
def test_a_real_job_speaks_with_one_voice(job: Path) -> None:
    if report := read(job):
        assert contradictions(texts_of(report)) == []
        assert judged_otherwise(report) == []


@pytest.fixture(scope="module")
def sample_texts() -> list[str]:
    report = read(SAMPLES[0])
    assert report
    return texts_of(report)


@pytest.mark.parametrize("name", TOPICS)
def test_a_contradiction_is_found_wherever_it_stands(name: str, sample_texts: list[str]) -> None:
    one, other = TOPICS[name].examples
    texts = [
        *sample_texts,
        *sentences(f"<p>Before. {one}.</p><h2>After</h2>"),
        *sentences(f"<td>{other}</td>"),
    ]

    assert name in {topic for topic, *_ in contradictions(texts)}
    assert contradictions([one]) == contradictions([other]) == []
