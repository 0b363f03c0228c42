from __future__ import annotations

import re

import numpy as np
import pytest

from jobrules.analyses.code_lines import CodeLines, code_lines
from jobrules.model import Function, Job, Metric, Note, Profile, in_words
from tests.copies import replace
from tests.jobs import START_US, make_panel
from tests.rules.code_jobs import IMAGES, MAIN, Act, code_job
from tests.rules.rank_jobs import FETCH
from tests.stacks import FORKED, plain
from tests.verdicts import found, keys, verdict_of

WORK: Act = (4.0, "train.py:50 step", 95.0, "Forward")
STACKED: Act = (3.0, "train.py:50 step", 0.0, "")
JSON = (*MAIN, "train.py:84 log", "python:json/__init__.py:120 dump")
LOG: Act = (3.0, JSON, 0.0, "")
OTHER: Act = (1.0, "train.py:60 other", 0.0, "")
LONGER: Act = (1.0, "train.py:50 step", 95.0, "Forward")
ITSELF: Act = (3.0, (*MAIN, "library:torch/utils/data/dataloader.py:1 next", "data.py:41 load"), 0.0, FETCH)
LOADED: Act = (3.0, (*MAIN, "library:torch/utils/data/dataloader.py:1 next"), 0.0, FETCH)
SAVE: Act = (3.0, (*MAIN, "train.py:99 save", "library:torch/serialization.py:1 save"), 0.0, "Checkpoint")
EVALUATE: Act = (3.0, "train.py:70 evaluate", 0.0, "Evaluation")
IDLE_LOADER = (*FORKED, "python:multiprocessing/queues.py:1 get")
LOGGED = "train.py:84 log → json.dump"


SHORT: Act = (0.04, "train.py:50 step", 95.0, "Forward")
STALL: Act = (0.16, JSON, 0.0, "")


@pytest.mark.parametrize(
    ("job", "key", "line"),
    [
        (code_job((WORK, LOG), repeat=30), "code-line", LOGGED),
        (code_job((WORK, LOG), repeat=30, steps=False), "code-line", LOGGED),
        (code_job((WORK, LOG, OTHER), (WORK, LOG, OTHER), repeat=30), "code-line", LOGGED),
        # As many GPUs as ranks, or another number of them that are idle together.
        (code_job((WORK, LOG), (WORK, LOG), repeat=30, gpus=4), "code-line", LOGGED),
        (code_job((WORK, ITSELF), repeat=30), "data-loading", "data.py:41 load"),
        (code_job((WORK, ITSELF), repeat=30, gpus=0), "data-loading", "data.py:41 load"),
        (code_job((WORK, LOADED), repeat=30, loaders=[IMAGES]), "data-loading", "data.py:41 load_image → PIL.Image.open"),
        (code_job((WORK, LOADED), repeat=30, loaders=[IMAGES, IDLE_LOADER]), "data-loading", ""),
        (code_job((WORK, SAVE), repeat=30), "checkpoint", "train.py:99 save → torch.serialization.save"),
        (code_job((WORK, EVALUATE), repeat=30), "evaluation", "train.py:70 evaluate"),
        # Stalls that are shorter than the interval of GPU samples: what fills nearly all of the time holds them.
        (code_job((SHORT, STALL), repeat=600), "code-line", LOGGED),
        (code_job((SHORT, STALL), (SHORT, STALL), repeat=600), "code-line", LOGGED),
        # Or the GPU is used less around it.
        (code_job(((0.6, "train.py:50 step", 95.0, "Forward"), (0.4, JSON, 0.0, "")), repeat=240), "code-line", LOGGED),
        # The same of half of the time may be elsewhere; of all of the time, it is where the GPU works, too.
        (code_job((SHORT, (0.04, JSON, 0.0, "")), repeat=1200), "unexplained", ""),
        (code_job(((0.04, JSON, 95.0, ""), STALL), repeat=600), "unexplained", ""),
        # A wait for the GPU, beside launches that leave it idle.
        (code_job(((0.06, JSON, 99.0, ""), (0.06, "train.py:50 step", 30.0, "Forward")), repeat=900), "unexplained", ""),
        # At the same line whether the GPU works or not; too few samples; in part only; ranks that differ.
        (code_job((WORK, STACKED), repeat=30), "unexplained", ""),
        (code_job((WORK, LOG, (3.0, "train.py:60 other", 0.0, "")), repeat=30), "unexplained", ""),
        (code_job((WORK, LOG), (WORK, OTHER, OTHER, OTHER), repeat=30), "unexplained", ""),
        (code_job((WORK,), repeat=30), "", ""),
    ],
)  # fmt: skip
def test_findings_name_the_line_that_explains_them(job: Job, key: str, line: str) -> None:
    verdict = verdict_of(job)
    assert keys(verdict)[:1] == ([key] if key else [])
    texts = [in_words(one.evidence) for one in verdict.findings]
    named = [plain(line) for text in texts for line in re.findall(r" at (`.+?`) in", text)]
    assert named == ([line] if line else [])


@pytest.mark.parametrize(
    ("called", "key"),
    [("python:threading.py:334 wait", "code-line"), ("library:torch/_tensor.py:500 Tensor.backward", "batch-size")],
)  # fmt: skip
def test_a_line_that_waits_is_told_from_one_that_starts_small_kernels(called: str, key: str) -> None:
    """The GPU is steadily low, and the CPU has room."""
    job = code_job((SHORT, (0.16, (*MAIN, "train.py:84 log", called), 0.0, "")), repeat=600)
    cpu = make_panel(Metric.CPU_UTILIZATION, [[30.0] * 8] * len(job.panels[0].values))
    assert keys(verdict_of(replace(job, panels=(*job.panels, cpu))))[:1] == [key]


