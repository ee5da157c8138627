"""The state files of runs: naming, making, checking, and clearing away. `pages` says what is in them."""

from __future__ import annotations

import os
import stat
import time
from zlib import crc32

from subluminal.contracts.digest import sha256_hex
from subluminal.host.files import read_private
from subluminal.host.home import promotes_file, run_dir, run_state_file
from subluminal.host.run.pages import (
    ALL,
    FILE_BYTES,
    FRONT,
    FRONT_BYTES,
    PAGE,
    RING,
    RINGS,
    SELDOM,
    TABLES_AT,
    WORDS,
    WORDS_AT,
)

FORMAT = 2
MAGIC = b"SUBSTATE" + FORMAT.to_bytes(8, "little")
SALT_AT, RUN_ID_AT = 16, 128
HEADER_CRC_AT = WORDS_AT - 4
MAX_RUN_ID_BYTES = HEADER_CRC_AT - RUN_ID_AT - 2
# A shim that lives keeps its run's file fresh, so this is how long all of a run's shims may be gone before its budgets
# are forgotten. Long enough that an agent gains nothing by killing them and waiting.
STALE_AFTER_SECONDS = 24 * 3600
_WRITTEN_ONCE = (".root", ".id", ".promotes")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def state_path(run_id: str, directory: str | None = None, format: int = FORMAT) -> str:
    name = sha256_hex(run_id.encode("utf-8", "surrogatepass"))
    return run_state_file(name if format == 1 else f"{name}.{format}", directory)


def promotes_path(run_id: str) -> str:
    """What a person has changed for this run alone (`run.promotes`)."""
    return promotes_file(sha256_hex(run_id.encode("utf-8", "surrogatepass")))


def boot_id() -> int:
    """Monotonic time restarts with the machine. Where the boot has no id, the engine's clock slack must do."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return int(file.read(18).replace(b"-", b"")[:16], 16)
    except (OSError, ValueError):
        return 0


def boot_ms() -> int:
    """Counts the time that the machine sleeps: an hour is an hour."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


def create_file(path: str, run_id: str) -> None:
    """Make a complete file under another name and link it into place; losing the race to another shim is fine."""
    making = f"{path}.{os.getpid()}.new"
    raw_id = run_id.encode("utf-8", "surrogatepass")[:MAX_RUN_ID_BYTES]
    salt = os.urandom(4)
    header = bytearray(HEADER_CRC_AT)
    header[:16] = MAGIC
    header[SALT_AT : SALT_AT + 4] = salt
    header[RUN_ID_AT : RUN_ID_AT + 2 + len(raw_id)] = len(raw_id).to_bytes(2, "little") + raw_id
    number = int.from_bytes(salt, "little")
    times = boot_id(), boot_ms(), time.time_ns() // 1_000_000
    table = SELDOM.pack(0, *times, b"", b"") + RING.pack(0, 0, 0, number) * len(RINGS)
    table += FRONT.pack(FRONT_BYTES, 0, 0, 0)
    words = WORDS.pack(0, ALL, 0, ALL).ljust(TABLES_AT - WORDS_AT, b"\0")
    first = words + crc32(table, number).to_bytes(4, "little") + table
    try:
        os.unlink(making)  # left by a process that was killed and had our pid
    except FileNotFoundError:
        pass
    fd = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # What every call needs is allocated; cold pages are holes until a run has so many keys, and a disk that is full
        # by then is an error like any other.
        os.ftruncate(fd, FILE_BYTES)
        # Page by page: a file system keeps what is written at once in one piece, and small writes into it are dearer.
        os.pwrite(fd, bytes(header) + crc32(header).to_bytes(4, "little"), 0)
        os.pwrite(fd, first.ljust(PAGE, b"\0"), WORDS_AT)
        os.link(making, path)
    except FileExistsError:
        pass
    finally:
        os.close(fd)
        os.unlink(making)


def fault(fd: int) -> str | None:
    """Why this file cannot be used; OSError where that is not for us to mend."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(None, "the state file is not a regular file")
    if status.st_uid != os.geteuid():
        raise OSError(None, "the state file belongs to another user")
    if status.st_size != FILE_BYTES:
        return "it is shorter than it should be" if status.st_size < FILE_BYTES else "it is longer than it should be"
    header = os.pread(fd, WORDS_AT, 0)
    if header[:16] != MAGIC or crc32(header[:HEADER_CRC_AT]).to_bytes(4, "little") != header[HEADER_CRC_AT:]:
        return "its header is not what was written"
    return None


def salt_of(fd: int) -> int:
    return int.from_bytes(os.pread(fd, 4, SALT_AT), "little")


def run_id_of(fd: int) -> str:
    raw = os.pread(fd, MAX_RUN_ID_BYTES + 2, RUN_ID_AT)
    return raw[2 : 2 + int.from_bytes(raw[:2], "little")].decode("utf-8", "replace")


def keep_fresh(path: str) -> None:
    """For a run that is idle but alive."""
    try:
        os.utime(path)
    except OSError:
        pass


def _is_of_kept_run(name: str, path: str, names: set[str]) -> bool:
    """What was written once is needed for as long as the run's state is there, which its shims keep fresh."""
    if name.endswith((".root", ".promotes")):
        return f"{name.partition('.')[0]}.{FORMAT}.state" in names
    if name.endswith(".id"):
        try:
            run_id = read_private(path, 64).decode("ascii", "replace")
        except OSError:
            return False
        return os.path.basename(state_path(run_id)) in names
    return False


def remove_stale(older_than_seconds: float = STALE_AFTER_SECONDS, directory: str | None = None) -> int:
    """Delete the state of runs that nobody has used for long (and what damage or a kill left behind)."""
    where = directory or run_dir()
    removed = 0
    try:
        names = set(os.listdir(where))
    except OSError:
        return 0
    limit = time.time() - older_than_seconds
    for name in sorted(names, key=lambda name: name.endswith(_WRITTEN_ONCE)):  # after the states they belong to
        if not name.endswith((".state", ".state.bad", ".new", ".tools", ".names", ".root", ".id", ".promotes")):
            continue
        path = os.path.join(where, name)
        try:
            if os.lstat(path).st_mtime < limit and not _is_of_kept_run(name, path, names):
                os.unlink(path)
                names.remove(name)
                removed += 1
        except OSError:
            continue
    return removed
