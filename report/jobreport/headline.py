"""What page, ``summary.md``, and terminal say first of a job: the main finding, and how much time it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.cost import words
from jobreport.ended import ENDED, lost_work, signal_name, step_name
from jobreport.sentences import bad_end, loss_sentence
from jobrules.model import Severity
from jobrules.model.finding import OF_LOOP
from jobrules.text import NBSP, capitalized, count, duration, escape_name, number, rounded_percent, share
from jobrules.verdict.learning import LossReason
from jobrules.verdict.story import UNEXPLAINED_LOSS, WARNING_SHARE
from jobrules.verdict.time_use import TimeUse, lost_sentence

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobrules.model import Finding
    from jobrules.verdict.profiled import ProfiledTime

#: GPUs of which no less was used are called busy, in percent.
BUSY_PERCENT = 70.0


class Headline(Struct, frozen=True, kw_only=True):
    """The first two lines; both are sentences."""

    #: The main finding, or that there is none.
    sentence: str
    #: The number that the second line begins with, ``62%``, which the page prints large; empty if it begins with a word.
    number: str
    #: The rest of the second line.
    rest: str

    @property
    def second(self) -> str:
        """The second line."""
        return f"{self.number} {self.rest}".strip()


def headline(report: Report) -> Headline:
    """The first two lines on a job: what its main finding is, and how much of which time it explains."""
    verdict = report.verdict
    number, rest = _second(report)
    if report.ended and (before := _before_end(report)):
        number, rest = "", f"{before} {number} {rest}".strip()
    # Without a finding that is said first, the second line holds what else was seen.
    seen = next((f"{one.title}." for one in verdict.findings), "") if not verdict.lead else ""
    little = verdict.little and f"Judged from {verdict.little}."
    said = [rest, little, seen, (report.cost and words.lost_money(report.cost)) or ""]
    if verdict.use and verdict.use.unknown:
        said.append(f"Utilization of {count(verdict.use.unknown, 'more GPU')} is unknown.")
    first = "So far: " * bool(report.made_us) + _first(report)
    return Headline(sentence=first, number=number, rest=" ".join(filter(None, said)))


def learned(report: Report) -> str:
    """How much time did not improve the model; empty if the first two lines say as much."""
    lost, said = report.verdict.learning, headline(report)
    is_said = lost and share(lost.share) in f"{said.sentence} {said.second}"
    return f"{lost.sentence}." if lost and not is_said else ""


def _first(report: Report) -> str:
    verdict, end = report.verdict, bad_end(report)
    found = f"{verdict.lead.title}." if verdict.lead else ""
    if not found or found in verdict.caveat:
        found = verdict.caveat or _nothing_found(report)
    elif verdict.too_little:
        # What a sensor says is so for as long as it was looked at.
        found += f" All else is too short to judge: {verdict.too_little}."
    if not end or (verdict.lead and verdict.lead.key == ENDED):
        return found
    how, known = "The job ended", report.ended or None
    if known and known.how == "asked":
        step = step_name(known)
        how, end = "The job was asked to end", f"{signal_name(known.signal)}{' in ' * bool(step)}{step}"
    elif not verdict.lead and not verdict.caveat and not (known and known.how == "rule"):
        # What ended it may be what is wrong with it.
        found = "No exception was recorded: read the job's output."
    if known and known.how == "exit" and known.rank:
        end += f", rank {escape_name(known.rank, 24)} first"
    return f"{how}: {end}. {found}"


def _before_end(report: Report) -> str:
    """What was lost with a job that ended badly, and what was found of the time before, if that is not said first."""
    verdict = report.verdict
    others = (one for one in verdict.findings if one.key != ENDED and one.severity is not Severity.INFO)
    is_first = verdict.lead is not None and verdict.lead.key == ENDED
    before = next((f"Before that: {one.title}." for one in others), "") if is_first else ""
    return " ".join(filter(None, [lost_work(report.ended) if report.ended else "", before]))


def _nothing_found(report: Report) -> str:
    """``Nothing to fix seen: the GPUs were busy.``; why nothing is known, if it is."""
    verdict, use, profiled = report.verdict, report.verdict.use, report.verdict.profiled or None
    if not (use or profiled or report.of_debugger):
        judged = any(card.was_evaluated for card in report.rules if card.section in ("learning", "trees"))
        return _no_fault(report) if judged else f"Utilization is unknown: {verdict.without_samples}."
    if verdict.not_explained:
        return f"No cause found for {verdict.not_explained}."
    if report.job.steps and not report.data_loading and not (use and use.device == "GPU"):
        return "No cause found, but waits for data were not measured."
    busy = _busy(use, profiled)
    is_unjudged = 0 < verdict.rules == verdict.missing
    if is_unjudged and not busy and not (use and use.device == "CPU"):
        return "No rule was evaluated."
    return f"Nothing to fix seen{busy}{'; no rule was evaluated' * is_unjudged}."


def _no_fault(report: Report) -> str:
    """That a training has no clear fault, if its loss is known."""
    if not (report.learning and loss_sentence(report.learning)):
        return "Little is known of the training itself: no loss was found (`--scalar loss=NAME`)."
    found = "No clear fault" if report.verdict.findings else "Nothing to fix"
    return f"{found} seen in the training itself."


def _busy(use: TimeUse | None, profiled: ProfiledTime | None) -> str:
    """``: the GPUs were busy``; empty if they were not, or if it is not known."""
    if use and use.of("used")[1] >= BUSY_PERCENT:
        return (
            f": the {'CPU was' if use.device == 'CPU' else 'GPU was' if use.count == 1 else 'GPUs were'} busy"
        )
    if not use and profiled and profiled.of("used") >= BUSY_PERCENT:
        return f": the {'GPU' if profiled.gpus == 1 else 'GPUs'} computed most of the profiled time"
    return ""


def _second(report: Report) -> tuple[str, str]:
    """The number and the rest of the second line."""
    verdict, use, profiled = report.verdict, report.verdict.use, report.verdict.profiled
    if use is None and report.of_debugger:
        return _of_results(report)
    lead = None if verdict.caveat else verdict.lead
    if lead and lead.share is not None and lead.share_of == OF_LOOP:
        parts = report.goodput.parts if report.goodput else ()
        of_job = next(
            (f", {rounded_percent(part.percent)} of the job" for part in parts if part.key == lead.key), ""
        )
        used = f" {_used(use, of_time=True)}." if use else ""
        return rounded_percent(100 * lead.share), f"{OF_LOOP} was lost to it{of_job}.{used}"
    lost = lead and ((use and _lost_to(lead, use)) or (profiled and _lost_to(lead, profiled)))
    if lost:
        return lost
    if use:
        return _use(report, use)
    if profiled:
        whole = f"{number(profiled.gpu_s, profiled.digits)}{NBSP}GPU-s"
        of = f"of the profiled time of {count(profiled.gpus, 'GPU')} was computing: {whole} in all."
        return rounded_percent(profiled.of("used")), of
    # A loss that is not finite is what the finding and the line on lost time are about.
    is_said = verdict.learning and verdict.learning.reason is LossReason.NON_FINITE
    learned = loss_sentence(report.learning) if report.learning and not is_said else ""
    unknown = f"Utilization is unknown: {verdict.without_samples}." if verdict.caveat else ""
    return "", f"{learned} {unknown}".strip()


def _of_results(report: Report) -> tuple[str, str]:
    """Of results of SageMaker Debugger, without an amount of time."""
    found = formats.median(report.utilization)
    unit = "Core" if found and found.device == "CPU" else "GPU"
    unknown = f"{unit}-hours cannot be computed without samples."
    if not found:
        return "", unknown
    return (
        found.value,
        f"was the median {found.device} utilization, according to SageMaker Debugger. {unknown}",
    )


def _lost_to(lead: Finding, use: TimeUse | ProfiledTime) -> tuple[str, str] | None:
    """The time that the finding explains, the next cause, and the time that was used; None if it explains no part."""
    own = [part for part in use.parts if part.finding == lead.key and part.role == "lost"]
    if not own:
        return None
    percent = sum(part.percent for part in own)
    to_it = "without a known cause" if lead.key == UNEXPLAINED_LOSS else "to it"
    if isinstance(use, TimeUse):
        time, source = use.time, f", according to {use.source}" if use.source else ""
        amount = f"{use.amount(sum(part.amount for part in own))} of {use.amount(use.hours)}{NBSP}{use.units}"
    else:
        time, source = f"the profiled time of {count(use.gpus, 'GPU')}", ""
        seconds = number(sum(part.amount for part in own), use.digits)
        amount = f"{seconds} of {number(use.gpu_s, use.digits)}{NBSP}GPU-seconds"
    sentences = [f"of {time} was lost {to_it}: {amount}{source}."]
    # What a busy GPU lacks to all of it is no cause.
    others = [p for p in use.parts if p.role == "lost" and p.key != "busy" and p not in own]
    largest = max(others, key=lambda part: part.percent, default=None)
    if largest and largest.percent >= 100 * WARNING_SHARE:
        what = largest.label.removeprefix("Lost: ")
        sentences.append(f"Another {rounded_percent(largest.percent)}: {what}.")
    sentences += [f"{_used(use)}."] if any(part.role == "used" and part.percent for part in use.parts) else []
    return rounded_percent(percent), " ".join(sentences)


def _used(use: TimeUse | ProfiledTime, *, of_time: bool = False) -> str:
    """``27% was used``, ``49% was computing``, ``15% was used, 15% not measured``, ``92% of GPU time was used``."""
    if not isinstance(use, TimeUse):
        unknown = use.of("unknown")
        known = f"{rounded_percent(use.of('used'))} was computing"
        return f"{known}; {rounded_percent(unknown)} is not known" if unknown >= 1 else known
    of = f" of {use.time}" if of_time or use.device == "CPU" else ""
    unmeasured = use.of("unknown")[1]
    known = f"{rounded_percent(use.of('used')[1])}{of} was used{use.of_job}"
    return f"{known}, {rounded_percent(unmeasured)} not measured" if unmeasured >= 1 else known


def _use(report: Report, use: TimeUse) -> tuple[str, str]:
    """How much was used, and what was lost."""
    never = not use.unknown and formats.never_used(use, report.phases)
    source = f", according to {use.source}" if use.source else ""
    if never:
        amount = f"{use.amount(use.of('lost')[0])}{NBSP}{use.units}"
        subject = "The GPU was never" if use.count == 1 else "No GPU was"
        if report.verdict.too_short:
            return "", f"{amount} were measured{source}."
        return "", f"{subject} used: all {amount} that were measured were lost{source}."
    lost = capitalized(lost_sentence(use, report.verdict.lead))
    length = duration(report.job.end_us - report.job.start_us)
    used = f"of {use.time} was used in {length}{use.of_job}{source}. {lost}."
    return rounded_percent(use.of("used")[1]), used
