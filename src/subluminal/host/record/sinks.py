"""Where events go. A sink never blocks the call and never dies of its own trouble.

    ledger       the journal of this shim in SUB_HOME/spool/, which ledgerd ingests exactly once
    dir:PATH     a journal of this shim in PATH (`sub run --headless` gathers those of its run)
    file:PATH    appended          fd:N, stderr    written as fast as the reader reads        none    nowhere

`write` takes whole lines, and a stream gets whole lines: whoever stops reading finds no torn one at the end, as long as
its pipe can hold the line at all. What cannot be written at once is held; past HOLD_BYTES the previews of what is held
are shed (and marked so), and past twice that a stream spills to the journal, as it does with what is left when
it closes; `trouble` then says so. Decisions are never dropped.
Trouble must stay cheap, for it is met on every call while it lasts: each line is shed once, and a sink that takes
nothing is asked with one small write.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections import deque
from select import PIPE_BUF

from subluminal.contracts.errors import UsageError
from subluminal.host import home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HOLD_BYTES = 4 * 1024 * 1024
# A write of at most this much to a pipe is taken whole or not at all, and never blocks if it polls writable (POSIX:
# PIPE_BUF is at least 512). A local socket takes whole whatever fits half of its buffer, which is never less than this.
ATOMIC_BYTES = 512
ATOMIC_SOCKET_BYTES = 65536
PAGE_BYTES = 4096


class _Foreign(bytes):
    """Not events: the server's own words on a stream that it shares with us."""


class Sink:
    """The base holds lines; what can take them is in the subclasses.

    `spooled`: ledgerd reads what is written, and so wants to be woken. `trouble`: what is missing where, and why.
    """

    spooled = False
    trouble: str | None = None

    def __init__(self) -> None:
        self.held: deque[bytes] = deque()
        self.held_bytes = 0
        self.previews_shed = 0
        self._shedding = False

    def write(self, data: bytes) -> None:
        """Never raises, never blocks."""

    def retry(self) -> None:
        """Called now and then, and when the descriptor is writable again."""

    def wants(self) -> int:
        """The descriptor to wait for before `retry` can help, or -1."""
        return -1

    def close(self) -> None:
        pass

    def drop(self) -> None:
        """In a forked child: the file and its lock are the parent's."""

    def _hold(self, data: bytes) -> None:
        if self._shedding:
            data = self._lean(data)
        self.held.append(data)
        self.held_bytes += len(data)
        if self.held_bytes > HOLD_BYTES and not self._shedding:
            self._shed()
        elif self._shedding and self.held_bytes < HOLD_BYTES // 2:
            self._shedding = False

    def _shed(self) -> None:
        """Give up the previews of all that is held, and of all that follows until there is room again."""
        self._shedding = True
        # The first piece may be half written: it must go on as it is.
        first = self.held.popleft()
        self.held = deque([first, *map(self._lean, self.held)])
        self.held_bytes = sum(map(len, self.held))

    def _lean(self, piece: bytes) -> bytes:
        from subluminal.core.emit.shed import without_preview

        if isinstance(piece, _Foreign):
            return piece
        kept: list[bytes] = []
        for line in piece.split(b"\n")[:-1]:
            lean, shed = without_preview(line + b"\n")
            self.previews_shed += shed
            kept.append(lean)
        return b"".join(kept)


class NullSink(Sink):
    pass


