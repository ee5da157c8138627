"""Where events go. A sink never blocks the call and never dies of its own trouble.

    ledger       the journal of this shim in SUB_HOME/spool/, which ledgerd ingests exactly once
    dir:PATH     a journal of this shim in PATH (`sub run --headless` gathers those of its run)
    file:PATH    appended          fd:N, stderr    written as fast as the reader reads        none    nowhere

`write` takes whole lines. What cannot be written at once is held in memory; past HOLD_BYTES the previews of what is
held are shed (and marked so), and past twice that a stream spills to the journal. Decisions are never dropped.
Trouble must stay cheap, for it is met on every call while it lasts: each line is shed once, and a sink that takes
nothing is asked with one small write.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque

from subluminal.contracts.errors import UsageError
from subluminal.host import home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HOLD_BYTES = 4 * 1024 * 1024
# A write of at most this much to a pipe that polls writable never blocks (POSIX: PIPE_BUF is at least 512; Linux 4096).
ATOMIC_BYTES = 512


class _Foreign(bytes):
    """Not events: the server's own words on a stream that it shares with us."""


class Sink:
    """The base holds lines; what can take them is in the subclasses.

    `spooled`: ledgerd reads what is written, and so wants to be woken. `trouble`: why lines could not be written.
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
        self.trouble = f"{fault.filename or self.path}: {fault.strerror or os.strerror(fault.errno or 0)}"

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
        self.drop()

    def drop(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


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
        self._nonblocking = fd > 2 and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind))
        if self._nonblocking:
            os.set_blocking(fd, False)

    def write(self, data: bytes) -> None:
        if self._spill is not None:
            self._spill.write(data)
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
                if self._whole or self._nonblocking:
                    done = os.write(self.fd, piece)
                elif _writable(self.fd):
                    done = os.write(self.fd, piece[:ATOMIC_BYTES])
                else:
                    return
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
        spill = self._spill = self._spill_to()
        events = self._head + b"".join(piece for piece in self.held if not isinstance(piece, _Foreign))
        self.held.clear()
        self.held_bytes = 0
        self._head = b""
        if events:
            spill.write(events)

    def wants(self) -> int:
        return self.fd if self.held and self._spill is None else -1

    def close(self) -> None:
        if self._partial:
            self.pass_on(b"\n")
        self.retry()
        if self.held:
            self._give_up()
        if self._spill is not None:
            self._spill.close()


def _writable(fd: int) -> bool:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(0))


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
    if spec.startswith("fd:") and spec[3:].isdigit():
        fd = int(spec[3:])
        try:
            return StreamSink(fd, journal)
        except OSError as fault:
            raise UsageError(f"--events {spec}: descriptor {fd} is not open") from fault
    raise UsageError(f"--events {spec!r} is not a sink", hint="Use ledger, stderr, file:PATH, dir:PATH, fd:N or none.")
