"""From the journals into the store: every complete line once, whatever is killed when.

`Spool.pump` reads a bounded piece of every journal that has grown, and commits the events together with the offsets
reached. It never reads faster than it commits, so a burst waits in the journals and not in memory.

A journal's life: it grows; its writer dies (its lock can be had); a half line at its end is closed off and set aside;
what the writer left open is closed in its name (`closing.py`); once all of it is safely in the ledger, it goes.
"""

from __future__ import annotations

import os
from time import monotonic

from msgspec import Struct, field

from subluminal.contracts.moments import rfc3339
from subluminal.host.home import rejected_dir
from subluminal.host.record.journal import complete_lines, list_journals, open_journal, release, take_if_dead
from subluminal.ledger.fold.reading import MAX_LINE_BYTES
from subluminal.ledger.ingest.closing import closing_lines, open_producers
from subluminal.ledger.store.writer import Store

# A piece of one journal, and of all journals in one transaction: the bound on memory.
PIECE_BYTES = MAX_LINE_BYTES
BATCH_BYTES = 4 << 20
# What is kept of lines that are no events, per journal; beyond it they are only counted.
REJECTED_LIMIT = 4 << 20
# A journal with nothing in it is left alone for this long: its writer may be about to lock it.
EMPTY_GRACE_S = 5.0


class Journal(Struct):
    """One open journal and how far it has been read."""

    name: str
    descriptor: int
    inode: int
    offset: int = 0
    lines: int = 0
    rejected_bytes: int = 0
    size: int = 0
    half_at: int = -1  # the size at which only a half line was left
    seen_at: float = field(default_factory=monotonic)
    skipping: bool = False  # inside a line longer than any event

    def close(self) -> None:
        os.close(self.descriptor)


