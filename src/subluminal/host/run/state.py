"""Run state shared by all shims of a run: one memory-mapped file per run in `SUB_HOME/run/`.

The file is a log of operations (`core.engine.state`), replayed by every process into its own `Entries`:

    header   magic and version, boot id, the run's id
             word 0   generation << 32 | arena << 31 | terminated << 30 | length of the log in that arena
             word 1   the run's call counter
             word 2   not zero once an operator killed the run: set without the lock, so that nothing can prevent it
    arena 0, arena 1     records: length, CRC-32, operations

Every change happens under `flock`. A record is written behind the end of the log and becomes visible with one aligned
8-byte store of word 0, so a process killed at any instant leaves the whole record or nothing. When an arena fills up,
the entries are written compactly into the other one and word 0 flips to it, with the next generation.

Why flock and not fcntl: a POSIX lock belongs to the process and is dropped when *any* descriptor of the file is
closed; flock belongs to this open file, is released by the kernel when its holder dies, and is faster. A holder that
was stopped (SIGSTOP) keeps it, so waiting is bounded: then `StateUnavailable`, and policy decides by
`decision_on_error`. The descriptor is close-on-exec, so no upstream server can inherit the lock.

Traps: the file is allocated in full (a hole plus a full disk would be SIGBUS, not an error); it is created under
another name and linked into place, so nobody ever maps a half-made one; word 0 is stored through a memoryview of "Q",
because `struct` with an explicit byte order writes byte by byte.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from itertools import starmap
from zlib import crc32

from subluminal.core.engine.state import (
    PUSH,
    TERMINATE,
    Entries,
    LocalState,
    StateUnavailable,
    terminate_op,
)
from subluminal.host.home import ensure_private_dir, run_dir
from subluminal.host.run.files import (
    ARENA_BYTES,
    BOOT_ID_AT,
    FILE_BYTES,
    HEADER_BYTES,
    RUN_ID_AT,
    boot_id,
    create_file,
    fault,
    state_path,
    write_aside,
)
from subluminal.host.run.log import Corrupt, decode, encode, pack_op

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from subluminal.core.engine.state import Op

# A small state is compacted often and cheaply, so that the pages a shim touches stay few.
COMPACT_AFTER_BYTES = 131_072
# Holders need microseconds; on a machine with far more runnable processes than cores one may be off the processor for
# a while. Only a stopped holder takes longer, and it must not cost every later call the full wait again.
LOCK_WAIT_SECONDS = 2.0
LOCK_WAIT_AGAIN_SECONDS = 0.05
TOUCH_EVERY_COMMITS = 256

_LOCK_NOW = LOCK_EX | LOCK_NB
_WORD, _SEQ, _KILLED = 8, 9, 10  # numbers of 8-byte words: aligned, on one cache line
_TERMINATED = 1 << 30
_LENGTH = _TERMINATED - 1
_RECORD = struct.Struct("<II")
_RECORD_BYTES = _RECORD.size
_pack_record = _RECORD.pack


class RunInfo:
    """One run's state file, as `sub` lists it."""

    __slots__ = ("calls", "path", "run_id", "terminated", "used_at")

    def __init__(self, run_id: str, path: str, calls: int, terminated: tuple[str, str] | None, used_at: float) -> None:
        self.run_id = run_id
        self.path = path
        self.calls = calls
        self.terminated = terminated
        self.used_at = used_at