class JournalSink(Sink):
    """Appends to a file. A plain write reaches the page cache: it survives the death of every process."""

    def __init__(self, path: str, *, lock: bool) -> None:
        super().__init__()
        self.path = path
        self.fd = -1
        self.spooled = os.path.dirname(path) == home.spool_dir()
        self._lock = lock

    def write(self, data: bytes) -> None:
        if self.held:
            self._hold(data)
            self.retry()
            return
        try:
            if self.fd < 0:
                self._open()
            done = os.write(self.fd, data)
        except OSError as fault:
            self._stuck(fault, data)
            return
        if done != len(data):
            self._stuck(OSError(errno.ENOSPC, "short write"), data[done:])

    def _stuck(self, fault: OSError, rest: bytes) -> None:
        self._note_trouble(fault)
        self._hold(rest)

    def _note_trouble(self, fault: OSError) -> None:
        why = fault.strerror or os.strerror(fault.errno or 0)
        self.trouble = f"events could not be recorded: {fault.filename or self.path}: {why}"

    def _open(self) -> None:
        directory = os.path.dirname(self.path) or "."
        if self.spooled:
            home.ensure_private_dir(directory)
        self.fd = self._create_locked() if self._lock else -1
        if self.fd >= 0:
            return
        # Not blocking: the path may be that of a FIFO, which would wait for its reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(self.path, flags, 0o600)
        if self._lock:
            import fcntl

            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                raise
        self.fd = fd

    def _create_locked(self) -> int:
        """ledgerd takes a journal that it can lock for that of a producer that has gone: it must never see this one
        without its lock, which is held while we live. -1: there is one, begun by a sink of ours that has closed."""
        from subluminal.host.record.journal import create_locked

        try:
            return create_locked(self.path)
        except FileExistsError:
            return -1

    def retry(self) -> None:
        try:
            if self.held and self.fd < 0:
                self._open()
            while self.held:
                piece = self.held[0]
                done = os.write(self.fd, piece)
                self.held_bytes -= done
                if done < len(piece):
                    self.held[0] = piece[done:]
                    raise OSError(errno.ENOSPC, "short write")
                self.held.popleft()
        except OSError as fault:
            self._note_trouble(fault)
            return
        self.trouble = None

    def close(self) -> None:
        self.retry()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def drop(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0 and still_names(fd, self.path):
            os.close(fd)


class StreamSink(Sink):
    """A descriptor with a reader that may be slow, stopped or gone. Spills to a journal rather than drop a decision."""

    def __init__(self, fd: int, spill: Callable[[], JournalSink]) -> None:
        super().__init__()
        self.fd = fd
        self._spill_to = spill
        self._spill: JournalSink | None = None
        self._partial = b""  # of the server's words: up to where its line will end
        self._head = b""  # of the line that the reader has in part
        kind = os.fstat(fd).st_mode
        # Switching a shared terminal to non-blocking would change it for everyone: there, small writes after a poll.
        self._whole = stat.S_ISREG(kind)
        self._pipe = stat.S_ISFIFO(kind)
        self._atomic = ATOMIC_SOCKET_BYTES if stat.S_ISSOCK(kind) else PIPE_BUF if self._pipe else ATOMIC_BYTES
        self._cramped = False  # writable, but not for the line that is next
        self._spilled = 0
        self._nonblocking = fd > 2 and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))
        if self._nonblocking:
            os.set_blocking(fd, False)

    def write(self, data: bytes) -> None:
        if self._spill is not None:
            self._to_spill(data)
            return
        self._hold(data)
        if self.held_bytes > 2 * HOLD_BYTES:
            self._give_up()
        elif len(self.held) == 1 or self._whole:
            self.retry()

    def retry(self) -> None:
        if self._spill is not None:
            self._spill.retry()
            return
        while self.held:
            piece = self.held[0]
            try:
                lines = piece if self._whole else self._lines_to_write(piece)
                self._cramped = not lines
                if self._cramped or not (self._whole or self._nonblocking or _writable(self.fd)):
                    return
                done = os.write(self.fd, lines if self._whole or self._nonblocking else lines[: self._atomic])
            except BlockingIOError:
                return
            except OSError:
                self._give_up()
                return
            self.held_bytes -= done
            if done == len(piece):
                self.held.popleft()
                self._head = b""
            else:
                self._keep_head(piece, done)

    def _lines_to_write(self, piece: bytes) -> bytes:
        """Lines that are taken whole or not at all; a longer one only where there is room for all of it, or never will
        be. Nothing: it has to wait."""
        if len(piece) <= self._atomic:
            return piece
        end = piece.rfind(b"\n", 0, self._atomic) + 1
        if end:
            return piece[:end]
        end = piece.find(b"\n") + 1 or len(piece)
        torn = self._head or isinstance(piece, _Foreign) or not self._pipe
        return piece[:end] if torn or end <= _room(self.fd) else b""

    def _keep_head(self, piece: bytes, done: int) -> None:
        """Remember what the reader has of an unfinished line: if it never gets the rest, the line is written anew."""
        foreign = isinstance(piece, _Foreign)
        self.held[0] = _Foreign(piece[done:]) if foreign else piece[done:]
        start = piece.rfind(b"\n", 0, done) + 1
        head = piece[start:done] if start else self._head + piece[:done]
        self._head = b"" if foreign else head

    def pass_on(self, data: bytes) -> None:
        """The server's own stderr shares the stream: whole lines between whole events, dropped rather than held."""
        self._partial += data
        end = self._partial.rfind(b"\n") + 1
        if end == 0 and len(self._partial) < 65536:
            return
        lines, self._partial = self._partial[: end or None], self._partial[end:] if end else b""
        if self._spill is None and self.held_bytes < HOLD_BYTES:
            self.held.append(_Foreign(lines))
            self.held_bytes += len(lines)
            self.retry()

    def _give_up(self) -> None:
        """The reader has gone or is hopelessly behind: what is held, and all that follows, goes to the journal.

        A line that the reader has in part goes there in whole.
        """
        self._spill = self._spill_to()
        events = self._head + b"".join(piece for piece in self.held if not isinstance(piece, _Foreign))
        self.held.clear()
        self.held_bytes = 0
        self._head = b""
        if events:
            self._to_spill(events)

    def _to_spill(self, events: bytes) -> None:
        assert self._spill is not None
        self._spilled += events.count(b"\n")
        self._spill.write(events)

    def wants(self) -> int:
        return self.fd if self.held and self._spill is None and not self._cramped else -1

    def close(self) -> None:
        if self._partial:
            self.pass_on(b"\n")
        self.retry()
        if self.held:
            self._give_up()
        if self._spill is not None:
            self._spill.close()
            self.trouble = self._spill.trouble
            if self.trouble is None and self._spilled and self.fd > 2:
                self.trouble = f"descriptor {self.fd} was not read to the end: {self._spilled} events went to the spool"

    def drop(self) -> None:
        if self._spill is not None:
            self._spill.drop()


