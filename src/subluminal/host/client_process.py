"""A client's process and its run: that of the client which started us, where nobody named it, or of any other.

A derived id has the form of every id of ours, so ids sort by time: milliseconds (of the client's start) in 12 hex
digits, then 64 bits, here of a digest of what names the process: host, boot, pid and start.

The trap is the clock. The kernel counts a process's start in ticks since the boot, and knows the boot's wall time only
as "now, less the time since": whoever sets the clock moves it, and two shims of one client would disagree. So the first
shim writes the id down, under the digest, and the others take it from there. Without a home they compute it, and agree
unless the clock was set in between. The run of a session that no process tells is agreed upon in the same way.
"""

from __future__ import annotations

import os

from subluminal.host import home
from subluminal.host.identity import process_facts, run_environment, start_time, upwards

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ash", "fish", "env", "npx", "uvx", "timeout"))
_DIGITS = frozenset("0123456789abcdef")
_MAX_MS = 1 << 48


class RunOfProcess:
    """`named`: somebody said which run it is; else its id is the one that shims of that process derive.

    `environ` are `SUB_*` variables, SUB_RUN_ID always among them; `directory` is where the process works, if that is
    to be seen.
    """

    __slots__ = ("directory", "environ", "named")

    def __init__(self, environ: dict[str, str], named: bool, directory: str | None) -> None:
        self.environ = environ
        self.named = named
        self.directory = directory


def identity_of_process(pid: int, start: str, host: str) -> RunOfProcess | None:
    """The run that another process of ours belongs to: as its shims would find it, so that all of it is one run.

    None: the process that began at `start` is gone, or is not to be seen.
    """
    _, parent, started = process_facts(pid)
    if not start or started != start:
        return None
    environ = run_environment([pid, *upwards(parent)])
    named = bool(environ.get("SUB_RUN_ID"))
    if not named:
        environ = {**environ, "SUB_RUN_ID": derived_run_id(host, pid)}
    directory = _directory_of(pid)
    # Looked at again: until now the number was this process's.
    return RunOfProcess(environ, named, directory) if start_time(pid) == start else None


def _directory_of(pid: int) -> str | None:
    try:
        directory = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None
    return directory if os.path.isdir(directory) else None


def run_of_this_process() -> str | None:
    """The run that this process belongs to, by its environment or by a process above it; None: it is nobody's.

    A client that was started without `sub run` has a run as well, once a server of its was: that of whoever types at a
    terminal of such a client (an editor) is not meant.
    """
    found = run_environment([os.getpid(), *upwards(os.getppid())]).get("SUB_RUN_ID")
    return found if found or os.isatty(0) else _derived_above(os.getppid())


def run_of_process(pid: int) -> str | None:
    """The same of another process of ours."""
    return run_environment([pid, *upwards(process_facts(pid)[1])]).get("SUB_RUN_ID") or _derived_above(pid)


def _derived_above(pid: int) -> str | None:
    from subluminal.host.files import read_private
    from subluminal.host.identity import host_id

    host = host_id()
    for above in upwards(pid):
        _, _, started = process_facts(above)
        try:
            return read_private(home.derived_run_file(_process_digest(host, above, started)[:32]), 64).decode("ascii")
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _process_digest(host_id: str, pid: int, started: str) -> str:
    from subluminal.contracts.digest import sha256_hex

    return sha256_hex(f"{host_id}\x00{_boot_id()}\x00{pid}\x00{started}".encode())


def derived_run_id(host_id: str, client: int | None = None) -> str:
    """One run per client process: shells and launchers between it and us do not count.

    `client`: not the one that started us, but this process.
    """
    pid = os.getppid() if client is None else client
    command, parent, started = process_facts(pid)
    while parent > 1 and command in SHELLS:
        pid = parent
        command, parent, started = process_facts(pid)
    digest = _process_digest(host_id, pid, started)
    return _agreed(digest, _started_ms(started))


def run_id_of_session(host_id: str, words: tuple[str, ...]) -> str:
    """For a run that nobody names and no process tells: what its client calls its session is always the same run."""
    from subluminal.contracts.digest import sha256_hex

    named = "\x00".join((host_id, "session", *words))
    return _agreed(sha256_hex(named.encode("utf-8", "surrogatepass")), None)


def _agreed(digest: str, started_ms: int | None) -> str:
    """What the first shim of this client wrote down, or now writes. Where nothing can be, what all would compute."""
    import time

    from subluminal.host.files import keep_first

    tail = digest[:16]
    fresh = f"run-{time.time_ns() // 1_000_000 if started_ms is None else started_ms:012x}{tail}"
    try:
        kept = keep_first(home.derived_run_file(digest[:32]), fresh.encode(), 64).decode("ascii", "replace")
    except OSError:
        return f"run-{started_ms or 0:012x}{tail}"
    ours = len(kept) == len(fresh) and kept[:4] == "run-" and kept.endswith(tail) and _DIGITS.issuperset(kept[4:])
    return kept if ours else fresh


def _started_ms(started: str) -> int | None:
    """Wall time of a process's start, in milliseconds; None where the system tells no ticks since the boot."""
    try:
        found = _boot_wall_ms() + int(started) * 1000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    return found if 0 <= found < _MAX_MS else None


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
