"""State files of format 1, a mapped log of operations: a run that began under it goes on, and ends well.

Its shims keep their file. A shim of today takes the counts over when it begins a file of its own for the same run, and
an operator's order to stop reaches both. Remove this when nobody can have such a run any more.

    header   word 8: arena << 31 | terminated << 30 | length of the log; word 9: calls; word 10: killed
    two arenas of records: length, CRC-32, operations of 41 bytes (kind, key, three integers), windows, a termination
"""

from __future__ import annotations

import os
import struct
from fcntl import LOCK_SH, flock

from subluminal.core.engine.state import KEYED, MARK, RUN, WINDOW
from subluminal.core.engine.windows import EXACT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.engine.state import Op

_MAGIC = b"SUBSTATE" + (1).to_bytes(8, "little")
_HEADER_BYTES, _ARENA_BYTES = 4_096, 1_048_576
_FILE_BYTES = _HEADER_BYTES + 2 * _ARENA_BYTES
_WORDS_AT, _RUN_ID_AT = 64, 128
_WORDS = struct.Struct("<QQQ")
_TERMINATED = 1 << 30
_OP = struct.Struct("<B16sqqq")
_SET_RUN, _SET, _MARK, _PUSH, _TERMINATE, _WINDOW = range(1, 7)


class OldRun:
    """What a file of format 1 says."""

    __slots__ = ("boot", "calls", "ended", "ops", "run_id")

    def __init__(self, raw: bytes) -> None:
        self.boot = int.from_bytes(raw[16:24], "big")
        length = int.from_bytes(raw[_RUN_ID_AT : _RUN_ID_AT + 2], "little")
        self.run_id = raw[_RUN_ID_AT + 2 : _RUN_ID_AT + 2 + length].decode("utf-8", "replace")
        word, self.calls, killed = _WORDS.unpack_from(raw, _WORDS_AT)
        self.ended = bool(killed or word & _TERMINATED)
        base = _HEADER_BYTES + (word >> 31 & 1) * _ARENA_BYTES
        self.ops = _replay(raw[base : base + (word & _TERMINATED - 1)])


def read_old(path: str) -> OldRun | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or status.st_size != _FILE_BYTES or os.pread(fd, 16, 0) != _MAGIC:
            return None
        flock(fd, LOCK_SH)
        return OldRun(os.pread(fd, _FILE_BYTES, 0))
    except (OSError, struct.error):
        return None
    finally:
        os.close(fd)


def kill_old(path: str) -> bool:
    """Tell the shims that still use such a file. They look at this word before each call."""
    if read_old(path) is None:
        return False
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        os.pwrite(fd, (1).to_bytes(8, "little"), _WORDS_AT + 16)
    finally:
        os.close(fd)
    return True


def _replay(log: bytes) -> list[Op]:
    """Counters, marks and small windows; what cannot be read is passed over."""
    found: dict[bytes, Op] = {}
    at = 0
    while at + 8 <= len(log):
        length, _ = struct.unpack_from("<II", log, at)
        record = log[at + 8 : at + 8 + length]
        at += 8 + length
        try:
            _apply(found, record)
        except (struct.error, IndexError):
            continue
    return list(found.values())


def _apply(found: dict[bytes, Op], record: bytes) -> None:
    at = 0
    while at < len(record) and record[at] != _TERMINATE:
        kind = record[at]
        if kind == _WINDOW:
            _, key, count = struct.unpack_from("<B16sI", record, at)
            stamps = struct.unpack_from(f"<{count}q", record, at + 21)
            found[key] = (WINDOW, key, stamps[-EXACT:])
            at += 21 + 8 * count
            continue
        kind, key, one, two, three = _OP.unpack_from(record, at)
        at += _OP.size
        if kind == _MARK:
            found[key] = (MARK, key, (one, two))
        elif kind == _PUSH:
            earlier = found[key][2] if key in found else ()
            found[key] = (WINDOW, key, (*earlier, one)[-min(three, EXACT) :])
        elif kind in (_SET_RUN, _SET):
            found[key] = (RUN if kind == _SET_RUN else KEYED, key, (one, two, three))
