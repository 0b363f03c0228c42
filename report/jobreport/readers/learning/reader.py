"""What jobrecord wrote about the training itself: ``jobrecord/training-<rank>.jsonl``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.names import as_name
from jobreport.readers.tally import Tally
from jobreport.remarks import SourceQuality
from jobrules.model.learning import Learning, LearningEvent, ReplicaDifference

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jobreport.readers.base import SourceFile
    from jobreport.readers.learning.lines import Head
    from jobreport.readers.learning.training_log import TrainingLog
    from jobrules.model.learning import ClassCounts

_NAME = re.compile(r"(?:.*/)?training-[0-9]{5}(?:-[0-9]{1,3})?\.jsonl(?:\.gz)?", re.DOTALL)
_HEAD = b'{"jobrecord":1'
_SHARDED = ("fsdp1", "fsdp2", "other")
_SHARDINGS, _AMP = ("none", "ddp", *_SHARDED), ("float16", "bfloat16")

#: A file, and its first line.
_Begun: TypeAlias = "tuple[SourceFile, Head]"


class TrainingLogs:
    """Reads what was recorded of the training, of one rank or of many."""

    source = "training recorded by jobrecord"
    looks_for = "files of jobrecord.log() and jobrecord.learn() (training-*.jsonl, also as .gz)"
    memory = 4.0
    rows = "rows"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """Only with its content."""
        return _NAME.fullmatch(file.name) is not None and "/jobrecord/" in f"/{file.name}"

    def matches_content(self, file: SourceFile) -> bool:
        """By its name and beginning."""
        return (
            _NAME.fullmatch(file.name) is not None
            and text_files.beginning(file.path, len(_HEAD) + 8).replace(b" ", b"")[: len(_HEAD)] == _HEAD
        )

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together: ranks are joined."""
        return {"": list(files)}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read the files of each start of the job, all ranks as one."""
        from jobreport.readers.learning.training_log import head_of  # noqa: PLC0415 - few jobs have such files

        tally = Tally()
        begun: list[_Begun] = []
        for file in sorted(files):
            with text_files.noting(file, tally):
                begun.append((file, head_of(file)))
        # Of copies the longest.
        begun.sort(key=lambda one: (one[1].time_us, -one[0].text_size, one[0]))
        starts = _starts(begun, tally)
        found: list[Learning] = []
        for some in starts:
            one = _read_start(some, len(begun), len(starts), tally)
            continued = [earlier for earlier in found if _goes_on(earlier.first_step, one.first_step)]
            tally.note("learning.not_continued", count=len(found) - len(continued), file=some[0][0].name)
            found = [*continued, one]
        rows = sum(len(one.tensors or ()) + sum(map(len, one.scalars)) for one in found)
        quality = SourceQuality(source=self.source, files=len(begun), rows=rows, remarks=tally.remarks())
        return Found(quality=quality, learning=tuple(found))


def _starts(begun: Sequence[_Begun], tally: Tally) -> list[list[_Begun]]:
    """The files of each start of the job: a rank that has another file was started again."""
    found: list[list[_Begun]] = []
    seen, ranks = set(), set[int]()
    for file, head in begun:
        process = head.rank, head.time_us, head.pid, head.node
        if process in seen:
            tally.note("learning.copy", file=file.name)
            continue
        seen.add(process)
        if not found or head.rank in ranks:
            found.append([])
            ranks = set()
        found[-1].append((file, head))
        ranks.add(head.rank)
    return [sorted(some, key=lambda one: one[1].rank) for some in found]


def _goes_on(first: int | None, then: int | None) -> bool:
    """Whether a start whose first step is ``then`` may go on what another began: it is not from before that."""
    return first is None or then is None or first <= then


def _read_start(files: Sequence[_Begun], all_files: int, starts: int, tally: Tally) -> Learning:
    """What the ranks of one start recorded; all starts and files share the memory, of which half is the first ranks'."""
    from jobreport.readers.learning.rows import MAX_ROWS  # noqa: PLC0415 - as above
    from jobreport.readers.learning.shards import JoinedRanks  # noqa: PLC0415
    from jobreport.readers.learning.training_log import SOURCE, read_log  # noqa: PLC0415

    logs: list[TrainingLog] = []
    joined = None
    for file, head in files:
        log = read_log(file, head, tally, all_files if logs else starts)
        if log.tensors is not None:
            joined = joined or JoinedRanks(is_split=log.head.sharding in _SHARDED)
            joined.add(log.head.rank, log.tensors)
            log.tensors = None
        logs.append(log)
    first = logs[0].head
    world = max(log.head.world or 0 for log in logs)
    ranks = tuple(log.head.rank for log in logs)
    tensors, differences = None, tuple[ReplicaDifference, ...]()
    not_recorded = {reason: None for log in logs for reason in log.not_recorded}
    if joined:
        most = MAX_ROWS if starts == 1 else 2 * MAX_ROWS // starts
        tensors = joined.joined(is_complete=len(ranks) >= world, most=most)
        differences = tuple(joined.differences)
        tally.note("learning.thinned", count=joined.left_out, file=files[0][0].name)
        tally.note("learning.incomplete", count=joined.incomplete, file=files[0][0].name)
        if joined.incomplete and len(ranks) < world:
            not_recorded[f"norms of shards: {len(ranks)} of {world} ranks have a file"] = None
    return Learning(
        scalars=tuple(one for log in logs for one in log.scalars),
        tensors=tensors,
        classes=_summed(logs),
        events=_events(event for log in logs for event in log.events),
        trees=next((log.trees for log in logs if log.trees), None),
        replicas=differences,
        node=as_name(first.node or ""),
        ranks=ranks,
        world_size=world,
        parameters=first.parameters or 0,
        trainable=first.trainable or 0,
        class_count=first.classes,
        optimizer=as_name((first.optimizer or "")[:100]),
        amp=first.amp if first.amp in _AMP else "",
        sharding=first.sharding if first.sharding in _SHARDINGS else "",
        accumulation=first.accumulation,
        compiled=bool(first.compiled),
        every=first.every,
        cost_us=max(log.cost_us for log in logs),
        not_recorded=tuple(not_recorded),
        sources=(SOURCE,),
    )


def _events(events: Iterable[LearningEvent]) -> tuple[LearningEvent, ...]:
    """Each event of a step once, whatever the number of ranks that have it."""
    found: dict[tuple[int, str, str], LearningEvent] = {}
    for one in events:
        found.setdefault((one.step, one.name, one.text), one)
    return tuple(found.values())


def _summed(logs: Sequence[TrainingLog]) -> tuple[ClassCounts, ...]:
    """The evaluations, each with what all ranks counted; a rank may evaluate several times at a step."""
    from jobrules.measures.learning.last_classes import added  # noqa: PLC0415 - as above

    found: dict[tuple[int, str, int], list[ClassCounts]] = {}
    for log in logs:
        times: dict[tuple[int, str], int] = {}
        for one in log.classes:
            number = times[one.step, one.mode] = times.get((one.step, one.mode), 0) + 1
            found.setdefault((one.step, one.mode, number), []).append(one)
    return tuple(added(found[key]) for key in sorted(found))