def _writable(fd: int) -> bool:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(0))


def _room(fd: int) -> int:
    """How much a pipe surely takes: where a write does not fit the rest of a page, another is begun, so that what is
    unread may stand on twice as many. An empty one takes any line as far as it can: there will never be more room."""
    import fcntl
    import termios

    unread = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
    if not unread:
        return sys.maxsize
    pages = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) // PAGE_BYTES if hasattr(fcntl, "F_GETPIPE_SZ") else 0
    return (pages - 2 * (unread // PAGE_BYTES + 1)) * PAGE_BYTES


def open_sink(spec: str, shim_id: str) -> Sink:
    """A sink by its name on the command line or in SUB_EVENTS."""

    def journal() -> JournalSink:
        return JournalSink(os.path.join(home.spool_dir(), shim_id + ".jsonl"), lock=True)

    if spec in ("", "ledger"):
        return journal()
    if spec == "none":
        return NullSink()
    if spec == "stderr":
        return StreamSink(2, journal)
    if spec.startswith("file:") and len(spec) > 5:
        return JournalSink(spec[5:], lock=False)
    if spec.startswith("dir:") and len(spec) > 4:
        # Locked like any journal, so that whoever gathers them knows when the last writer has gone.
        return JournalSink(os.path.join(spec[4:], shim_id + ".jsonl"), lock=True)
    if spec.startswith("fd:"):
        return StreamSink(descriptor(spec), journal)
    raise UsageError(f"--events {spec!r} is not a sink", hint="Use ledger, stderr, file:PATH, dir:PATH, fd:N or none.")


def descriptor(spec: str) -> int:
    """The open descriptor that `fd:N` names."""
    digits = spec[3:]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise UsageError(f"--events {spec[:40]!r} names no descriptor", hint="Use fd:N with its number, such as fd:3.")
    try:
        os.fstat(int(digits))
    except OSError:
        raise UsageError(f"--events {spec}: descriptor {int(digits)} is not open") from None
    return int(digits)


def still_names(fd: int, path: str) -> bool:
    """Before closing what another process opened: a host that makes itself a daemon closes every descriptor, and then
    its number may be that of a file of the host's own."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False
