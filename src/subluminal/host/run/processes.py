"""Every process that belongs to a run, and how to end them all.

A run's processes are found in two ways, since each can be lost: by descent (an orphan changes its parent; on Linux we
ask to adopt orphans, see `adopt_orphans`) and by the run's id in their environment (clients scrub it for their servers,
the shim strips it from its upstream). The ledger daemon belongs to no run, whoever happened to start it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from subluminal.host import home

# After SIGTERM, before SIGKILL. A shim needs up to 0.65 s to end a stubborn server in good order.
TERM_GRACE_S = 1.0
# SIGKILL needs no grace; this bounds the wait for processes that the kernel cannot end at once.
KILL_GRACE_S = 1.0
_POLL_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36


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
                    _kill(pid, number)
                    _kill(pid, signal.SIGCONT)  # a stopped process takes no SIGTERM
            told.update(left)
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
    return left


def run_processes(run_id: str | None, *, below: int | None = None) -> list[int]:
    """Living processes of the run, without ourselves and without the ledger daemon."""
    found = set(_marked(run_id)) if run_id is not None else set()
    if below is not None:
        found |= set(descendants(below))
    return sorted(found - {os.getpid(), _ledgerd()})


def descendants(root: int) -> list[int]:
    """Children, their children and so on; zombies are dead and do not count."""
    children: dict[int, list[tuple[int, bool]]] = {}
    for pid, parent, dead in _table():
        children.setdefault(parent, []).append((pid, dead))
    found = []
    waiting = [root]
    while waiting:
        for pid, dead in children.get(waiting.pop(), ()):
            waiting.append(pid)
            if not dead:
                found.append(pid)
    return found


def _table() -> list[tuple[int, int, bool]]:
    """(pid, parent, dead) of every process that can be seen."""
    if not os.path.isdir("/proc/self"):
        return _ps()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if len(fields) > 1:
                found.append((int(name), int(fields[1]), fields[0] in (b"Z", b"X")))
    return found


def _ps() -> list[tuple[int, int, bool]]:
    done = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=False)
    rows = (line.split(None, 2) for line in done.stdout.splitlines())
    own = {os.getpid()}  # ps itself is a child of ours, and gone by now
    return [(int(r[0]), int(r[1]), r[2].startswith("Z")) for r in rows if len(r) == 3 and int(r[0]) not in own]


def _marked(run_id: str) -> list[int]:
    """Only where the system shows environments (Linux)."""
    mark = b"SUB_RUN_ID=" + os.fsencode(run_id)
    found = []
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\x00"):
                        found.append(int(name))
            except OSError:
                continue
    return found


def _ledgerd() -> int:
    try:
        with open(home.ledgerd_pid(), encoding="ascii") as file:
            return int(file.read(20))
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


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
