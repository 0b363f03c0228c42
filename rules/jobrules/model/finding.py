"""What a rule reports: findings and measures."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """How much a finding matters, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Finding(Struct, frozen=True, kw_only=True):
    """One thing worth telling, with its evidence and one piece of advice."""

    #: Short name for links, the same in every report: ``low-gpu-utilization``.
    key: str
    severity: Severity
    #: The fact with its number.
    title: str
    #: Where, when, how much.
    evidence: str
    #: What to try, and what it will not solve.
    advice: str
    #: Names of the rules that saw it; empty for what no rule looks for, as a gap in the samples.
    rules: tuple[str, ...]
    #: The section of the page that holds the evidence, by its anchor.
    section: str
    #: The devices it is about, as ``node/device``; empty where it is about no device in particular.
    devices: tuple[str, ...] = ()
    #: Share of the whole that ``share_of`` names; none where no share makes sense.
    share: float | None = None
    #: "of GPU time", "of windows".
    share_of: str = ""
    #: The same amount in GPU-seconds, where it is GPU time.
    gpu_s: float | None = None
    start_us: int | None = None
    end_us: int | None = None


class Measure(Struct, frozen=True, kw_only=True):
    """What a rule compared with its limits, for the bar on its card."""

    value: float
    limits: tuple[float, ...]
    #: Right end of the bar.
    scale: float
    #: Written after value and limits: "% of windows", "min".
    unit: str
    #: What the limit means: "triggers above 20 min".
    limit_text: str
