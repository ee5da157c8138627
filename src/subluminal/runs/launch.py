"""Run an agent as the one child of a run: terminal untouched, signals passed on, nothing left behind when it must end.

The child stays in our process group and session, so an interactive program has the terminal as always: job control,
window size and Ctrl-C come from the kernel. A signal that the kernel sent to the whole foreground group has reached the
child already; one that somebody sent to us alone is passed on. We stop when the child stops, not when we are told to:
many interactive programs catch Ctrl-Z, put the terminal in order, and only then stop themselves.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import termios
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from subluminal.contracts.errors import UsageError
from subluminal.host.run.processes import adopt_orphans, send_signal

TICK_S = 0.1
# From the order to end until SIGKILL; `host.run.processes` then gives what the agent leaves behind its own grace.
TERM_GRACE_S = 1.5
EXIT_FAILED = 1
EXIT_TIMEOUT = 124  # what timeout(1) answers
EXIT_TERMINATED = 125
_SI_KERNEL = 0x80
# From the keyboard or the terminal's driver, to the whole foreground group.
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)
_FORWARDED = (*_FROM_TERMINAL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Ended(Struct):
    """How the child ended. `why` is None when it ended by itself, else `timeout` or the reason given to stop it."""

    code: int  # as a shell tells it: the exit code, or 128 + signal
    signal: int
    why: str | None
    left: list[int] = []  # processes of the run that could not be ended


def run_child(
    argv: list[str],
    environ: Mapping[str, str],
    *,
    end_others: Callable[[], list[int]],
    stop: Callable[[], str | None] = lambda: None,
    timeout_s: float | None = None,
    stdout: int | None = None,
) -> Ended:
    """Start `argv`, wait for it, and return how it ended.

    `stop` is asked ten times a second; a reason ends the child. Then `end_others` is to end what the child has left
    behind, and tells what it could not.
    """
    watched = {*_FORWARDED, signal.SIGCHLD}
    # Whoever started us may ignore SIGCHLD, and exec keeps that: children would then vanish without a status.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    adopt_orphans()
    terminal = _Terminal()
    try:
        ended = _Child(_spawn(argv, environ, before, stdout), terminal).wait(watched, stop, timeout_s)
        if ended.why is not None:
            ended.left = end_others()
            terminal.restore()
        # What was pressed while the child lived was for the child: a Ctrl-Z that it took must not stop us now.
        for number in _FROM_TERMINAL:
            if number in signal.sigpending():
                signal.sigwait({number})
        return ended
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawn(
    argv: list[str], environ: Mapping[str, str], mask: set[signal.Signals] | set[int], stdout: int | None
) -> int:
    actions = [] if stdout is None else [(os.POSIX_SPAWN_DUP2, stdout, 1)]

    def start(words: list[str]) -> int:
        return os.posix_spawnp(
            words[0], words, environ, file_actions=actions, setsigmask=mask, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
        )

    try:
        try:
            return start(argv)
        except OSError as fault:
            script = shutil.which(argv[0])
            if fault.errno != errno.ENOEXEC or script is None:
                raise
            return start(["/bin/sh", script, *argv[1:]])  # as every shell runs a script without `#!`
    except (OSError, ValueError) as fault:
        raise _not_started(argv[0], fault) from None


def _not_started(program: str, fault: OSError | ValueError) -> UsageError:
    missing = isinstance(fault, FileNotFoundError | ValueError)
    why = (fault.strerror or "error") if isinstance(fault, OSError) else str(fault)
    hint = "Is it installed and on PATH?" if missing else "Is it a program that you may run?"
    error = UsageError(f"cannot start {program!r}: {why}", hint=hint)
    error.exit_code = 127 if missing else 126
    return error


class _Terminal:
    """The user's terminal, if we have one: told when it is ours, and put in order after a child that was killed."""

    def __init__(self) -> None:
        self._fd = next((fd for fd in (0, 1, 2) if os.isatty(fd)), -1)
        self._settings: list[object] | None = None
        if self._fd >= 0:
            try:
                self._settings = termios.tcgetattr(self._fd)
            except termios.error:
                pass

    def is_ours(self) -> bool:
        """Whether our process group is in the foreground, so that a shell with job control is behind us."""
        try:
            return self._fd >= 0 and os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    def restore(self) -> None:
        if self._settings is not None and self.is_ours():
            try:
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._settings)  # type: ignore[arg-type]
            except termios.error:
                pass


class _Child:
    def __init__(self, pid: int, terminal: _Terminal) -> None:
        self.pid = pid
        self.terminal = terminal

    def wait(self, watched: set[signal.Signals], stop: Callable[[], str | None], timeout_s: float | None) -> Ended:
        deadline = None if not timeout_s else time.monotonic() + timeout_s
        why: str | None = None
        last_resort = 0.0
        while True:
            status = self._reap()
            if status is not None:
                code = os.waitstatus_to_exitcode(status)
                return Ended(code if code >= 0 else 128 - code, -code if code < 0 else 0, why)
            self._pass_on(_next_signal(watched))
            if why is None:
                why = stop()
                if why is None and deadline is not None and time.monotonic() > deadline:
                    why = "timeout"
                if why is not None:
                    send_signal(self.pid, signal.SIGTERM)
                    send_signal(self.pid, signal.SIGCONT)  # a stopped process takes no SIGTERM
                    last_resort = time.monotonic() + TERM_GRACE_S
            elif time.monotonic() > last_resort:
                send_signal(self.pid, signal.SIGKILL)

    def _reap(self) -> int | None:
        """The child's status once it has ended. Also buries adopted orphans, which is our duty."""
        while True:
            try:
                found, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return 0
            if found == 0:
                return None
            if found == self.pid:
                if not os.WIFSTOPPED(status):
                    return status
                self._stop_too()

    def _stop_too(self) -> None:
        """The child has stopped: let the shell see it, and go on together. Without a shell, nobody would wake us."""
        if self.terminal.is_ours():
            os.kill(os.getpid(), signal.SIGSTOP)
            # A shell's `fg` resumes the whole group; a SIGCONT of ours could come after the next Ctrl-Z and undo it.
            if not self._was_resumed() and signal.SIGTSTP not in signal.sigpending():
                send_signal(self.pid, signal.SIGCONT)

    def _was_resumed(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.pid, os.WCONTINUED | os.WNOHANG) is not None
        except (AttributeError, ChildProcessError):  # no waitid here, or nothing to wait for
            return False

    def _pass_on(self, received: signal.struct_siginfo | None) -> None:
        if received is None or received.si_signo not in _FORWARDED:
            return
        if received.si_signo not in _FROM_TERMINAL or received.si_code != _SI_KERNEL:
            send_signal(self.pid, received.si_signo)


def _next_signal(watched: set[signal.Signals]) -> signal.struct_siginfo | None:
    if sys.platform != "darwin":
        return signal.sigtimedwait(watched, TICK_S)
    # macOS has no sigtimedwait and tells no sender.
    time.sleep(TICK_S)
    pending = signal.sigpending() & watched
    if pending:
        return _PlainInfo(signal.sigwait(pending))
    return None


class _PlainInfo:
    """With a terminal, what a keyboard can send is taken to come from there."""

    def __init__(self, number: int) -> None:
        self.si_signo = number
        self.si_code = _SI_KERNEL if number in _FROM_TERMINAL and os.isatty(0) else 0