class SharedState:
    """The state of one run, seen by this process. Same interface as `LocalState`.

    Long for a class of ours: why a process may be killed at any instant is to be read in one place.
    """

    def __init__(self, fd: int, path: str, boot: bytes) -> None:
        self.entries = Entries()
        self.reason: str | None = None
        self.repaired = 0  # how often a damaged log was rebuilt from what was still readable
        self.path = path
        self._fd = fd
        self._map = mmap.mmap(fd, FILE_BYTES)
        self._words = memoryview(self._map).cast("Q")
        self._seen = -1
        self._wait = LOCK_WAIT_SECONDS
        self._commits = 0
        self._last_seq = 0
        self._boot_id = boot
        self._compact_at = COMPACT_AFTER_BYTES
        self._held = False  # the lock is ours already, taken by `try_lock`

    # -- opening ----------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, run_id: str, directory: str | None = None) -> SharedState | LocalState:
        """The run's shared state; where that cannot be had, a local one whose `reason` says why."""
        try:
            return cls._open(run_id, directory or run_dir(), create=True)
        except (OSError, StateUnavailable) as error:
            why = getattr(error, "strerror", None) or str(error)
            return LocalState(f"run state is not shared between the servers of this run: {why}")

    @classmethod
    def _open(cls, run_id: str, directory: str, create: bool) -> SharedState:
        path = state_path(run_id, directory)
        boot = boot_id()
        if create:
            ensure_private_dir(directory)
        for _ in range(8):  # each round another process may create, replace or remove the file
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                if not create:
                    raise
                create_file(path, run_id, boot)
                continue
            try:
                wrong = fault(fd)
                if wrong is None:
                    state = cls(fd, path, boot)
                    if create:
                        state._touch()
                        state._after_reboot()
                    return state
                if not create:
                    raise OSError(None, wrong)
                os.rename(path, f"{path}.bad")
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise StateUnavailable("the state file keeps changing")

    def _after_reboot(self) -> None:
        if self._map[BOOT_ID_AT : BOOT_ID_AT + 16] == self._boot_id:
            return
        self.begin()
        try:
            if self._map[BOOT_ID_AT : BOOT_ID_AT + 16] != self._boot_id:
                self.entries.forget_times()
                self._compact()
                self._map[BOOT_ID_AT : BOOT_ID_AT + 16] = self._boot_id
        finally:
            self.abandon()

    def close(self) -> None:
        self._words.release()
        self._map.close()
        os.close(self._fd)

    # -- the state interface ----------------------------------------------------------------------------------

    @property
    def terminated(self) -> tuple[str, str] | None:
        """(code, message) once the run has been terminated; one look at the header as long as it has not."""
        if not (self._words[_WORD] & _TERMINATED or self._words[_KILLED]):
            return None
        flag = self._flag()
        return flag[0], flag[1]

    @property
    def terminated_by(self) -> tuple[str, str] | None:
        if not (self._words[_WORD] & _TERMINATED or self._words[_KILLED]):
            return None
        flag = self._flag()
        return flag[2], flag[3]

    def _flag(self) -> tuple[str, str, str, str]:
        if self.entries.terminated is None:
            try:
                self.begin()
                self.abandon()
            except StateUnavailable:
                pass
        # The order stands even where its words cannot be read.
        return self.entries.terminated or ("RUN_TERMINATED", "This run has been terminated.", "", "")

    def try_lock(self) -> bool:
        """For callers that run a loop: the lock, if it can be had at once, for the next `begin`."""
        if not self._held:
            try:
                flock(self._fd, _LOCK_NOW)
            except BlockingIOError:
                return False
            except OSError:
                return True  # `begin` meets the same, and says so
            self._held = True
            self._wait = LOCK_WAIT_SECONDS
        return True

    def let_go(self) -> None:
        """What `try_lock` took and no `begin` has used."""
        if self._held:
            self._held = False
            flock(self._fd, LOCK_UN)

    def wait_no_more(self) -> None:
        """Until `try_lock` has succeeded, `begin` fails at once where it would wait: whoever calls has waited."""
        self._wait = 0.0

    def begin(self) -> None:
        """Become the only one to change the state, and know everything the others did."""
        if self._held:
            self._held = False
        else:
            try:
                flock(self._fd, _LOCK_NOW)
            except OSError as error:
                self._wait_for_lock(error)
        word = self._words[_WORD]
        if word != self._seen:
            try:
                self._catch_up(word)
            except BaseException:
                flock(self._fd, LOCK_UN)
                raise

    def commit(self, ops: list[Op], count_call: bool = False) -> int:
        """Publish the operations as one record and let the others go on; with `count_call` take a call number."""
        try:
            if ops:
                self._append(ops)
                self.entries.apply(ops)
            if not count_call:
                return 0
            words = self._words
            self._last_seq = words[_SEQ] = seq = words[_SEQ] + 1
            return seq
        finally:
            flock(self._fd, LOCK_UN)

    def abandon(self) -> None:
        flock(self._fd, LOCK_UN)

    def next_seq(self) -> int:
        """The next call number of the run. Never fails: without the lock it may repeat another shim's number."""
        try:
            self.begin()
        except StateUnavailable:
            self._last_seq = max(self._last_seq, self._words[_SEQ]) + 1
            return self._last_seq
        return self.commit([], True)

    def terminate(self, code: str, message: str) -> None:
        self.begin()
        self.commit([terminate_op(code, message)] if self.entries.terminated is None else [])

    # -- under the lock ---------------------------------------------------------------------------------------

    def _wait_for_lock(self, error: OSError) -> None:
        if not isinstance(error, BlockingIOError):
            raise StateUnavailable(f"the run's state cannot be locked: {error.strerror}") from None
        if not self._wait:
            raise StateUnavailable("another process holds the run's state") from None
        give_up = time.monotonic() + self._wait
        pause = 0.00002
        while True:
            time.sleep(pause)
            try:
                flock(self._fd, _LOCK_NOW)
            except BlockingIOError:
                if time.monotonic() > give_up:
                    self._wait = LOCK_WAIT_AGAIN_SECONDS
                    raise StateUnavailable("another process holds the run's state and does not let go") from None
                pause = min(pause * 1.5, 0.002)
                continue
            self._wait = LOCK_WAIT_SECONDS
            return

    def _catch_up(self, word: int) -> None:
        """Replay what was published since this process last looked."""
        seen = self._seen
        position = seen & _LENGTH
        if seen < 0 or (seen ^ word) >> 31 or word & _LENGTH < position:
            self.entries = Entries()
            position = 0
        try:
            for ops in self._records(word, position):
                self.entries.apply(ops)
            if word & _TERMINATED and self.entries.terminated is None:
                raise Corrupt
        except Corrupt:
            self._rebuild(word)
        else:
            self._seen = word
            if not position:
                base = HEADER_BYTES + (word >> 31 & 1) * ARENA_BYTES
                self._compact_at = _next_compaction(_RECORD.unpack_from(self._map, base)[0])

    def _records(self, word: int, position: int) -> Iterator[list[Op]]:
        """The operations of each readable record; raises Corrupt in the end if any was not readable.

        Values are absolute, so records behind a damaged one are still worth having.
        """
        end = word & _LENGTH
        if end > ARENA_BYTES:
            raise Corrupt
        base = HEADER_BYTES + (word >> 31 & 1) * ARENA_BYTES
        damaged = False
        while position < end:
            start = position + _RECORD.size
            if start > end:
                raise Corrupt
            length, crc = _RECORD.unpack_from(self._map, base + position)
            position = start + length
            if position > end:
                raise Corrupt
            raw = self._map[base + start : base + position]
            if crc32(raw, word >> 32) == crc:
                yield list(decode(raw))
            else:
                damaged = True
        if damaged:
            raise Corrupt

    def _rebuild(self, word: int) -> None:
        """A damaged log: keep it aside, go on from what could be read. A terminated run stays terminated."""
        write_aside(self.path + ".bad", self._map[:])
        if word & _TERMINATED and self.entries.terminated is None:
            self.entries.apply([terminate_op("RUN_TERMINATED", "This run has been terminated.")])
        self._seen = word
        self._compact()
        self.repaired += 1

    def _append(self, ops: list[Op]) -> None:
        # An operation that is not on a key comes last, if at all.
        raw = b"".join(starmap(pack_op, ops) if ops[-1][0] <= PUSH else map(encode, ops))
        position = self._seen & _LENGTH
        size = _RECORD_BYTES + len(raw)
        if position + size > ARENA_BYTES or position > self._compact_at:
            self._compact()
            position = self._seen & _LENGTH
            if position + size > ARENA_BYTES:
                raise StateUnavailable("one call changes more state than the run's file can hold")
        word = self._seen
        at = HEADER_BYTES + (word >> 31 & 1) * ARENA_BYTES + position
        self._map[at : at + size] = _pack_record(len(raw), crc32(raw, word >> 32)) + raw
        word += size
        if ops[-1][0] == TERMINATE:
            word |= _TERMINATED
        self._words[_WORD] = word
        self._seen = word
        self._commits += 1
        if self._commits % TOUCH_EVERY_COMMITS == 0:
            self._touch()

    def _touch(self) -> None:
        """Writes through a mapping need not change the file's time, and `remove_stale` goes by that."""
        try:
            os.utime(self._fd)
        except OSError:
            pass

    def _compact(self) -> None:
        """Write the entries into the other arena and flip to it."""
        raw = b"".join(map(encode, self.entries.as_ops()))
        word = self._seen
        generation = (word >> 32) + 1 & 0xFFFFFFFF
        arena = word >> 31 & 1 ^ 1
        at = HEADER_BYTES + arena * ARENA_BYTES
        record = _pack_record(len(raw), crc32(raw, generation)) + raw
        self._map[at : at + len(record)] = record
        word = generation << 32 | arena << 31 | len(record)
        if self.entries.terminated is not None:
            word |= _TERMINATED
        self._words[_WORD] = word
        self._seen = word
        self._compact_at = _next_compaction(len(record))

    # -- for operators ----------------------------------------------------------------------------------------

    @classmethod
    def kill(cls, run_id: str, code: str, message: str, directory: str | None = None) -> bool:
        """Terminate a run from outside. False: no such run on this machine.

        Works even while a stopped process holds the state; only the words are then lost.
        """
        try:
            state = cls._open(run_id, directory or run_dir(), create=False)
        except OSError:
            return False
        try:
            state._words[_KILLED] = 1
            state.terminate(code, message)
        except StateUnavailable:
            pass
        finally:
            state.close()
        return True


