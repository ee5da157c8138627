"""The hash chain of a run, and the witness file that makes a cut at the end visible.

    hash(0) = 32 zero bytes
    hash(n) = SHA-256(hash(n-1) + line(n))        line: the event's exact bytes, without the newline

The head and the number of events stand in the run's row and, soon after, in `SUB_HOME/ledger.heads`, one line
`RUN_ID COUNT HEAD` per change (append-only; the highest count of a run stands). A line is written only after the
events it speaks of are on the disk, so the file may lag behind the database and never runs ahead of it: the first COUNT
events of the run must hash to HEAD, and a database that has fewer was cut. `RUN_ID COUNT HEAD pruned` marks a run that
`sub prune` removed.

This makes the record tamper-evident, not tamper-proof: whoever can write both files can rewrite history. Export a
bundle, or copy the heads elsewhere, to hold a witness that this machine cannot change.
"""

from __future__ import annotations

import os
from errno import EPERM
from hashlib import sha256

from msgspec import Struct

from subluminal.host.files import read_private, replace_file

GENESIS = b"\0" * 32
COMPACT_ABOVE_BYTES = 1 << 20


def link(previous: bytes, line: bytes) -> bytes:
    return sha256(previous + line).digest()


class Head(Struct):
    count: int
    hash: bytes
    pruned: bool = False


def read_heads(path: str) -> dict[str, Head]:
    """The last known head of every run. A line cut short by a crash is passed over; so is one that makes no sense."""
    heads: dict[str, Head] = {}
    try:
        data = read_private(path)
    except (FileNotFoundError, IsADirectoryError):
        return heads
    except PermissionError as error:
        if error.errno != EPERM:
            raise
        return heads  # a link or a FIFO in its place is no witness
    for line in data.split(b"\n")[:-1]:
        fields = line.rsplit(b" ", 3) if line.endswith(b" pruned") else line.rsplit(b" ", 2)
        if len(fields) < 3:
            continue
        try:
            head = Head(int(fields[1]), bytes.fromhex(fields[2].decode("ascii")), len(fields) == 4)
            run_id = _unescape(fields[0])
        except ValueError:
            continue
        known = heads.get(run_id)
        if known is None or known.pruned or head.pruned or head.count > known.count:
            heads[run_id] = head
    return heads


def _escape(run_id: str) -> bytes:
    return run_id.encode("unicode_escape").replace(b" ", b"\\x20")


def _unescape(field: bytes) -> str:
    return field.decode("unicode_escape")


def head_line(run_id: str, head: Head) -> bytes:
    suffix = b" pruned" if head.pruned else b""
    return b"%s %d %s%s\n" % (_escape(run_id), head.count, head.hash.hex().encode(), suffix)


def append_heads(path: str, changed: list[tuple[str, Head]]) -> int:
    """Append, and tell the file's new size. A half line left by a crash is closed by the newline that comes first."""
    block = b"".join(head_line(run_id, head) for run_id, head in changed)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            block = b"\n" + block
        written = os.write(descriptor, block)
        if any(head.pruned for _, head in changed):
            os.fsync(descriptor)  # the removal that it announces comes next, and must not outlive it
        return size + written
    finally:
        os.close(descriptor)


def compact_heads(path: str) -> int:
    """Rewrite the file with one line per run; its new size."""
    block = b"".join(head_line(run_id, head) for run_id, head in read_heads(path).items())
    return replace_file(path, block, durable=True)