def test_the_line_is_counted_beside_other_moments() -> None:
    one = found(verdict_of(code_job((WORK, LOG, OTHER), repeat=30)), "code-line")
    note = [fact.text for fact in one.evidence if isinstance(fact, Note)][-1]
    assert "% of 1," in note
    assert "(0.0% " in note
    # Three of four idle seconds are at the line, the other ones are no loss of it.
    assert one.share == pytest.approx(3 / 8, abs=0.03)


@pytest.mark.parametrize(("act", "named"), [(LOG, [LOGGED]), (STACKED, [])])
def test_a_gpu_that_is_never_used_hides_no_work_of_the_others(act: Act, named: list[str]) -> None:
    job = code_job((WORK, act), repeat=30)
    (panel,) = job.panels
    values = np.hstack([panel.values, np.zeros_like(panel.values)])
    one = verdict_of(replace(job, panels=(make_panel(Metric.GPU_UTILIZATION, values),)))
    texts = [in_words(finding.evidence) for finding in one.findings if finding.key == "code-line"]
    assert [plain(line) for text in texts for line in re.findall(r" at (`.+?`) in", text)] == named
    assert all("(0.0% " in text for text in texts)


def test_a_rank_that_was_started_again_is_one() -> None:
    job = code_job((WORK, LOG), repeat=30)
    (stacks,) = job.stacks
    half = int(stacks.time_us[len(stacks.time_us) // 2])
    again = replace(stacks.within(half + 1, int(stacks.time_us[-1])), pid=stacks.pid + 1)
    one = found(verdict_of(replace(job, stacks=(stacks.within(0, half), again))), "code-line")
    assert "rank" not in in_words(one.evidence)


def test_a_slow_rank_has_the_line_that_it_spends_more_time_at() -> None:
    slow: Act = (0.06, "train.py:55 augment", 0.0, "Forward")
    fast: Act = (0.01, "train.py:55 augment", 0.0, "Forward")
    model: Act = (0.04, "model.py:7 forward", 0.0, "Forward")
    wait: Act = (0.06, "train.py:56 backward", 0.0, "Backward(post-forward)")
    short: Act = (0.01, "train.py:56 backward", 0.0, "Backward(post-forward)")
    job = code_job((fast, model, wait), (slow, model, short), (fast, model, wait), repeat=600, gpus=0)
    one = found(verdict_of(job), "slow-rank")
    assert "train.py:55 augment" in in_words(one.evidence)


def lines_of(job: Job) -> CodeLines:
    lines = code_lines(job)
    assert lines
    return lines


def test_lines_are_listed_with_their_samples_and_processes() -> None:
    lines = lines_of(code_job((WORK, ITSELF, OTHER), (WORK, ITSELF, LONGER), repeat=30, loaders=[IMAGES]))
    rows = {(one.kind, plain(one.place)): one for one in lines.lines}
    own = rows["main", "data.py:41 load"]
    assert (lines.waiting, lines.processes, lines.loaders) == ("gpu", 2, 2)
    assert (own.processes, own.rank, own.busy) == (2, "", 0)
    assert own.idle == own.samples == pytest.approx(2 * 30 * 30, rel=0.1)
    assert rows["main", "train.py:60 other"].rank == "0"
    assert rows["loader", "data.py:41 load_image → PIL.Image.open"].processes == 2
    assert lines.idle == sum(one.idle for one in lines.lines if one.kind == "main")
    assert lines.samples == sum(one.samples for one in lines.lines if one.kind == "main")


def test_stacks_are_one_tree_with_the_samples_below_each_part() -> None:
    lines = lines_of(code_job((WORK, LOG), (WORK, LOG), repeat=30))
    names = [f"{one.frame.file}:{one.frame.line}" for one in lines.parts]
    assert names[:2] == ["train.py:90", "train.py:30"]
    assert (lines.parts[0].idle, lines.parts[0].busy) == (lines.idle, lines.busy)
    assert all(-1 <= one.parent < i for i, one in enumerate(lines.parts))
    for i, one in enumerate(lines.parts):
        assert sum(part.idle for part in lines.parts if part.parent == i) in (0, one.idle)
    log = names.index("train.py:84")
    assert names[lines.parts[-1].parent] == names[log]


def test_a_job_without_stacks_has_no_lines() -> None:
    job = code_job((WORK,), repeat=3)
    assert code_lines(job)
    assert code_lines(replace(job, stacks=())) is None


PROFILE = Profile(
    node="algo-1",
    rank="0",
    profiler="cProfile",
    start_us=START_US,
    end_us=START_US + 1,
    begin="step 1",
    end="step 2",
    functions=(
        Function(file="train.py", line=15, name="decode", calls=9, self_s=5.23, total_s=6.0),
        Function(file="train.py", line=3, name="main", calls=1, self_s=1.0, total_s=9.0),
    ),
    count=2,
    self_s=10.0,
)


@pytest.mark.parametrize(("part", "named"), [(1.0, True), (0.3, False)])
def test_without_stacks_a_profile_names_the_function_with_most_self_time(part: float, named: bool) -> None:
    first = replace(PROFILE.functions[0], self_s=part * 5.23)
    profile = replace(PROFILE, functions=(first, *PROFILE.functions[1:]))
    job = replace(code_job((WORK, LOADED), repeat=30), stacks=(), profiles=(profile,))
    one = found(verdict_of(job), "data-loading")
    assert ("`decode (train.py:15)`, 52.3%" in in_words(one.evidence)) is named