def _next_compaction(compact_bytes: int) -> int:
    return max(COMPACT_AFTER_BYTES, min(4 * compact_bytes, ARENA_BYTES))


def list_runs(directory: str | None = None) -> list[RunInfo]:
    """The runs with state on this machine, latest first. Reads without locking: a look, not a transaction."""
    where = directory or run_dir()
    runs = []
    try:
        names = [name for name in os.listdir(where) if name.endswith(".state")]
    except OSError:
        return []
    for name in names:
        info = _read_info(os.path.join(where, name))
        if info is not None:
            runs.append(info)
    return sorted(runs, key=lambda info: info.used_at, reverse=True)


def _read_info(path: str) -> RunInfo | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if fault(fd) is not None:
            return None
        header = os.pread(fd, HEADER_BYTES, 0)
        used_at = os.fstat(fd).st_mtime
    except OSError:
        return None
    finally:
        os.close(fd)
    length = int.from_bytes(header[RUN_ID_AT : RUN_ID_AT + 2], "little")
    run_id = header[RUN_ID_AT + 2 : RUN_ID_AT + 2 + length].decode("utf-8", "replace")
    word = int.from_bytes(header[8 * _WORD : 8 * _WORD + 8], "little")
    calls = int.from_bytes(header[8 * _SEQ : 8 * _SEQ + 8], "little")
    terminated = None
    if word & _TERMINATED or any(header[8 * _KILLED : 8 * _KILLED + 8]):
        terminated = ("RUN_TERMINATED", "")
        try:
            state = SharedState._open(run_id, os.path.dirname(path), create=False)
        except (OSError, StateUnavailable):
            pass
        else:
            terminated = state.terminated
            state.close()
    return RunInfo(run_id, path, calls, terminated, used_at)
