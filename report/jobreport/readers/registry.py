"""From a job directory to a ``Job``: each file goes to the first reader that matches it."""

from __future__ import annotations

import sys
from dataclasses import fields
from dataclasses import replace as replace_fields
from datetime import UTC
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from jobreport.errors import NothingReadableError, UsageError
from jobreport.options import Options
from jobreport.progress import Progress
from jobreport.readers.combining import nodes_of, sources_of
from jobreport.readers.debugger_results import rule_results
from jobreport.readers.grouping import groups_of, note_failure, read_groups
from jobreport.readers.implausible_times import drop_implausible_times
from jobreport.readers.kineto.reader import Kineto
from jobreport.readers.learning.reader import TrainingLogs
from jobreport.readers.listing import is_end_marker, is_recorder_note, job_name, listing
from jobreport.readers.machines import assign_logs
from jobreport.readers.profiler_config.reader import ProfilerConfig
from jobreport.readers.python_profiles.reader import PythonProfiles
from jobreport.readers.python_stacks.reader import PythonStacks
from jobreport.readers.recognized import Recognized, recognized, recognized_last
from jobreport.readers.recorder_facts.reader import RecorderFacts
from jobreport.readers.runs import chosen_command, chosen_run, command_runs
from jobreport.readers.saved_tensors.reader import SavedTensors
from jobreport.readers.scalar_files.reader import MetricTables, TrainerStates
from jobreport.readers.system_samples.reader import SystemSamples
from jobreport.readers.tally import Tally
from jobreport.readers.tensorboard.reader import TensorBoard
from jobreport.readers.traces.reader import Traces
from jobreport.remarks import RECORD, Quality, Remark
from jobreport.tables.engine import LocalEngine
from jobreport.tables.parts import JobInParts, Kept
from jobrules.model import JobInMemory, natural_sorted
from jobrules.text import count, escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import tzinfo
    from pathlib import Path

    from jobreport.readers.base import Reader, SourceFile
    from jobreport.readers.debugger_results.rule_results import RuleResults
    from jobreport.readers.grouping import Piece
    from jobreport.remarks import SourceQuality
    from jobreport.tables.engine import Engine
    from jobrules.model import Job, LoopFacts
    from jobrules.model.learning import Learning

__all__ = ["READERS", "Reading", "job_name", "read_directory", "read_job"]

#: Asked in this order, and last that of logs. If two have the same metric of the same node, the first one's samples
#: are used.
READERS: tuple[Reader, ...] = (
    SystemSamples(),
    PythonProfiles(),
    PythonStacks(),
    ProfilerConfig(),
    TrainingLogs(),
    TrainerStates(),
    RecorderFacts(),
    SavedTensors(),
    Kineto(),
    Traces(),
    TensorBoard(),
)

#: Asked after that of logs, whose columns a table may have, too.
_LAST: tuple[Reader, ...] = (MetricTables(),)

#: Remarks in the message if nothing can be read, and the codes of those that go before all others.
MAX_REASONS = 3
_ABOUT_LOGS = ("recognized.", "nvidia_smi.", "file.empty")
#: Those of files that the system does not open: other forms of logs do not help.
_DENIED = ("directory.denied", "directory.folder", "file.unreadable", "traces.unreadable")
#: Those that name a command or an option.
_WITH_HELP = ("recognized.", "nvidia_smi.no_header", "nvidia_smi.column_count", "nvidia_smi.date_order")


class Reading(Struct, frozen=True, kw_only=True, eq=False):
    """A job directory, read."""

    job: JobInParts
    quality: Quality
    #: Results of SageMaker Debugger's rules, alone or next to records of the job itself.
    debugger_results: RuleResults | None = None

    @property
    def has_results_alone(self) -> bool:
        """True if there are rule results and no records of the job itself."""
        return self.debugger_results is not None and not has_records(self.job)


