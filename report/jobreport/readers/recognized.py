"""Files that are not read, known by their first lines: ``REMARKS`` says what each one is and what works instead."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from jobreport.readers import text_files
from jobreport.readers.nvidia_smi.columns import columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobreport.readers.base import SourceFile

#: Bytes of a file that show what it is.
_BEGINNING = 4096
#: Bytes of a line that may be one of a log.
_LINE = 4096
_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}

#: Codes of remarks, and how files of that kind begin; the first one that matches counts.
_KINDS = {
    "recognized.lfs": r"\s*version https://git-lfs\.github\.com/spec/v1",
    "recognized.excel": r"PK\x03\x04[\s\S]*?(?:\[Content_Types\]\.xml|xl/)",
    "recognized.archive": r"PK\x03\x04|BZh\d|\ufffd7zXZ|[\s\S]{257}ustar",
    "recognized.wandb": r":W&B|[\w.,/ ]*\b_(?:timestamp|runtime)\b.*system[./]gpu[./]\d+[./]gpu\b",
    "recognized.stats": r"\s*\d+ *, *(?:\w+Util|\w+Clk|\w+Samples|pwrDraw|temp) *, *\d+ *, *\d+",
    "recognized.gpu_list": r"\s*GPU \d+: .*\(UUID: ",
    "recognized.gputil": r"\s*\| *ID *\|.*GPU.*\| *MEM",
    "recognized.dcgmi": r"\s*# ?Entity ",
    "recognized.prometheus": r"\s*# (?:HELP|TYPE) \w+|\s*\{\"status\":\"success\",\"data\":\{\"resultType\"",
    "recognized.codecarbon": r"(?=[^\n]*\bemissions_rate\b)[^\n]*\benergy_consumed\b",
    # A log that was cut begins anywhere.
    "recognized.sysstat": r"\s*Linux \d\S* \([^\n]*CPU\)"
    r"|(?:(?!.*gpu)[^,\n]*\n){0,9}?[ \t]*(?:avg-cpu:|Device:?[ \t]+(?:tps|r/s|rrqm/s))",
    "recognized.vmstat": r"\s*procs -+memory",
    "recognized.top": r"\s*top - \d+:\d\d:\d\d up ",
    "recognized.dool": r'"?(?:dool|dstat|pcp-dstat) [\d.]+ CSV',
    "recognized.tegrastats": r"\s*(?:[\d-]+ [\d:]+ )?RAM \d+/\d+MB",
    "recognized.rocm": r"(?:.*\n){0,9}?(?:=+ ROCm System Management Interface|device,.*(?:Graphics Package|GPU use))",
    "recognized.amd": r"(?:.*\n){0,9}?(?:GPU: \d+\n +\w+:\n|.*\bgfx_activity\b)",
    "recognized.execution_trace": r'\s*\{\s*"schema"\s*:\s*"[^"]*"[\s\S]*?"nodes"\s*:\s*\[',
    "recognized.memory": r"\s*\[\[(?:-?\d+(?:, *-?\d+){3}\]|\d{13,}, *\d{13,})"
    r"|\ufffd[\x02-\x05][\s\S]{0,40}?(?:segments|device_traces)",
    "recognized.chrome": r'\s*(?:\{[\s\S]*?"traceEvents"|\[\s*\{[^{}]*"ph")\s*:(?![\s\S]*start_time_since_epoch)',
    "recognized.json_table": r'\s*\{"[^"]*(?:gpu|util|power|time)[^"]*":\s*\{"0":',
    "recognized.json": r'\s*(?:\[\s*)?\{(?![\s\S]*"(?:query_time|Dimension|ph)")[\s\S]*?"[^"]*(?:gpu|util|power)[^"]*"[\s\S]*?\}\s*,?\s*\{',
}
#: Of files that no reader takes: their lines may stand between the rows of a log.
_OTHER_KINDS = {
    "recognized.megatron": r"[\s\S]*?\biteration +\d+/ *\d+ *\|",
    "recognized.csv": r"[^\n,]+,[^\n,]+,[^\n]*\n[^\n,]*,",
}
#: The page of SageMaker Debugger, which is made from results.
_DEBUGGER_PAGE = "profiler-report.html"
#: Recordings of Nsight Systems, whose bytes show nothing.
_NSYS = (".nsys-rep", ".qdrep")
_FAILURES = (
    "NVIDIA-SMI has failed",
    "Make sure that the latest NVIDIA driver",
    "Failed to initialize NVML",
    "No devices were found",
)
_SEPARATORS = re.compile(r"[,;\t]")
#: Begins lines of names and of units in dmon and pmon.
_MARK = "#"
_NUMBER = re.compile(r"[-+]?[0-9][0-9.]*%?")
#: Names of columns that are looked at.
_NAMES = 256


class Recognized(Struct, frozen=True, kw_only=True):
    """Why a file is not read: code and fields of the remark."""

    code: str
    fields: dict[str, Any] = {}


def recognized(file: SourceFile) -> Recognized | None:
    """What a file is that cannot be read; ``None`` if neither its lines nor its name show it."""
    if file.name.endswith(_NSYS):
        return Recognized(code="recognized.nsys")
    if file.own_name == _DEBUGGER_PAGE:
        return Recognized(code="recognized.debugger_page")
    try:
        beginning = next(text_files.chunks(file.path), b"")[:_BEGINNING]
        # The lines of a log are short; looking for the end of a long one might read all of the file.
        has_lines = len(beginning) < _BEGINNING or b"\n" in beginning
        code = _kind(beginning) or (_nothing_but(_lines(file)) if has_lines else "")
    except text_files.DamagedError:
        return None
    except OSError as error:
        return Recognized(code="file.unreadable", fields={"reason": error.strerror or ""})
    return Recognized(code=code) if code else None


def recognized_last(file: SourceFile) -> Recognized | None:
    """What a file is that no reader takes; ``None`` if its lines do not show it."""
    code = _kind(text_files.beginning(file.path, _BEGINNING), _OTHER_KINDS)
    is_other = code == "recognized.csv" and ".csv" not in file.own_name.lower()
    return Recognized(code=code) if code and not is_other else None


def _kind(beginning: bytes, kinds: Mapping[str, str] = _KINDS) -> str:
    text = beginning.decode(_MARKS.get(beginning[:2], "utf-8"), "replace").replace("\r\n", "\n")
    return next((code for code, pattern in kinds.items() if re.match(pattern, text, re.IGNORECASE)), "")


def _lines(file: SourceFile) -> Iterator[str]:
    """The lines that are not blank, those of UTF-16 without their zeros; a long one is empty."""
    for line in text_files.lines(file.path, _LINE):
        text = "" if line is None else line.replace(b"\0", b"").decode("utf-8", "ignore").strip()
        if line is None or text:
            yield text


def _nothing_but(lines: Iterator[str]) -> str:
    """The code of a text in which all lines are of one kind; it is read no further than to the first other one."""
    first = next(lines, None)
    if first is None:
        return "file.empty"
    if first.startswith(_FAILURES):
        return "recognized.no_driver" if all(line.startswith(_FAILURES) for line in lines) else ""
    units = (line for line in lines if not line.startswith(_MARK))
    return "recognized.header" if _names_columns(first) and all(map(_names_columns, units)) else ""


@lru_cache(16)  # such lines come again and again
def _names_columns(line: str) -> bool:
    """True for a line that names columns of a log, as ``--query-gpu``, ``dmon``, and scripts do."""
    plain = line.lstrip(_MARK)
    names = _SEPARATORS.split(plain) if _SEPARATORS.search(plain) else plain.split()
    names = [name.strip(' "') for name in names[:_NAMES]]
    # A command, JSON, and values with their names name columns too, and rows may end with a carriage return.
    has_values = ": " in line or {*"={\r"} & {*line} or any(map(_NUMBER.fullmatch, names))
    return sum(map(bool, columns(names))) > 1 and not has_values
