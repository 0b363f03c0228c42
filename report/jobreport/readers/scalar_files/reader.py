"""Plain files of logged numbers, which have a step and rarely a time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.tally import Tally
from jobreport.remarks import SourceQuality
from jobrules.model import natural_key
from jobrules.model.learning import Learning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile
    from jobrules.model.learning import Scalars

_CSV = "CSV"
_BEGINNING = 4096
_Read: TypeAlias = "tuple[SourceFile, list[Scalars]]"


class TrainerStates:
    """Reads ``trainer_state.json``, of which a job has one for each checkpoint."""

    source = "states of Hugging Face's Trainer"
    looks_for = "trainer_state.json of Hugging Face's Trainer"
    memory = 10.0
    rows = "rows"
    names_machines = True

    def matches_name(self, _: SourceFile) -> bool:
        """No file by its name alone."""
        return False

    def matches_content(self, file: SourceFile) -> bool:
        """By the keys at its beginning."""
        if not file.name.lower().endswith((".json", ".json.gz")):
            return False
        beginning = text_files.beginning(file.path, _BEGINNING)
        is_object = beginning.lstrip()[:1] == b"{"
        return is_object and b'"log_history"' in beginning and b'"global_step"' in beginning

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together: each holds what the earlier ones do."""
        return {"": list(files)}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read the one with the last step."""
        from jobreport.readers.scalar_files.trainer_state import SOURCE, read_state  # noqa: PLC0415 - few jobs have one

        tally = Tally()
        states: list[_Read] = []
        for file in sorted(files, key=lambda one: natural_key(one.name)):
            with text_files.noting(file, tally):
                states.append((file, read_state(file, tally)))
        states.sort(key=lambda one: _last_step(one[1]))
        for file, scalars in states[:-1]:
            tally.note("learning.other_run", count=not _agree(scalars, states[-1][1]), file=file.name)
        return _found(self.source, SOURCE, [states[-1:]], tally)


class MetricTables:
    """Reads CSV of metrics by step or epoch."""

    source = "CSV of metrics"
    looks_for = "CSV of metrics by step or epoch, such as Lightning's metrics.csv"
    memory = 2.0
    rows = "rows"
    names_machines = True

    def matches_name(self, _: SourceFile) -> bool:
        """No file by its name alone."""
        return False

    def matches_content(self, file: SourceFile) -> bool:
        """By the names of its columns."""
        from jobreport.readers.scalar_files.tables import header_of  # noqa: PLC0415 - few jobs have such a file

        return header_of(file) is not None

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together: a training that was started again may have several."""
        return {"": list(files)}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Read all tables; those of the same columns are of the same writer."""
        from jobreport.readers.scalar_files.tables import read_table  # noqa: PLC0415 - as above

        tally = Tally()
        by_writer: defaultdict[tuple[str, ...], list[_Read]] = defaultdict(list)
        for file in sorted(files, key=lambda one: natural_key(one.name)):
            with text_files.noting(file, tally):
                header, logged = read_table(file, tally)
                number = [*by_writer, header].index(header) + 1
                source = _CSV if number == 1 else f"{_CSV} {number}"
                by_writer[header].append((file, logged.scalars(source)))
                tally.note("learning.again", count=logged.repeated, file=file.name)
        return _found(self.source, _CSV, [_last_training(some, tally) for some in by_writer.values()], tally)


def _last_training(read: Sequence[_Read], tally: Tally) -> list[_Read]:
    """The files of the last training, which begins with the last file that goes back to its beginning."""
    kept: list[_Read] = []
    for file, scalars in read:
        first = _first_step(scalars)
        for earlier in [one for one in kept if first <= _first_step(one[1])]:
            kept.remove(earlier)
            tally.note("learning.other_run", count=not _agree(earlier[1], scalars), file=earlier[0].name)
        kept.append((file, scalars))
    return kept


def _first_step(scalars: Sequence[Scalars]) -> int:
    return min(int(one.step[0]) for one in scalars)


def _last_step(scalars: Sequence[Scalars]) -> int:
    return max(int(one.step[-1]) for one in scalars)


def _agree(earlier: Sequence[Scalars], later: Sequence[Scalars]) -> bool:
    """Whether all that both have is the same."""
    from jobreport.readers.series import is_same  # noqa: PLC0415 - as above

    known = {one.logged_as: one for one in later}
    same = {is_same(known[one.logged_as], one) for one in earlier if one.logged_as in known}
    return True in same and False not in same


def _found(source: str, short: str, trainings: Sequence[Sequence[_Read]], tally: Tally) -> Found:
    read = [one for some in trainings for one in some]
    quality = SourceQuality(
        source=source,
        files=len(read),
        rows=sum(len(one) for _, scalars in read for one in scalars),
        remarks=tally.remarks(),
    )
    learning = (Learning(scalars=tuple(scalars), sources=(short,)) for _, scalars in read)
    return Found(quality=quality, learning=tuple(learning))
