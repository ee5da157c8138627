"""Finding processes through /proc (Linux): descendants, everything that carries a marker, memory.

A marker is an environment variable set on the first process of a tree. It is inherited, so it finds members of the
tree even after they were re-parented, changed their session or closed every pipe.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterable

from harness.waiting import wait_for

MARKER_VARIABLE = "HARNESS_MARKER"


def new_marker() -> str:
    return f"{os.getpid()}-{uuid.uuid4().hex}"


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and parent pid, or None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1])


def is_alive(pid: int) -> bool:
    """True while the process runs. A zombie is dead: it only waits for its parent to read the exit code."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def is_zombie(pid: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] == "Z"


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for each in _pids():
        stat = _stat(each)
        if stat is not None:
            children.setdefault(stat[1], []).append(each)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def processes_with(marker: str) -> list[int]:
    wanted = f"{MARKER_VARIABLE}={marker}".encode()
    found = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0") and is_alive(pid):
                    found.append(pid)
        except OSError:
            continue
    return found


def command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace")[:200]
    except OSError:
        return "(gone)"


def assert_no_processes(marker: str, within: float = 5.0, pids: Iterable[int] = ()) -> None:
    """No process of the marked tree is alive, now or at the latest `within` seconds from now.

    `pids` are members known by number. A process loses its environment a moment before it is dead, so the marker
    alone could miss one that is just about to end, or one that cleared its environment.
    """
    known = list(pids)

    def left() -> dict[int, str]:
        return {pid: command_line(pid) for pid in sorted({*processes_with(marker), *filter(is_alive, known)})}

    wait_for(left, within, "the end of every process of the tree", enough=lambda alive: not alive)


def kill_marked(marker: str) -> None:
    """Cleans up after a test, whatever the test left behind."""

    def kill_those_left() -> list[int]:
        left = processes_with(marker)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left

    wait_for(kill_those_left, what="the end of what was killed", enough=lambda left: not left)


def memory_kib(pid: int, field: str = "VmRSS") -> int:
    """VmRSS is what is resident now; VmHWM is the most that ever was."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    raise AssertionError(f"process {pid} reports no {field}")
