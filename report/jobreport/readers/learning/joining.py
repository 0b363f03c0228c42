"""What all sources say about one training."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import astuple, replace

from jobreport.errors import UsageError
from jobreport.readers.learning.names import as_canonical, canonical, mode_of
from jobreport.readers.learning.shards import restarted
from jobreport.readers.restarts import latest
from jobreport.readers.series import is_same
from jobreport.recordings import Logged
from jobrules.model.learning import CANONICAL, LOSS, VAL_LOSS, Learning
from jobrules.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jobreport.readers.tally import Tally
    from jobrules.model.learning import ClassCounts, Scalars, TensorRecords

_MAX_DIFFERENCES, _MAX_LOGGED = 1000, 100


def joined(parts: Sequence[Learning], chosen: Mapping[str, str], tally: Tally) -> Learning | None:
    """The parts of several sources and starts of a job as one; None if they hold nothing.

    ``chosen`` says which logged scalar has a name of ``CANONICAL``. Raises ``UsageError`` if there is none.
    """
    parts = sorted(parts, key=lambda one: one.span_us or (0, 0))
    if not parts:
        return None
    scalars = _named(_continued((one for part in parts for one in part.scalars), tally), chosen, tally)
    # Facts of the last start of the job, of the source that knows the model if there is one.
    about = max(parts, key=lambda one: (bool(one.ranks), one.parameters > 0, one.span_us or (0, 0)))
    found = replace(
        about,
        scalars=scalars,
        tensors=_tensors(parts, tally),
        classes=_classes(parts),
        events=tuple(sorted({one for part in parts for one in part.events}, key=astuple)),
        trees=next((part.trees for part in reversed(parts) if part.trees), None),
        replicas=tuple(one for part in parts for one in part.replicas)[:_MAX_DIFFERENCES],
        cost_us=sum(part.cost_us for part in parts),
        not_recorded=tuple(dict.fromkeys(one for part in parts for one in part.not_recorded)),
        sources=tuple(dict.fromkeys(one for part in parts for one in part.sources)),
    )
    anything = found.scalars, found.classes, found.events, found.tensors, found.trees
    return found if any(anything) else None


def logged(learning: Learning) -> tuple[Logged, ...]:
    """The series of the first rank in short."""
    return tuple(
        Logged(
            mode=one.mode,
            name=one.logged_as,
            values=len(one),
            not_finite=int((~one.finite).sum()),
            step=int(one.step[one.finite][-1] if one.finite.any() else one.step[-1]),
            value=float(one.value[one.finite][-1]) if one.finite.any() else None,
        )
        for one in learning.scalars
        if one.source == "jobrecord" and one.rank == learning.ranks[0]
    )[:_MAX_LOGGED]


def _continued(series: Iterable[Scalars], tally: Tally) -> list[Scalars]:
    """Each scalar of a source and a rank, over all starts of the job."""
    of_one: defaultdict[tuple[str, ...], list[Scalars]] = defaultdict(list)
    for one in series:
        of_one[one.source, one.logged_as, one.mode, str(one.rank)].append(one)
    return [some[0] if len(some) == 1 else _one_after_the_other(some, tally) for some in of_one.values()]


def _one_after_the_other(some: Sequence[Scalars], tally: Tally) -> Scalars:
    step, time_us, value = (
        np.concatenate([getattr(one, name) for one in some]) for name in ("step", "time_us", "value")
    )
    kept = latest(step, part=np.repeat(np.arange(len(some)), [len(one) for one in some]))
    tally.note("learning.again", count=len(step) - len(kept))
    return replace(some[0], step=step[kept], time_us=time_us[kept], value=value[kept])


def _named(found: Sequence[Scalars], chosen: Mapping[str, str], tally: Tally) -> tuple[Scalars, ...]:
    """The series under their names, one of each name, mode, and rank."""
    for name, logged_as in chosen.items():
        if name not in CANONICAL:
            raise UsageError(f"--scalar {name}={logged_as}: not one of {', '.join(CANONICAL)}.")
        if not any(one.logged_as == logged_as for one in found):
            known = ", ".join(escape_name(one, 40) for one in sorted({one.logged_as for one in found})[:10])
            raise UsageError(
                f"--scalar {name}={logged_as}: nothing is logged under this name. Logged: {known}."
            )
    named: defaultdict[tuple[str, str, int], list[Scalars]] = defaultdict(list)
    for one in found:
        name, mode = _name(one, chosen)
        named[name, mode, one.rank].append(replace(one, name=name, mode=mode))
    result: dict[tuple[str, str, int], Scalars] = {}
    others: list[Scalars] = []
    for key, candidates in sorted(named.items()):
        # Of those with as many values, the one with times.
        best, *rest = sorted(
            candidates, key=lambda one: (-len(one), -int((one.time_us > 0).sum()), one.source, one.logged_as)
        )
        for one in rest:
            if is_same(best, one):
                best = _both(best, one)
            else:
                others.append(one)
                tally.note(
                    "learning.candidate", count=key[0] in CANONICAL, measure=key[0], name=one.logged_as
                )
        result[key] = best
    if losses := [] if {LOSS, VAL_LOSS} & {name for name, _, _ in result} else _losses(found):
        tally.note("learning.no_loss", count=len(losses), name=losses[0])
    for one in others:
        own = _own_name(one)
        while (own, one.mode, one.rank) in result:
            own = f"{own} ({one.source})"
        result[own, one.mode, one.rank] = replace(one, name=own)
    return tuple(result[key] for key in sorted(result))


def _losses(found: Sequence[Scalars]) -> list[str]:
    """Names that may be those of a loss."""
    return sorted({one.logged_as for one in found if "loss" in one.logged_as.lower()})


def _both(one: Scalars, other: Scalars) -> Scalars:
    """A series with what another one that is the same has of more steps."""
    more = ~np.isin(other.step, one.step)
    columns = {
        name: np.concatenate([getattr(one, name), getattr(other, name)[more]])
        for name in ("step", "time_us", "value")
    }
    order = np.argsort(columns["step"], kind="stable")
    return replace(one, **{name: values[order] for name, values in columns.items()})


def _own_name(one: Scalars) -> str:
    """As it was logged, if that does not say that it is something else."""
    return one.logged_as if one.logged_as not in CANONICAL else f"{one.logged_as} ({one.source})"


def _name(one: Scalars, chosen: Mapping[str, str]) -> tuple[str, str]:
    """Name and mode of a series."""
    for name, logged_as in chosen.items():
        if one.logged_as == logged_as:
            return as_canonical(name, one.mode)
    # The reader may know it by more than its name.
    known = canonical(one.logged_as, one.mode) or canonical(one.name, one.mode)
    name, mode = known or (one.logged_as, one.mode or mode_of(one.logged_as))
    if name in chosen:
        # Another one was chosen.
        name = _own_name(one)
    return name, mode


def _tensors(parts: Sequence[Learning], tally: Tally) -> TensorRecords | None:
    """The records of the source with most rows."""
    by_source: defaultdict[tuple[str, ...], list[TensorRecords]] = defaultdict(list)
    for part in parts:
        if part.tensors is not None:
            by_source[part.sources].append(part.tensors)
    if not by_source:
        return None
    best, *others = sorted(by_source.values(), key=lambda some: -sum(map(len, some)))
    tally.note("learning.other_source", count=sum(len(one) for some in others for one in some))
    if len(best) == 1:
        return best[0]
    return restarted(best, tally)


def _classes(parts: Sequence[Learning]) -> tuple[ClassCounts, ...]:
    """The evaluations; those of a step that was repeated after a restart are the later ones."""
    some = [(number, one) for number, part in enumerate(parts) for one in part.classes]
    modes = {one.mode: number for number, (_, one) in enumerate(some)}
    kept = latest(
        np.array([one.step for _, one in some], np.int64),
        np.array([modes[one.mode] for _, one in some], np.int32),
        np.array([number for number, _ in some], np.int64),
    )
    return tuple(some[i][1] for i in kept.tolist())
