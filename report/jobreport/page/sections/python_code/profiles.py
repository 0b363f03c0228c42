"""Time of Python functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from jobreport import formats
from jobreport.page.kit import Fold, Subsection, Table
from jobreport.page.kit.table import PERCENT_SCALE, as_code, bar
from jobreport.page.sections.outline import not_recorded, section
from jobrules.model import SECOND_US
from jobrules.text import apportion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.document import Report
    from jobreport.page.kit.blocks import Block
    from jobreport.page.kit.section import Content
    from jobrules.model import Function, Profile

#: Functions of a profile, and profiles, that are not folded away.
MAX_OPEN, MAX_OPEN_PROFILES = 10, 3
#: How the words of a profile from before the first step begin.
_START_UP = "before step 0"


@section
def profiles(report: Report) -> Content:
    """A table of functions by self time for each profile, the first three open."""
    if not report.profiles:
        return not_recorded("Python profile", in_results=report.of_debugger)
    found = [*zip(_titles(report.profiles), report.profiles, strict=True)]
    return [
        "Self time excludes called functions, total time includes them. Shares are of the profile's self time."
        + formats.not_shown(report.profiles_left, "profile"),
        *(
            Subsection(title=title, blocks=_tables(profile, title))
            for title, profile in found[:MAX_OPEN_PROFILES]
        ),
        *(
            Fold(summary=f"Profile: {title}", blocks=_tables(profile, title))
            for title, profile in found[MAX_OPEN_PROFILES:]
        ),
    ]


def _titles(profiles: Sequence[Profile]) -> list[str]:
    """The title of each profile; those of one title are numbered."""
    several = len({one.node for one in profiles}) > 1
    titles = [_title(one, several=several) for one in profiles]
    places = [titles[:i].count(title) + 1 for i, title in enumerate(titles)]
    return [
        f"{title}, profile {place}" if titles.count(title) > 1 else title
        for title, place in zip(titles, places, strict=True)
    ]


def _title(profile: Profile, *, several: bool) -> str:
    rank = f"Rank {formats.escape_name(profile.rank, 24)}" if profile.rank else "Training process"
    where = f" on {formats.escape_name(profile.node, 40)}" if several else ""
    return f"{rank}{where}, {_stretch(profile)}"


def _tables(profile: Profile, title: str) -> list[Block]:
    """The functions with most self time, and the others in a fold."""
    scale = formats.time_scale(function.total_s for function in profile.functions)
    own = [max(0.0, function.self_s) for function in profile.functions]
    rest_s = max(0.0, profile.self_s - sum(own))
    percents = apportion([*own, rest_s], 100.0, 1)
    rows = [
        _row(function, percent, scale)
        for function, percent in zip(profile.functions, percents[:-1], strict=True)
    ]
    if left := profile.count - len(profile.functions):
        name = formats.count(left, "other function")
        rows.append([name, "–", scale(rest_s), "–", *_share(percents[-1])])
    heads = (
        ":Function",
        "Calls",
        f"Self ({scale.unit})",
        f"Total ({scale.unit})",
        "Share (%)",
        PERCENT_SCALE,
    )
    caption = f"{_caption(profile, percents)} {_about(profile)}"
    if not rows:
        return [caption]
    opened = MAX_OPEN if len(profile.functions) > MAX_OPEN else len(rows)
    more = formats.count(len(profile.functions) - MAX_OPEN, "more function")
    return [
        Table(
            label=f"Functions: {title}",
            caption=caption,
            style="wide words",
            heads=heads,
            rows=rows[:opened],
        ),
        Table(
            label=f"More functions: {title}",
            fold=more,
            style="wide words",
            heads=heads,
            rows=rows[opened:],
        ),
    ]


def _about(profile: Profile) -> str:
    """Profiler, time span, and duration, as a sentence."""
    profiler, span = formats.escape_name(profile.profiler, 24), profile.end_us - profile.start_us
    times = f"{formats.between(profile.start_us, profile.end_us)}, {formats.seconds(span / SECOND_US)}"
    return f"{profiler}, {times}."


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


def _row(function: Function, percent: float, scale: formats.TimeScale) -> list[str]:
    # Names of built-in functions often say so: "<built-in method posix.mkdir>".
    place = _place(function) or ("" if function.name.startswith("<") else "built in")
    name = as_code(function.name)
    return [
        name + Markup('<br><code class="m">{}</code>').format(place) if place else name,
        "–" if function.calls is None else formats.number(function.calls, 0),
        scale(function.self_s),
        scale(function.total_s),
        *_share(percent),
    ]


def _share(percent: float) -> tuple[str, str]:
    return formats.number(percent), bar(("u", percent))