class Spool:
    def __init__(self, directory: str, store: Store) -> None:
        self.directory = directory
        self.store = store
        self.journals: dict[str, Journal] = {}
        self.rejected_lines = 0

    def close(self) -> None:
        for journal in self.journals.values():
            journal.close()
        self.journals.clear()

    # -- reading ----------------------------------------------------------------------------------------------

    def scan(self) -> bool:
        """Look at the directory and at the sizes. True: there is something to read."""
        names = list_journals(self.directory)
        for name in names:
            if name not in self.journals:
                self._adopt(name)
        if len(self.journals) > len(names):
            for name in self.journals.keys() - set(names):
                self.journals.pop(name).close()
        grown = False
        for journal in self.journals.values():
            journal.size = os.fstat(journal.descriptor).st_size
            if journal.size < journal.offset:
                journal.offset = journal.lines = 0  # cut short: read again; what is stored already is passed over
            grown = grown or self._pending(journal)
        return grown

    def pump(self) -> int:
        """Commit one bounded batch; the number of bytes read. Raises `sqlite3.Error` and forgets nothing."""
        places = [(j, j.offset, j.lines, j.rejected_bytes, j.skipping) for j in self.journals.values()]

        def go_back() -> None:
            for j, offset, lines, rejected_bytes, skipping in places:
                j.offset, j.lines, j.rejected_bytes, j.skipping = offset, lines, rejected_bytes, skipping

        def work() -> int:
            go_back()  # the store may try again
            return self._read_all()

        try:
            return self.store.write(work)
        except BaseException:
            go_back()
            raise

    def _read_all(self) -> int:
        total = 0
        for journal in list(self.journals.values()):
            if not self._pending(journal):
                continue
            total += self._read(journal)
            if total >= BATCH_BYTES:
                # The ones not reached come first next time.
                self.journals[journal.name] = self.journals.pop(journal.name)
                break
        return total

    def _pending(self, journal: Journal) -> bool:
        """Whether unread bytes may hold a complete line. A half line is looked at again when it has grown."""
        return journal.size > journal.offset and journal.size != journal.half_at

    def _read(self, journal: Journal) -> int:
        chunk = os.pread(journal.descriptor, PIECE_BYTES, journal.offset)
        lines, taken = complete_lines(chunk)
        if not taken:
            return self._no_newline(journal, chunk)
        if journal.skipping:
            journal.skipping = False
            journal.lines += 1
            del lines[0]
        for place, error in self.store.take(lines, journal.name):
            if lines[place]:
                self._reject(journal, journal.lines + 1 + place, lines[place], str(error))
        journal.lines += len(lines)
        journal.offset += taken
        self._save(journal)
        return taken

    def _no_newline(self, journal: Journal, chunk: bytes) -> int:
        if len(chunk) < PIECE_BYTES:
            journal.half_at = journal.offset + len(chunk)
            return 0
        # No event is this long. Leave its beginning aside and pass over the rest, in bounded memory.
        if not journal.skipping:
            self._reject(journal, journal.lines + 1, chunk, f"a line longer than {MAX_LINE_BYTES} bytes")
            journal.skipping = True
        journal.offset += len(chunk)
        self._save(journal)
        return len(chunk)

    def _save(self, journal: Journal) -> None:
        self.store.places.set(journal.name, journal.inode, journal.offset, journal.lines, journal.rejected_bytes)

    def _reject(self, journal: Journal, line_no: int, line: bytes, reason: str) -> None:
        """Set a bad line aside. The file is first cut to what is committed, so a batch read twice leaves it once."""
        self.rejected_lines += 1
        self.store.places.reject(journal.name, line_no, reason, len(line))
        if journal.rejected_bytes + len(line) >= REJECTED_LIMIT:
            return
        directory = rejected_dir(self.directory)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        path = os.path.join(directory, journal.name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, journal.rejected_bytes)
            journal.rejected_bytes += os.pwrite(descriptor, line + b"\n", journal.rejected_bytes)
        finally:
            os.close(descriptor)

    def _adopt(self, name: str) -> None:
        descriptor = open_journal(self.directory, name)
        if descriptor is None:
            return
        journal = Journal(name, descriptor, os.fstat(descriptor).st_ino)
        known = self.store.places.get(name)
        if known is not None and known[0] == journal.inode:
            _, journal.offset, journal.lines, journal.rejected_bytes = known
        self.journals[name] = journal

    # -- the end of a journal ---------------------------------------------------------------------------------

    def tend(self) -> bool:
        """Close and remove the journals of dead writers. True: something was written that must be read."""
        closed = False
        finished: list[Journal] = []
        for journal in self.journals.values():
            if self._pending(journal) or self._newborn(journal) or not take_if_dead(journal.descriptor):
                continue
            if self._close_off(journal):
                closed = True
                release(journal.descriptor)
            else:
                finished.append(journal)
        if finished:
            self._remove(finished)
        return closed

    def _newborn(self, journal: Journal) -> bool:
        return journal.size == 0 and monotonic() - journal.seen_at < EMPTY_GRACE_S

    def _close_off(self, journal: Journal) -> bool:
        """Under the lock of a dead writer: end its half line, write what it could not. True: there is more to read."""
        status = os.fstat(journal.descriptor)
        if status.st_size > journal.offset and status.st_size != journal.half_at:
            return True
        block = b"\n" if status.st_size > journal.offset else b""
        last_alive = rfc3339(status.st_mtime_ns // 1_000_000)
        for producer in open_producers(self.store.connection, journal.name):
            lines = closing_lines(self.store.connection, producer, last_alive)
            block += b"".join(line + b"\n" for line in lines)
        if not block:
            return False
        while block:
            block = block[os.write(journal.descriptor, block) :]
        return True

    def _remove(self, finished: list[Journal]) -> None:
        self.store.make_durable()
        for journal in finished:
            try:
                os.unlink(os.path.join(self.directory, journal.name))
            except FileNotFoundError:
                pass
            self.journals.pop(journal.name).close()
        self._forget([journal.name for journal in finished])

    def forget_missing(self) -> None:
        """Offsets of journals that are gone: a process was killed between removing the file and noting it."""
        present = set(list_journals(self.directory))
        gone = [name for name in self.store.places.names() if name not in present]
        if gone:
            self._forget(gone)

    def _forget(self, names: list[str]) -> None:
        def work() -> None:
            for name in names:
                self.store.places.forget(name)

        self.store.write(work)
