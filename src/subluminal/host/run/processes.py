"""The processes of this machine: which belong to a run, and how to end them all.

A run's processes are found in two ways, since each can be lost: by descent (an orphan changes its parent; on Linux we
ask to adopt orphans, see `adopt_orphans`) and by the run's id and home in their environment (clients scrub it for their
servers, the shim strips it from its upstream). The ledger daemon belongs to no run, whoever happened to start it.

An environment is what its process says of itself. It can name the process for a run, which is then ended with it, and
nobody else: another home may have a run of the same id, and root sees the processes of every user.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from subluminal.host import home
from subluminal.host.files import read_private

# After SIGTERM, before SIGKILL. A shim needs up to 0.65 s to end a stubborn server in good order.
TERM_GRACE_S = 1.0
# SIGKILL needs no grace; this bounds the wait for processes that the kernel cannot end at once.
KILL_GRACE_S = 1.0
_POLL_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """`started` tells it from a later process of the same number. A zombie is dead: it only waits to be reaped."""

    pid: int
    parent: int
    session: int
    started: str
    dead: bool


def adopt_orphans() -> None:
    """Linux: a descendant that loses its parent becomes our child instead of init's, so that none can slip away."""
    if sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


def end_run_processes(run_id: str | None, *, below: int | None = None) -> list[int]:
    """TERM, grace, KILL to all that carry the run's id, and to all descendants of `below`. Returns what is left."""
    for number, grace in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        deadline = time.monotonic() + grace
        told: set[int] = set()
        while True:
            _bury(below)
            left = run_processes(run_id, below=below)
            if not left:
                return []
            for pid in left:
                if number == signal.SIGKILL or pid not in told:
                    send_signal(pid, number)
                    send_signal(pid, signal.SIGCONT)  # a stopped process takes no SIGTERM
            told.update(left)
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
    return left


def run_processes(run_id: str | None, *, below: int | None = None) -> list[int]:
    """Living processes of the run, without ourselves and without the ledger daemon, which carries no run's id."""
    found = set(descendants(below)) - {_ledgerd()} if below is not None else set()
    if run_id is not None:
        found |= {pid for pid, environ in carrying("SUB_RUN_ID", run_id).items() if _is_of_our_home(pid, environ)}
    return sorted(found - {os.getpid()})


def _is_of_our_home(pid: int, environ: dict[str, str]) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return False
        theirs = home.sub_home(environ)
        if not os.path.isabs(theirs):
            theirs = f"/proc/{pid}/cwd/{theirs}"
    except OSError:
        return False
    return os.path.realpath(theirs) == os.path.realpath(home.sub_home())


def descendants(root: int) -> list[int]:
    """Children, their children and so on; zombies are dead and do not count."""
    children: dict[int, list[Process]] = {}
    for process in process_table():
        children.setdefault(process.parent, []).append(process)
    found = []
    waiting = [root]
    while waiting:
        for process in children.get(waiting.pop(), ()):
            waiting.append(process.pid)
            if not process.dead:
                found.append(process.pid)
    return found


def process_table() -> list[Process]:
    """Every process that can be seen."""
    if not os.path.isdir("/proc/self"):
        return list(_from_ps())
    found = []
    for name in _numbers():
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program stands in parentheses and may itself hold spaces and parentheses.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields:
            dead = fields[0] in (b"Z", b"X")
            found.append(Process(int(name), int(fields[1]), int(fields[3]), fields[19].decode(), dead))
    return found


def _from_ps() -> Iterator[Process]:
    command = ["ps", "-axo", "pid=,ppid=,stat=,lstart="]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        pid, parent, state, started = line.split(None, 3)
        try:
            yield Process(int(pid), int(parent), os.getsid(int(pid)), started, state.startswith("Z"))
        except OSError:
            continue  # gone by now, as is ps itself


def carrying(variable: str, value: str) -> dict[int, dict[str, str]]:
    """Processes with this in their environment, and that environment; only where the system shows it (Linux)."""
    mark = os.fsencode(f"{variable}={value}")
    found = {}
    for name in _numbers() if sys.platform == "linux" else ():
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                entries = file.read().split(b"\x00")
        except OSError:
            continue
        if mark in entries:
            # Of a name that stands there twice, the first counts: so `getenv` has it.
            environ = dict(os.fsdecode(entry).split("=", 1) for entry in reversed(entries) if b"=" in entry)
            if environ.get(variable) == value:
                found[int(name)] = environ
    return found


def _numbers() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _ledgerd() -> int:
    try:
        return int(read_private(home.ledgerd_pid(), 20))
    except (OSError, ValueError):
        return 0


def _bury(below: int | None) -> None:
    """Adopted orphans that have ended wait for us to look."""
    if below != os.getpid():
        return
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def send_signal(pid: int, number: int) -> None:
    """To a process that may have gone meanwhile."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
