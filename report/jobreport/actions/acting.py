"""Which actions fire after a round, and what becomes of them.

What was seen and done is kept in ``actions.json`` next to the report, so that a watch that starts again does nothing twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from jobreport.actions.configured import COMMAND, PLACE, STOP, WEBHOOK, Action, is_loopback
from jobreport.actions.running import Program
from jobreport.ended import ENDED
from jobreport.files import FILES
from jobreport.output.publish import ACTIONS
from jobreport.remarks import Remark
from jobreport.user_files import read
from jobrules.model import SECOND_US, Finding, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jobreport.document import Report

_STATE, _LOG, _PART = ACTIONS
#: Programs that run at once, and rounds without a finding after which an action may fire for it again.
_AT_ONCE, _ABSENT = 4, 3
#: Rounds that a finding must hold if no time is given.
_ROUNDS = 2
_MAX_FAILURES, _MAX_STATE = 100, 1 << 20
#: Characters of a sentence, sentences of the advice, and names of rules: a body stays below 64 kB in any encoding.
_MAX_TEXT, _MAX_ADVICE, _MAX_RULES = 1000, 5, 20
_WEBHOOK = Path(__file__).with_name("webhook.py")
#: Before each try of a webhook, and what it may take beyond its tries.
_PAUSES_S, _START_S = (0, 1, 4), 15.0


class _Held(Struct):
    """A finding that an action is for."""

    since_s: float
    severity: str
    title: str
    rounds: int = 0
    absent: int = 0
    is_fired: bool = False


class _State(Struct):
    schema: int = 1
    #: End of the samples; a job that starts after it is another run.
    end_us: int = 0
    #: By action and key of the finding.
    held: dict[str, dict[str, _Held]] = field(default_factory=dict)
    #: ``webhook on warning: HTTP status 500``.
    failures: list[str] = field(default_factory=list)


class _Fired(Struct, frozen=True):
    action: Action
    key: str
    argv: tuple[str, ...]
    given: bytes
    timeout_s: float

    @property
    def name(self) -> str:
        return f"{self.action.name} ({self.key})"


class Acting:
    """The actions of a watch; ``say`` prints a line."""

    def __init__(
        self,
        actions: Sequence[Action],
        folder: Path,
        say: Callable[[str], None],
        *,
        is_redacted: bool = False,
        is_dry: bool = False,
    ) -> None:
        self._actions, self._folder, self._say = actions, folder, say
        self._is_redacted, self._is_dry = is_redacted, is_dry
        self._state = _state_in(folder)
        self._waiting: deque[_Fired] = deque()
        self._running: list[tuple[_Fired, Program]] = []
        self._stop: tuple[str, float] | None = None

    def judge(self, report: Report, *, is_last: bool = False) -> None:
        """Fire what is due after a round. The last report is complete: in it, nothing must hold for a while."""
        fired = [
            one
            for number, action in enumerate(self._actions, start=1)
            for one in self._due(f"{number}: {action.name}", action, report, is_last=is_last)
        ]
        if self._is_dry:
            for one in fired:
                self._say(f"would fire: {one.name}")
            return
        if self._actions:
            # Before anything happens: what a crash interrupts is not done again.
            self._write()
        stops = [one for one in fired if one.action.do == STOP]
        self._stop = self._stop or next(((one.argv[0], one.action.grace_s) for one in stops), None)
        self._waiting += [one for one in fired if one not in stops]
        self.step()

    def _due(self, name: str, action: Action, report: Report, *, is_last: bool) -> Iterator[_Fired]:
        if report.job.start_us > self._state.end_us:
            self._state = _State()
        self._state.end_us = max(self._state.end_us, report.job.end_us)
        held = self._state.held.setdefault(name, {})
        found = {one.key: one for one in reversed(report.verdict.findings) if action.concerns(one)}
        for key in sorted(held.keys() - found.keys()):
            one = held[key]
            one.absent += 1
            if not one.is_fired or one.absent >= _ABSENT:
                del held[key]
                if one.is_fired and action.do == WEBHOOK:
                    known = {"key": key, "severity": one.severity, "title": one.title}
                    yield self._fired(action, key, known, report, "closed")
        for key, finding in found.items():
            one = held.setdefault(key, _Held(time.time(), finding.severity, finding.title[:_MAX_TEXT]))
            one.rounds, one.absent = one.rounds + 1, 0
            if not one.is_fired and _is_due(action, key, one, report, is_last=is_last):
                one.is_fired = True
                yield self._fired(action, key, _in_json(finding), report, "open")

    def step(self) -> bool:
        """Start what waits, end what takes too long. Returns whether anything is left."""
        for fired, program in [*self._running]:
            if (reason := program.step()) is not None:
                self._running.remove((fired, program))
                self._done(fired, reason, program.output)
        while self._waiting and len(self._running) < _AT_ONCE:
            fired = self._waiting.popleft()
            try:
                program = Program(fired.argv, fired.given, self._folder, fired.timeout_s)
            except (OSError, ValueError) as error:
                self._done(fired, getattr(error, "strerror", None) or str(error), b"")
            else:
                self._running.append((fired, program))
        return bool(self._running or self._waiting)

    def stop(self) -> tuple[str, float] | None:
        """Why the job is to be stopped, and the time that it has then; None if it is not, or not yet. Says it once."""
        if self._stop is None or self.step():
            return None
        due, self._stop = self._stop, None
        return due

    def finish(self) -> None:
        """Wait for all that was started; each has its time."""
        while self.step():
            time.sleep(0.05)

    def kill(self) -> None:
        """End all that runs."""
        for _, program in self._running:
            program.kill()

    def _fired(self, action: Action, key: str, finding: dict[str, Any], report: Report, state: str) -> _Fired:
        if action.do == STOP:
            rule = min(action.rules.intersection(finding["rules"]), default=key)
            return _Fired(action, key, (rule,), b"", 0.0)
        page = FILES["html"] if (self._folder / FILES["html"]).exists() else FILES["json"]
        path = str(self._folder / page)
        facts = {
            "schema": 1,
            "job": report.job.name,
            "finding": finding,
            "report": page if self._is_redacted else path,
            "state": state,
        }
        body = json.dumps(facts, ensure_ascii=False)
        if action.do == COMMAND:
            texts = {"finding.key": key, "job": report.job.name, "report": path}
            argv = tuple(PLACE.sub(lambda place: _text_of(place, texts), one) for one in action.argv)
            return _Fired(action, key, argv, body.encode("utf-8", "replace"), action.timeout_s)
        if action.is_slack:
            body = json.dumps({"text": _slack(facts)}, ensure_ascii=False)
        asked = {"url": action.url, "body": body, "timeout_s": action.timeout_s, "pauses_s": _PAUSES_S}
        asked["is_loopback"] = is_loopback(urlsplit(action.url).hostname or "")
        argv, timeout_s = (sys.executable, "-I", str(_WEBHOOK)), len(_PAUSES_S) * action.timeout_s + _START_S
        return _Fired(action, key, argv, json.dumps(asked).encode(), timeout_s)

    def _done(self, fired: _Fired, reason: str, output: bytes) -> None:
        if fired.action.do == WEBHOOK:
            reason, output = (output.decode("utf-8", "replace") or reason) if reason else "", b""
        if reason:
            self._say(f"{fired.name} failed: {reason}.")
            failed = [*self._state.failures, f"{fired.action.name}: {reason}"]
            self._state.failures = failed[-_MAX_FAILURES:]
            self._write()
        head = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC {fired.name}: {reason or 'done'}\n"
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
            with os.fdopen(os.open(self._folder / _LOG, flags, 0o666), "ab") as log:
                log.write(head.encode("utf-8", "replace") + output)

    def _write(self) -> None:
        part = self._folder / _PART
        try:
            part.unlink(missing_ok=True)
            with part.open("xb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(self._state), indent=1))
            part.replace(self._folder / _STATE)
        except OSError as error:
            self._say(f"{_STATE} cannot be written: {error.strerror}.")


def failures(folder: Path) -> tuple[Remark, ...]:
    """Actions that failed, for the page."""
    failed = _state_in(folder).failures[-_MAX_FAILURES:]
    return tuple(Remark(code="action.failed", count=1, fields={"error": one}) for one in failed)


def _state_in(folder: Path) -> _State:
    """What an earlier watch did; nothing if its file is missing or damaged."""
    try:
        return msgspec.json.decode(read(folder / _STATE, _MAX_STATE), type=_State)
    except (OSError, ValueError, RecursionError):
        return _State()


def _is_due(action: Action, key: str, one: _Held, report: Report, *, is_last: bool) -> bool:
    is_early = report.job.end_us - report.job.start_us < action.after_s * SECOND_US
    if is_last:
        # The job's bad end is a fact, however short the job was.
        return action.do != STOP and (key == ENDED or not is_early)
    if is_early:
        return False
    return one.rounds >= _ROUNDS if action.for_s is None else time.time() - one.since_s >= action.for_s


def _in_json(finding: Finding) -> dict[str, Any]:
    """What is sent of a finding."""
    return {
        "key": finding.key,
        "severity": finding.severity,
        "title": finding.title[:_MAX_TEXT],
        "evidence": in_words(finding.evidence)[: 2 * _MAX_TEXT],
        "advice": [one[:_MAX_TEXT] for one in finding.advice[:_MAX_ADVICE]],
        "rules": finding.rules[:_MAX_RULES],
        "share": finding.share,
        "start_us": finding.start_us,
    }


def _slack(facts: dict[str, Any]) -> str:
    """A message; names in it are no links, and call nobody."""
    finding = facts["finding"]
    state = finding["severity"] if facts["state"] == "open" else "over"
    text = f"{facts['job']}: {state}: {finding['title']}. {' '.join(finding.get('advice', ()))} {facts['report']}"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _text_of(place: Any, texts: dict[str, str]) -> str:
    return os.environ.get(place["env"], "") if place["env"] else texts[place["fact"]]
