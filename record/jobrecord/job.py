"""The user's command as a child: its signals, its terminal, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: A second interrupt kills the job after this time.
KILL_S = 10
_PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGTSTP")


class JobStartError(Exception):
    """The command cannot be run; with the exit status of a shell for that."""

    def __init__(self, command: str, error: OSError) -> None:
        missing = isinstance(error, FileNotFoundError)
        super().__init__(f"{command}: {'command not found' if missing else error.strerror}.")
        self.exit_status = 127 if missing else 126


class Job:
    """A running command, in a process group of its own; raises JobStartError.

    Signals are passed on to that group, so that each of its processes gets them once. In a terminal the group is
    the foreground one, as under a shell: Ctrl-C and Ctrl-Z go to it alone.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._interrupts = 0
        self._stop_s: float | None = None
        #: Called if the job is asked to end.
        self.on_term: Callable[[], None] = lambda: None
        if os.name != "posix":
            self._process = _started(command, environment)
            return
        self._terminal = _is_foreground()
        # What was ignored before, such as SIGHUP under nohup, stays ignored.
        passed_on = {getattr(signal, name) for name in _PASSED_ON}
        passed_on = {number for number in passed_on if signal.getsignal(number) is not signal.SIG_IGN}
        # Signals are waited for, not handled: none is lost between the start of the child and the wait for its end.
        self._signals = {*passed_on, signal.SIGCHLD, signal.SIGALRM}
        signal.signal(signal.SIGCHLD, lambda *_: None)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)

        def prepare_child() -> None:
            os.setpgid(0, 0)
            if self._terminal:
                _to_foreground(os.getpgrp())
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        self._process = _started(command, environment, prepare_child)

    @property
    def pid(self) -> int:
        """Number of the process, and of its group."""
        return self._process.pid

    def wait(self, asked_to_stop: Callable[[], float | None] = lambda: None) -> int:
        """Wait for the end of the command; its exit status, or minus the signal that killed it.

        `asked_to_stop` is asked after each SIGCHLD; if it gives a time, the job has that long after SIGTERM.
        """
        if os.name != "posix":
            while True:
                with contextlib.suppress(KeyboardInterrupt):
                    return self._process.wait()
        while True:
            number = signal.sigwait(self._signals)
            if number == signal.SIGALRM:
                self._send(signal.SIGKILL)
            elif number != signal.SIGCHLD:
                self._pass_on(number)
            elif (status := self._ended()) is not None:
                self._end_rest()
                return status
            elif (grace_s := asked_to_stop()) is not None:
                self._stop_s = time.monotonic() + grace_s
                self._send(signal.SIGTERM)
                # With time 0 there would be no alarm.
                signal.setitimer(signal.ITIMER_REAL, max(grace_s, 0.001))

    def _end_rest(self) -> None:
        """After a stop, the others of the group have the rest of the time."""
        if self._stop_s is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < self._stop_s:
                os.killpg(self.pid, 0)
                time.sleep(0.05)
            self._send(signal.SIGKILL)

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGCONT and self._terminal:
            _to_foreground(self.pid)
        self._send(number)
        if number == signal.SIGTERM:
            self.on_term()
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts == 2:
                signal.alarm(KILL_S)

    def _ended(self) -> int | None:
        """Result of `wait`; None while the command runs. If it was stopped, this process stops with it."""
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return None
        if os.WIFSTOPPED(status):
            self._suspend()
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._terminal:
            _to_foreground(os.getpgrp())
        return self._process.returncode

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _suspend(self) -> None:
        """Give the terminal back to the shell and stop, as the job did; the shell's ``fg`` continues both."""
        if self._terminal:
            _to_foreground(os.getpgrp())
            os.kill(os.getpid(), signal.SIGSTOP)


def _started(
    command: Sequence[str], environment: Mapping[str, str], prepare_child: Callable[[], None] | None = None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, env=dict(environment), preexec_fn=prepare_child)  # noqa: PLW1509 - no threads
    except OSError as error:
        raise JobStartError(command[0], error) from error


def _is_foreground() -> bool:
    """True if standard input is the terminal of which this process has the foreground."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _to_foreground(group: int) -> None:
    """Make `group` the foreground one of the terminal, also from the background."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.tcsetpgrp(0, group)
    signal.signal(signal.SIGTTOU, before)
