"""The numbers of a capture, moment by moment: slow, with plain lists, and with nothing of the code that it checks.

Times are whole microseconds. A moment ``t`` stands for ``[t, t + 1)``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

BETWEEN, CALL, LATENCY, TOLERANCE = 10, 50, 25, 2


@dataclass(frozen=True)
class Call:
    """A call on a thread of the host."""

    name: str
    start: int
    end: int
    thread: int = 1


@dataclass(frozen=True)
class Work:
    """A kernel or a copy; ``kind`` is compute, communication, or copy."""

    kind: str
    start: int
    end: int
    stream: int
    launch: Call | None


@dataclass(frozen=True)
class Host:
    """What a capture has of one device and its process. Steps are marked by thread 1."""

    work: Sequence[Work]
    steps: Sequence[tuple[int, int]] = ()
    loading: Sequence[Call] = ()
    allocation: Sequence[Call] = ()
    blocking: Sequence[Call] = ()
    overhead: Sequence[tuple[int, int]] = ()


@dataclass
class Moments:
    """What each moment of the window is; parts and idle causes."""

    window: tuple[int, int]
    of: dict[int, str] = field(default_factory=dict)
    #: Windows of the steps, and the events that each launched.
    steps: list[tuple[int, int, int]] = field(default_factory=list)

    def counted(self, start: int, end: int) -> Counter[str]:
        return Counter(self.of[t] for t in range(start, end))


def step_of(host: Host, work: Work) -> int | None:
    if work.launch is None:
        return None
    begun = [i for i, (start, _) in enumerate(host.steps) if start <= work.launch.start]
    return begun[-1] if begun and work.launch.start < max(end for _, end in host.steps) else None


def moments(host: Host) -> Moments:
    """The window, what each of its moments is, and the windows of the steps."""
    found = Moments(window=_window(host))
    start, end = found.window
    for t in range(start, end):
        kinds = {work.kind for work in host.work if work.start <= t < work.end}
        first = [kind for kind in ("compute", "communication", "copy") if kind in kinds]
        found.of[t] = first[0] if first else "idle"
    for gap in list(_gaps(found)):
        _explain(found, host, gap)
    before = start
    for number, (_, step_end) in enumerate(host.steps):
        own = [work for work in host.work if step_of(host, work) == number]
        until = max(before, step_end, *(work.end for work in own), 0)
        until = end if number == len(host.steps) - 1 else min(until, end)
        found.steps.append((before, until, len(own)))
        before = until
    return found


def _window(host: Host) -> tuple[int, int]:
    if not host.steps:
        return min(work.start for work in host.work), max(work.end for work in host.work)
    begin = host.steps[0][0]
    after = [work for work in host.work if work.end > begin]
    if not after:
        return begin, begin
    own = [work.end for work in host.work if step_of(host, work) is not None]
    start = max(begin, min(work.start for work in after))
    return start, max([start, *own, *(end for _, end in host.steps)])


def _gaps(found: Moments) -> Iterable[tuple[int, int]]:
    start, end = found.window
    begun = None
    for t in range(start, end + 1):
        is_idle = t < end and found.of[t] == "idle"
        if is_idle and begun is None:
            begun = t
        elif not is_idle and begun is not None:
            yield begun, t
            begun = None


def _explain(found: Moments, host: Host, gap: tuple[int, int]) -> None:
    p, q = gap
    ending = [work for work in host.work if work.start == q]
    launches = sorted((work.launch for work in ending if work.launch), key=lambda call: call.start)
    if not ending:
        threads = (
            {1}
            if host.steps
            else {work.launch.thread for work in host.work if work.launch}
            | {call.thread for call in (*host.allocation, *host.blocking)}
        )
        _blame_host(found, host, gap, p, q, threads)
    elif not launches:
        _set(found, p, q, "unlinked")
    elif launches[0].start < p:
        call = launches[0]
        if q - p <= BETWEEN:
            _set(found, p, q, "between_kernels")
        else:
            begun = min(q, max(p, call.end + LATENCY))
            _set(found, p, begun, "launch_latency")
            _set(found, begun, q, "device_wait")
    else:
        call = launches[0]
        _blame_host(found, host, gap, p, min(call.start, q), {call.thread} | ({1} if host.steps else set()))
        for t in range(min(call.start, q), q):
            if t < call.start + CALL:
                cause = "launch_latency"
            elif t < call.end:
                cause = "host"
            else:
                cause = "launch_latency" if t < call.end + LATENCY else "device_wait"
            found.of[t] = cause


def _blame_host(
    found: Moments, host: Host, gap: tuple[int, int], start: int, end: int, threads: set[int]
) -> None:
    p, _ = gap
    stood = [
        call.end - call.start
        for call in host.blocking
        if call.thread in threads and call.start < p and call.end >= p - TOLERANCE
    ]
    left = max(stood, default=0)
    for t in range(start, end):
        if any(one.thread in threads and one.start <= t < one.end for one in host.loading):
            found.of[t] = "data_loading"
        elif any(begin <= t < until for begin, until in host.overhead):
            found.of[t] = "profiler"
        elif any(one.thread in threads and one.start <= t < one.end for one in host.allocation):
            found.of[t] = "memory_allocation"
        elif left:
            found.of[t] = "synchronisation"
            left -= 1
        else:
            found.of[t] = "host"


def _set(found: Moments, start: int, end: int, cause: str) -> None:
    for t in range(start, end):
        found.of[t] = cause
