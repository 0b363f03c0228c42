"""Where Python code spent its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from jobreport import formats
from jobreport.document import Origin
from jobreport.sections.error_boundary import error_boundary
from jobreport.sections.fragment import Fragment, render
from jobreport.sections.outline import heading
from jobrules.model import SECOND_US
from jobrules.text import apportion

if TYPE_CHECKING:
    from jobreport.document import Report
    from jobrules.model import Function, Profile

#: Functions of a profile, and profiles, that are not folded away.
MAX_OPEN, MAX_OPEN_PROFILES = 10, 3
#: How the words of a profile from before the first step begin.
_START_UP = "before step 0"


class Row(Struct, frozen=True, kw_only=True):
    """A function as printed."""

    name: str
    #: File and line, or that it is built in; empty where the name says so.
    place: str
    calls: str
    own: str
    total: str
    share: str
    #: Of all self time, for the bar.
    percent: float


class View(Struct, frozen=True, kw_only=True):
    """A profile as the template wants it."""

    title: str
    caption: str
    about: str
    scale: formats.TimeScale
    rows: list[Row]
    #: What is left of the profile's functions; none where nothing is.
    rest: Row | None
    counted: bool


@error_boundary
def profiles(report: Report) -> Fragment:
    """A table of functions by self time for each profile, the first three open."""
    several = len({one.node for one in report.profiles}) > 1
    html = render(
        "profiles",
        heading=heading("profiles", report),
        views=[_view(one, several=several) for one in report.profiles],
        left=report.profiles_left,
        most_open=MAX_OPEN,
        most_profiles=MAX_OPEN_PROFILES,
        why_none=_why_none(report),
    )
    return Fragment(name="profiles", html=html)


def _view(profile: Profile, *, several: bool) -> View:
    scale = formats.time_scale(function.total_s for function in profile.functions)
    own = [max(0.0, function.self_s) for function in profile.functions]
    rest_s = max(0.0, profile.self_s - sum(own))
    percents = apportion([*own, rest_s], 100.0, 1)
    left = profile.count - len(profile.functions)
    rank = f"Rank {formats.escape_name(profile.rank, 24)}" if profile.rank else "Training process"
    where = f" on {formats.escape_name(profile.node, 40)}" if several else ""
    return View(
        title=f"{rank}{where}, {_stretch(profile)}",
        caption=_caption(profile, percents),
        about=(
            f"{formats.escape_name(profile.profiler, 24)}, {formats.between(profile.start_us, profile.end_us)}, "
            f"{formats.seconds((profile.end_us - profile.start_us) / SECOND_US)}"
        ),
        scale=scale,
        rows=[
            _row(function, percent, scale)
            for function, percent in zip(profile.functions, percents[:-1], strict=True)
        ],
        rest=Row(
            name=formats.count(left, "other function"),
            place="",
            calls="–",
            own=scale(rest_s),
            total="–",
            share=formats.number(percents[-1]),
            percent=percents[-1],
        )
        if left > 0
        else None,
        counted=any(function.calls is not None for function in profile.functions),
    )


def _stretch(profile: Profile) -> str:
    """``start-up, until train step 0, step start``; ``from train step 9, step start to …``; ``step 3``."""
    begin, end = formats.escape_name(profile.begin, 80), formats.escape_name(profile.end, 80)
    if begin.startswith(_START_UP):
        return "start-up, before step 0" if end.startswith(_START_UP) else f"start-up, until {end}"
    if begin == end:
        return begin
    return f"from {begin} to {end}"


def _caption(profile: Profile, percents: tuple[float, ...]) -> str:
    if not profile.functions or not profile.self_s > 0:
        return "No function has measurable self time."
    first = profile.functions[0]
    where = f" ({_place(first, 40)})" if first.file else ""
    name = formats.escape_name(first.name, 60)
    return (
        f"Most self time: {name}{where}, {formats.percent(percents[0])} of {formats.seconds(profile.self_s)}."
    )


def _place(function: Function, most: int = 48) -> str:
    """The end of the path, which distinguishes files, and the line; empty for built-in functions."""
    if not function.file:
        return ""
    path = formats.escape_name(function.file, 200)
    while len(path) > most and "/" in path.removeprefix("…/"):
        path = "…/" + path.removeprefix("…/").partition("/")[2]
    line = f":{function.line}" if function.line else ""
    return formats.escape_name(path, most) + line


def _row(function: Function, percent: float, scale: formats.TimeScale) -> Row:
    return Row(
        name=formats.escape_name(function.name, 60),
        # Names of what is built in often say so: "<built-in method posix.mkdir>".
        place=_place(function) or ("" if function.name.startswith("<") else "built in"),
        calls="–" if function.calls is None else formats.number(function.calls, 0),
        own=scale(function.self_s),
        total=scale(function.total_s),
        share=formats.number(percent),
        percent=percent,
    )


def _why_none(report: Report) -> str:
    if report.origin is Origin.DEBUGGER_RESULTS:
        return "SageMaker Debugger's rule results hold no Python profiles."
    return "Python profiles."
