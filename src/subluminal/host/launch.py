"""Run an agent as the one child of a run: terminal untouched, signals passed on, nothing left behind when it must end.

The child stays in our process group and session, so an interactive program has the terminal as always: job control,
window size and Ctrl-C come from the kernel. A signal that the kernel sent to the whole foreground group has reached the
child already; one that somebody sent to us alone is passed on.

The run registers itself under `SUB_HOME/run/` for clients that scrub the environment of their servers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping

from subluminal.contracts.errors import UsageError
from subluminal.host import paths
from subluminal.host.identity import start_time

TICK_S = 0.1
TERM_GRACE_S = 2.0
KILL_GRACE_S = 2.0
EXIT_TIMEOUT = 124  # what timeout(1) answers
EXIT_TERMINATED = 125
_SI_KERNEL = 0x80
_FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# From the keyboard, to the whole foreground group.
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


class Ended:
    """How the child ended. `why` is None when it ended by itself, else `timeout` or the reason given to stop it."""

    __slots__ = ("code", "signal", "why")

    def __init__(self, code: int, number: int, why: str | None) -> None:
        self.code = code  # as a shell tells it: the exit code, or 128 + signal
        self.signal = number
        self.why = why


class Registration:
    """`SUB_HOME/run/<pid>.json`: who runs here, for shims whose environment was scrubbed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        for left in stale_registrations():
            _unlink(left)
        self._path = os.path.join(paths.ensure_private_dir(paths.run_dir()), f"{os.getpid()}.json")
        entry = {
            "pid": os.getpid(),
            "start": start_time(os.getpid()),
            "environ": {name: value for name, value in environ.items() if name.startswith("SUB_")},
        }
        draft = f"{self._path}.new"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(entry, file)
        os.replace(draft, self._path)

    def remove(self) -> None:
        _unlink(self._path)


def stale_registrations() -> list[str]:
    """Paths left by a `sub run` that was killed: their process is gone, or its number belongs to another one now."""
    directory = paths.run_dir()
    try:
        names = [name for name in os.listdir(directory) if name.endswith((".json", ".json.new"))]
    except OSError:
        return []
    return sorted(os.path.join(directory, name) for name in names if _is_stale(os.path.join(directory, name)))


def _is_stale(path: str) -> bool:
    pid = os.path.basename(path).partition(".")[0]
    if not pid.isdigit():
        return False  # not ours
    started = start_time(int(pid))
    if not started:
        return True
    try:
        with open(path, encoding="utf-8") as file:
            return bool(json.load(file)["start"] != started)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # being written at this moment


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def run_child(
    argv: list[str],
    environ: Mapping[str, str],
    *,
    run_id: str,
    stop: Callable[[], str | None] = lambda: None,
    timeout_s: float | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Ended:
    """Start `argv`, wait for it, and return how it ended.

    `stop` is asked ten times a second; a reason ends the child and everything that carries its run id.
    """
    watched = {*_FORWARDED, signal.SIGCHLD, signal.SIGTSTP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        pid = _spawn(argv, environ, before, stdout, stderr)
        return _wait(pid, watched, run_id, stop, timeout_s)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawn(
    argv: list[str],
    environ: Mapping[str, str],
    mask: set[signal.Signals] | set[int],
    stdout: int | None,
    stderr: int | None,
) -> int:
    actions: list[tuple[int, int, int]] = []
    for fd, target in ((stdout, 1), (stderr, 2)):
        if fd is not None:
            actions.append((os.POSIX_SPAWN_DUP2, fd, target))
    try:
        return os.posix_spawnp(
            argv[0],
            argv,
            environ,
            file_actions=actions,
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
    except OSError as fault:
        error = UsageError(f"cannot start {argv[0]!r}: {fault.strerror}", hint="Is it installed and on PATH?")
        error.exit_code = 127 if isinstance(fault, FileNotFoundError) else 126
        raise error from None


def _wait(
    pid: int, watched: set[signal.Signals], run_id: str, stop: Callable[[], str | None], timeout_s: float | None
) -> Ended:
    deadline = None if not timeout_s else time.monotonic() + timeout_s
    why: str | None = None
    last_resort = 0.0
    while True:
        status = _reap(pid)
        if status is not None:
            if why is not None:
                end_run_processes(run_id)
            code = os.waitstatus_to_exitcode(status)
            return Ended(code if code >= 0 else 128 - code, -code if code < 0 else 0, why)
        received = _next_signal(watched)
        if received is not None and received.si_signo in _FORWARDED:
            number = received.si_signo
            if not (number in _FROM_TERMINAL and received.si_code == _SI_KERNEL):
                _kill(pid, number)
        elif received is not None and received.si_signo == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)  # the child got its own; the shell sees us stopped as well
        if why is None:
            why = stop()
            if why is None and deadline is not None and time.monotonic() > deadline:
                why = "timeout"
            if why is not None:
                _kill(pid, signal.SIGTERM)
                last_resort = time.monotonic() + TERM_GRACE_S
        elif time.monotonic() > last_resort:
            _kill(pid, signal.SIGKILL)


def _next_signal(watched: set[signal.Signals]) -> signal.struct_siginfo | None:
    if hasattr(signal, "sigtimedwait"):
        return signal.sigtimedwait(watched, TICK_S)
    # macOS has no sigtimedwait: signals are taken by handlers' default route after a short unblocked sleep.
    time.sleep(TICK_S)
    pending = signal.sigpending() & watched
    if pending:
        number = signal.sigwait(pending)
        return _PlainInfo(number)  # type: ignore[return-value]  # the two fields that are looked at
    return None


class _PlainInfo:
    def __init__(self, number: int) -> None:
        self.si_signo = number
        self.si_code = 0


def _reap(pid: int) -> int | None:
    """The child's status once it has ended. Also buries adopted orphans, which is our duty as pid 1."""
    while True:
        try:
            found, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if found == pid:
            return status
        if found == 0:
            return None


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def end_run_processes(run_id: str) -> None:
    """TERM, grace, KILL to every process that carries the run's id in its environment, wherever it was re-parented."""
    deadline = time.monotonic() + KILL_GRACE_S
    number = signal.SIGTERM
    while True:
        left = run_processes(run_id)
        if not left:
            return
        for pid in left:
            _kill(pid, number)
        if time.monotonic() > deadline:
            if number == signal.SIGKILL:
                return
            number = signal.SIGKILL
            deadline = time.monotonic() + KILL_GRACE_S
        time.sleep(0.05)


def run_processes(run_id: str) -> list[int]:
    """Processes of ours that belong to a run. Only where the system shows environments (Linux)."""
    if sys.platform != "linux":
        return []
    mark = b"SUB_RUN_ID=" + run_id.encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\x00"):
                    found.append(int(name))
        except OSError:
            continue
    return found
