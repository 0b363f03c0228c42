"""What the profiler was configured to record: ``profilerconfig.json``, or the description of the job.

Both are JSON, but may have trailing commas. The settings of one kind of record are a dictionary written as text, with
trailing commas, in lower case, or in single quotes.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
from typing import TYPE_CHECKING, TypeAlias

from jobreport.formats import date_time
from jobreport.readers import text_files
from jobreport.readers.base import Found
from jobreport.readers.bounds import EARLIEST_S, LATEST_S
from jobreport.readers.tally import Tally, UnusableError
from jobreport.remarks import SourceQuality
from jobrules.model import SECOND_US
from jobrules.text import NBSP, count, duration, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobreport.readers.base import SourceFile

#: Keys in lower case.
Settings: TypeAlias = dict[str, object]

_NAME = "profilerconfig.json"
_CONFIG, _PARAMETERS = "profilerconfig", "profilingparameters"
_INTERVAL, _DISABLED = "profilingintervalinmilliseconds", "disableprofiler"
_KNOWN = {_PARAMETERS, _INTERVAL, _DISABLED, "profilerenabled", "s3outputpath"}
_KINDS = {
    "detailedprofilingconfig": "Operators",
    "dataloaderprofilingconfig": "Data loading",
    "pythonprofilingconfig": "Python code",
    "horovodprofilingconfig": "Horovod",
    "smdataparallelprofilingconfig": "SMDataParallel",
}
_PROFILERS = {"cprofile": "cProfile", "pyinstrument": "Pyinstrument"}
_TIMERS = {
    "total_time": "total time",
    "cpu_time": "CPU time",
    "off_cpu_time": "time off the CPU",
    "default": "total time, CPU time and time off the CPU in turn",
}
_MAX_BYTES = 1 << 20
#: Characters of the settings of one kind of record, as Python's parser may take any time and memory.
_MAX_TEXT = 4096
#: Steps, seconds or milliseconds.
_MAX_NUMBER = 1e12

#: Also matches a text that never ends, so that no character is read twice.
_COMMA_BEFORE_END = re.compile(r'("(?:[^"\\]++|\\.)*+"?)|' r",(\s*[}\]])", re.DOTALL)


class ProfilerConfig:
    """Reads what the profiler was configured to record."""

    source = "profiler configuration"
    looks_for = ""
    memory = 0.0
    rows = "samples"
    names_machines = True

    def matches_name(self, file: SourceFile) -> bool:
        """By ``profilerconfig.json`` at the name's end."""
        return _plain_name(file).endswith(_NAME)

    def matches_content(self, file: SourceFile) -> bool:
        """By the keys of a configuration in a small JSON object."""
        return _plain_name(file).endswith(".json") and _holds_config(file)

    def groups(self, files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
        """All together."""
        return {"": list(files)}

    def read(self, files: Sequence[SourceFile]) -> Found:
        """Put every configuration into words, each line once."""
        tally = Tally()
        recorded: dict[str, None] = {}
        used = 0
        for file in sorted(files):
            with text_files.noting(file, tally):
                recorded.update(dict.fromkeys(_lines(_config(file))))
                used += 1
        quality = SourceQuality(source=self.source, files=used, rows=len(recorded), remarks=tally.remarks())
        return Found(quality=quality, recorded=tuple(recorded))


class _SettingError(Exception):
    """Why a setting is unusable, as the end of a line."""


def _plain_name(file: SourceFile) -> str:
    return file.own_name.lower().removesuffix(".gz")


def _holds_config(file: SourceFile) -> bool:
    try:
        is_object = text_files.beginning(file.path).lstrip().startswith(b"{")
        return is_object and not {_CONFIG, _PARAMETERS}.isdisjoint(_parsed(_text(file)))
    except UnusableError:
        return False


def _text(file: SourceFile) -> str:
    try:
        return text_files.content(file.path, _MAX_BYTES).decode()
    except UnicodeDecodeError:
        raise UnusableError("file.not_utf8") from None


def _parsed(text: str) -> Settings:
    try:
        value = json.loads(_COMMA_BEFORE_END.sub(lambda match: match[1] or match[2], text))
    except (ValueError, RecursionError):
        raise UnusableError("file.not_json") from None
    if not isinstance(value, dict):
        raise UnusableError("file.not_object")
    return _lower(value)


def _lower(settings: dict[str, object]) -> Settings:
    return {key.lower(): value for key, value in settings.items()}


def _config(file: SourceFile) -> Settings:
    """The settings of the profiler, at the top or in the description of a job."""
    settings = _parsed(_text(file))
    config = settings.get(_CONFIG, settings)
    if not isinstance(config, dict):
        raise UnusableError("config.no_settings")
    config = _lower(config)
    if config and _KNOWN.isdisjoint(config):
        raise UnusableError("config.no_settings")
    return config


def _lines(config: Settings) -> list[str]:
    if _truth(config.get(_DISABLED)):
        return ["Profiler disabled"]
    lines = []
    if _given(config, _INTERVAL):
        lines.append(f"System samples {_interval(config[_INTERVAL])}")
    parameters = config.get(_PARAMETERS)
    if parameters is None or parameters == {}:
        return [*lines, "Framework profiling disabled"]
    try:
        parameters = _settings(parameters)
    except _SettingError as error:
        return [*lines, f"Framework profiling: {error}"]
    kinds = [
        f"{label}{_kind(key, parameters[key])}" for key, label in _KINDS.items() if _given(parameters, key)
    ]
    return lines + (kinds or ["Operators, data loading and Python code: not recorded"])


def _given(parameters: Settings, key: str) -> bool:
    return parameters.get(key) not in (None, "")


def _kind(key: str, value: object) -> str:
    """``: step 5``, ``(cProfile, total time): steps 9 to 11``, ``: not recorded: …``."""
    try:
        settings = _settings(value)
        profiler = f" ({_profiler(settings)})" if key == "pythonprofilingconfig" else ""
        return f"{profiler}: {_limits(settings)}"
    except _SettingError as error:
        return f": {error}"


def _profiler(settings: Settings) -> str:
    name = _word(settings, "profilername", "cprofile")
    profiler = _PROFILERS.get(name.lower())
    if profiler is None:
        raise _SettingError("not recorded: unknown profiler")
    if profiler != "cProfile":
        return profiler
    timer = _word(settings, "cprofiletimer", "total_time")
    return f"{profiler}, {_TIMERS.get(timer.lower(), 'unknown timer')}"


def _word(settings: Settings, key: str, otherwise: str) -> str:
    value = settings.get(key) or otherwise
    if not isinstance(value, str):
        raise _SettingError("settings cannot be read")
    return value


def _limits(settings: Settings) -> str:
    first, steps = _number(settings, "startstep"), _number(settings, "numsteps")
    start_s, lasts_s = _number(settings, "starttimeinsecsinceepoch"), _number(settings, "durationinseconds")
    by_step, by_time = (first, steps) != (None, None), (start_s, lasts_s) != (None, None)
    if by_step and by_time:
        raise _SettingError("not recorded: step and time limits contradict each other")
    if by_step:
        return _steps(first, 1 if steps is None else steps)
    if by_time:
        return _time(start_s, lasts_s)
    return "no steps or time given"


def _steps(first: float | None, steps: float) -> str:
    if steps < 1:
        raise _SettingError("not recorded: the number of steps is 0")
    if first is None:
        return f"{count(int(steps), 'step')} from the current step"
    last = int(first) + int(steps) - 1
    return f"step {number(int(first))}" if last == first else f"steps {number(int(first))} to {number(last)}"


def _time(start_s: float | None, lasts_s: float | None) -> str:
    if start_s is not None and not EARLIEST_S <= start_s <= LATEST_S:
        raise _SettingError("start is not a time in seconds between 1990 and 2100")
    start = "the start" if start_s is None else date_time(round(start_s * SECOND_US))
    if lasts_s is None:
        return f"from {start} to the next step"
    return f"for {duration(lasts_s * SECOND_US)} from {start}"


def _interval(value: object) -> str:
    try:
        ms = _number({"interval": value}, "interval")
    except _SettingError:
        ms = None
    if not ms:
        return "at an interval that cannot be read"
    return f"every {ms:g}{NBSP}ms" if ms < 1000 else f"every {duration(ms * 1000)}"


def _number(settings: Settings, key: str) -> float | None:
    """A number, or the text of one; None if it is not given."""
    value = settings.get(key)
    if value is None or value == "":
        return None
    try:
        amount = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        amount = math.nan
    if isinstance(value, bool) or not 0 <= amount <= _MAX_NUMBER:
        raise _SettingError("limits cannot be read")
    return amount


def _truth(value: object) -> bool:
    """True if a setting is on, which may be written as 1."""
    if isinstance(value, str):
        return value.strip().lower() in ("true", "1")
    return isinstance(value, int | float) and value == 1


def _settings(value: object) -> Settings:
    """A dictionary, or the text of one in JSON or Python."""
    if isinstance(value, str) and len(value) <= _MAX_TEXT:
        try:
            return _parsed(value)
        except UnusableError:
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                value = ast.literal_eval(value.strip())
    if isinstance(value, dict):
        return _lower({key: one for key, one in value.items() if isinstance(key, str)})
    raise _SettingError("settings cannot be read")