def read_job(directory: Path, *, strict: bool = False) -> tuple[JobInMemory, Quality]:
    """The job in a directory, all of it in memory. Raises ``NothingReadableError`` for rule results alone."""
    reading = read_directory(directory, Options(strict=strict), engine=LocalEngine(1, in_memory=sys.maxsize))
    if reading.has_results_alone:
        raise NothingReadableError(f"{escape_name(str(directory), 200)} holds rule results, but no samples.")
    known = {one.name: getattr(reading.job, one.name) for one in fields(JobInMemory)}
    return JobInMemory(**known), reading.quality


def read_directory(
    directory: Path,
    options: Options | None = None,
    *,
    name: str | None = None,
    shown: object = None,
    leave: Collection[str] = (),
    files: Sequence[SourceFile] | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Reading:
    """Everything that the readers find in a directory, and what became of its files.

    ``name`` of the job defaults to the directory's; messages name ``shown``, such as an archive that was unpacked there.
    The ``engine`` reads the files and keeps the tables, by default in this process. ``leave`` are absolute paths to
    skip; ``files`` are read instead of all files of the directory. A reader that raises costs its own files and a remark, unless ``options.strict``. Raises
    ``NothingReadableError`` if nothing is left to report, and ``UsageError`` for an unknown time zone, an empty list of
    columns, and a run that is not there.
    """
    engine, progress, options = engine or LocalEngine(1), progress or Progress(), options or Options()
    name, tally = name or job_name(directory), Tally()
    zone = _zone(options.timezone) if options.timezone else UTC
    columns = _columns(options.columns) if options.columns is not None else ()
    found = tuple(files) if files is not None else listing(directory, tally, leave)
    matched = _matched(found, _logs(found, options, zone, columns))
    for file, kind in matched.recognized:
        tally.note(kind.code, file=file.name, **kind.fields)
    size = sum(file.size for some in matched.of_readers.values() for file in some)
    progress.stage(f"Reading {escape_name(name)}", size, "B")

    groups = [
        group for reader, some in matched.of_readers.items() if some for group in groups_of(reader, some)
    ]
    pieces = read_groups(engine, groups, progress, strict=options.strict)
    commands, pieces = command_runs(pieces), assign_logs(pieces, engine, zone)
    if len(commands) > 1:
        pieces, runs = chosen_command(drop_implausible_times(pieces, engine), engine, commands, options.run)
    else:
        pieces, runs = chosen_run(pieces, engine, options.run)
        pieces = pieces if runs else drop_implausible_times(pieces, engine)
    sources, learning = _learned(pieces, sources_of(pieces, tally), options, tally)
    results = _debugger_results(matched.debugger_results, tally, strict=options.strict)

    job = replace_fields(_job_of(pieces, name, engine, tally), learning=learning)
    if has_records(job):
        sources += [_used_in_addition(results)] if results else []
        job = replace_fields(job, loop_facts=_loop_facts(results) if results else None)
    elif results and results.documents:
        sources.append(results.quality)
    else:
        known = [*sources, results.quality] if results else sources
        remarks = [*(remark for one in known for remark in one.remarks), *tally.remarks()]
        raise NothingReadableError(_nothing_readable(shown or directory, matched.all, remarks))
    for file in matched.unknown:
        tally.note("directory.unknown", file=file.name)
    if matched.has_end_marker:
        job = replace_fields(job, finished=True)
    quality = Quality(sources=tuple(sources), remarks=tally.remarks(), runs=runs)
    return Reading(job=job, quality=quality, debugger_results=results)


def has_records(job: Job) -> bool:
    """Whether anything was recorded of the job itself."""
    return bool(job.facts or job.captures or job.learning)


def is_known_by_name(file: SourceFile) -> bool:
    """Whether the name alone shows that a file is read."""
    by_name = (reader.matches_name(file) for reader in READERS)
    return is_end_marker(file) or rule_results.matches_content(file) or any(by_name)


def may_be_known(file: SourceFile) -> bool:
    """Whether its content may show that a file is read, by its suffix."""
    from jobreport.readers.nvidia_smi.reader import may_be_log  # noqa: PLC0415 - most jobs have no logs

    return may_be_log(file) or ".jsonl" in file.own_name


def known_by_content(files: Sequence[SourceFile], options: Options) -> set[str]:
    """Names of the files whose beginning shows what they are."""
    columns = _columns(options.columns) if options.columns is not None else ()
    matched = _matched(files, _logs(files, options, UTC, columns))
    return {one.name for one in files} - {one.name for one in matched.unknown}


def _logs(
    files: Sequence[SourceFile], options: Options, zone: tzinfo, columns: Sequence[str]
) -> Callable[[], Reader]:
    @cache
    def logs() -> Reader:
        from jobreport.readers.nvidia_smi.reader import NvidiaSmi  # noqa: PLC0415 - as above

        return NvidiaSmi(zone, columns, options.date_order or "", files)

    return logs


def _job_of(pieces: Sequence[Piece], name: str, engine: Engine, tally: Tally) -> JobInParts:
    """The job that all pieces are of; captures that are copies of others are counted."""
    nodes = nodes_of(pieces, engine, tally)
    captures = tuple(capture for piece in pieces for capture in piece.found.captures)
    across_ranks = None
    if captures:
        from jobrules.captures.across import joined  # noqa: PLC0415 - most jobs have no traces of PyTorch

        captures, across_ranks = joined(
            captures, [one for piece in pieces for one in piece.found.communication]
        )
    for capture in captures:
        tally.note("kineto.copy", count=bool(capture.copy_of), file=capture.file, name=capture.copy_of)
    finished = [piece.found.finished for piece in pieces if piece.found.finished is not None]
    return JobInParts(
        name=name,
        engine=engine,
        kept=tuple(
            Kept(facts=nodes[node][0], handles=nodes[node][1])
            for node in natural_sorted(set(nodes))
            # Of a machine with nothing but stacks, not even a time is known.
            if nodes[node][0].records
        ),
        profiles=tuple(profile for piece in pieces for profile in piece.found.profiles),
        captures=captures,
        across_ranks=across_ranks,
        recorded=tuple(line for piece in pieces for line in piece.found.recorded),
        finished=any(finished) if finished else None,
    )


def _learned(
    pieces: Sequence[Piece], sources: list[SourceQuality], options: Options, tally: Tally
) -> tuple[list[SourceQuality], Learning | None]:
    """The sources, those with facts of a recording also with what its script logged; and the training itself."""
    parts = [one for piece in pieces for one in piece.found.learning]
    if not parts:
        if options.scalar:
            raise UsageError("--scalar: no numbers of a training were found.")
        return sources, None
    from jobreport.readers.learning import joining  # noqa: PLC0415 - most jobs have none

    learning = joining.joined(parts, options.scalar, tally)
    if learning is None or not learning.ranks:
        return sources, learning
    logged = joining.logged(learning)
    return [
        replace(
            one,
            recordings=tuple(
                replace(known, logged=logged) if known.node == learning.node else known
                for known in one.recordings
            ),
        )
        for one in sources
    ], learning


def _zone(name: str) -> tzinfo:
    from jobreport.readers.nvidia_smi.times import zone_of  # noqa: PLC0415 - most jobs have no logs

    return zone_of(name)


def _columns(names: str) -> tuple[str, ...]:
    from jobreport.readers.nvidia_smi.headed import column_names  # noqa: PLC0415 - as above

    return column_names(names)


def _loop_facts(results: RuleResults) -> LoopFacts:
    from jobreport.readers.debugger_results.loop import loop_facts  # noqa: PLC0415 - as above

    return loop_facts(results)


class _Files(Struct, kw_only=True):
    """The files of a directory by what reads them."""

    all: Sequence[SourceFile]
    of_readers: dict[Reader, list[SourceFile]]
    debugger_results: list[SourceFile] = field(default_factory=list)
    recognized: list[tuple[SourceFile, Recognized]] = field(default_factory=list)
    unknown: list[SourceFile] = field(default_factory=list)
    has_end_marker: bool = False


def _matched(files: Sequence[SourceFile], logs: Callable[[], Reader]) -> _Files:
    """The files, each with the first reader that matches its name, or else its content."""
    found = _Files(all=files, of_readers={reader: [] for reader in READERS})
    for file in files:
        if is_end_marker(file):
            found.has_end_marker = True
        elif is_recorder_note(file):
            continue
        elif rule_results.matches_content(file):
            found.debugger_results.append(file)
        else:
            match _reader_of(file, logs):
                case None:
                    found.unknown.append(file)
                case Recognized() as kind:
                    found.recognized.append((file, kind))
                case reader:
                    found.of_readers.setdefault(reader, []).append(file)
    return found


def _reader_of(file: SourceFile, logs: Callable[[], Reader]) -> Reader | Recognized | None:
    """The reader of a file, or why it is not read. What is recognized is no log, whatever its columns are called."""
    by_name = (reader for reader in READERS if reader.matches_name(file))
    by_content = (reader for reader in READERS if reader.matches_content(file))
    return (
        next(by_name, None)
        or next(by_content, None)
        or recognized(file)
        or (logs() if logs().matches_content(file) else None)
        or next((reader for reader in _LAST if reader.matches_content(file)), None)
        or recognized_last(file)
    )


def _debugger_results(files: Sequence[SourceFile], tally: Tally, *, strict: bool) -> RuleResults | None:
    if not files:
        return None
    try:
        return rule_results.read(files)
    except Exception as error:
        if strict:
            raise
        note_failure(tally, rule_results.SOURCE, files, error)
        return None


def _used_in_addition(results: RuleResults) -> SourceQuality:
    """Quality of rule results beside records of the job itself: what the records lack comes from the results."""
    quality, names = results.quality, [one.file for one in results.documents]
    used = [
        Remark(code="debugger.in_addition", count=len(names), place=escape_name(name, 200))
        for name in names[:1]
    ]
    return replace(quality, files=len(names), rows=len(names), remarks=(*used, *quality.remarks))


def _nothing_readable(directory: object, files: Sequence[SourceFile], remarks: Sequence[Remark]) -> str:
    """What was found, what went wrong first, and what works instead."""
    name = escape_name(str(directory), 200)
    if not files and not remarks:
        return f"{name} is empty. Check the path given with --job-dir."
    text = f"No readable input in {name}:"
    denied = bool(remarks) and all(one.code in _DENIED for one in remarks)
    if files and not denied:
        more = "such as " if len(files) > 1 else ""
        text += f" {count(len(files), 'file')} found ({more}{escape_name(files[0].name, 200)})."
    about_logs = [one for one in remarks if one.code.startswith(_ABOUT_LOGS) and one.action != "corrected"]
    for one in (about_logs or remarks)[:MAX_REASONS]:
        unit, where = one.unit.removesuffix("s"), f" ({one.place})" if one.place else ""
        text += f" {count(one.count, unit, one.unit)} {one.action}: {one.reason}{where}."
    if denied:
        return text
    if not about_logs:
        from jobreport.readers.nvidia_smi.reader import NvidiaSmi  # noqa: PLC0415 - as above

        supported = [reader.looks_for for reader in (*READERS, *_LAST, NvidiaSmi()) if reader.looks_for]
        supported.append(rule_results.LOOKS_FOR)
        text += " For a CSV of GPUs with names of its own, add --columns timestamp,index,utilization.gpu,…"
        text += f" with a name for each column. Supported: {'; '.join(supported)}."
    elif about_logs[0].code.startswith(_WITH_HELP):
        return f"{text} See docs/job-directory.md."
    return f"{text} A log that is read: {RECORD}. See docs/job-directory.md."
