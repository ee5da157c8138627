"""The client that started us, where nobody named the run: its process, and the run id that its shims derive from it.

A derived id has the form of every id of ours, so ids sort by time: milliseconds (of the client's start) in 12 hex
digits, then 64 bits, here of a digest of what names the process: host, boot, pid and start.

The trap is the clock. The kernel counts a process's start in ticks since the boot, and knows the boot's wall time only
as "now, less the time since": whoever sets the clock moves it, and two shims of one client would disagree. So the first
shim writes the id down, under the digest, and the others take it from there. Without a home they compute it, and agree
unless the clock was set in between.
"""

from __future__ import annotations

import os

from subluminal.host import home
from subluminal.host.identity import process_facts

_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ash", "fish", "env", "npx", "uvx", "timeout"))
_DIGITS = frozenset("0123456789abcdef")
_MAX_MS = 1 << 48


def derived_run_id(host_id: str) -> str:
    """One run per client process: shells and launchers between it and us do not count."""
    from subluminal.contracts.digest import sha256_hex

    pid = os.getppid()
    command, parent, started = process_facts(pid)
    while parent > 1 and command in _SHELLS:
        pid = parent
        command, parent, started = process_facts(pid)
    digest = sha256_hex(f"{host_id}\x00{_boot_id()}\x00{pid}\x00{started}".encode())
    return _agreed(digest, f"run-{_started_ms(started):012x}{digest[:16]}")


def _agreed(digest: str, computed: str) -> str:
    """What the first shim of this client wrote down, or now writes; `computed` where nothing can be."""
    from subluminal.host.files import keep_first

    path = home.derived_run_file(digest[:32])
    try:
        kept = keep_first(path, computed.encode(), 64).decode("ascii", "replace")
    except OSError:
        return computed
    tail = kept[4:]
    ours = kept[:4] == "run-" and len(tail) == 28 and tail[12:] == digest[:16] and _DIGITS.issuperset(tail)
    return kept if ours else computed


def _started_ms(started: str) -> int:
    """Wall time of a process's start, in milliseconds; now, where the system does not tell."""
    import time

    now_ms = time.time_ns() // 1_000_000
    try:
        if started.isascii() and started.isdecimal():
            since_boot_ms = int(started) * 1000 // os.sysconf("SC_CLK_TCK")
            found = _boot_wall_ms() + since_boot_ms
        else:
            found = int(time.mktime(time.strptime(started, "%a %b %d %H:%M:%S %Y"))) * 1000
    except (OSError, ValueError, OverflowError):
        found = now_ms
    return found if 0 <= found < _MAX_MS else now_ms


def _boot_wall_ms() -> int:
    """ValueError where the kernel does not tell."""
    with open("/proc/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime "):
                return int(line[6:]) * 1000
    raise ValueError("no btime")


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""
