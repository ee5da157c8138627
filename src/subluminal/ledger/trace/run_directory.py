"""A run recorded in a directory, without a daemon: one journal per shim, gathered into one file.

    DIR/journals/<shim_id>.jsonl     written by the shims themselves (`SUB_EVENTS=dir:DIR/journals`)
    DIR/events.jsonl                 the same events in one order, appended a moment later by `RunDirectory.pump`

The journals are the truth: every shim writes its own, so what was decided is on the disk whoever is killed. The order
is by time, and within a shim by its own sequence; a shim whose clock was set back keeps its sequence. A line is held
back for HOLD_MS so that a slower shim can still come first; should one come later all the same, `seal` puts the file
in order from the journals.

Trap: the agent runs as the same user and may meddle. What has been read is never read again, and a journal that is
cut, replaced or removed, a gap in a shim's numbers and a line that is no event are kept as faults.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from heapq import merge

from msgspec import UNSET, Struct

from subluminal.host.files import replace_file
from subluminal.host.record.journal import (
    SUFFIX,
    complete_lines,
    journal_name,
    list_journals,
    open_journal,
    take_if_dead,
)
from subluminal.ledger.fold.ownership import claimed_call, owner_of
from subluminal.ledger.fold.reading import MAX_LINE_BYTES, AnyEvent, BadEvent, read_event

JOURNALS = "journals"
EVENTS = "events.jsonl"
# Events of another run that were written here: a `sub run` started by the agent inherits where events go. And what a
# journal says in the name of another shim than its own.
OTHER_RUNS = "other-runs.jsonl"
HOLD_MS = 50
READ_BYTES = 1 << 20
MAX_FAULTS = 100

_Entry = tuple[str, str, int, bytes, AnyEvent]  # order key, shim_id, number in its journal, line, event


class _Journal(Struct):
    name: str
    inode: int = 0
    offset: int = 0
    number: int = 0
    next_seq: int = 1
    key: str = ""


class RunDirectory:
    """Gathers the journals of one run. `on_event` hears every event of the run once, in the order of the file."""

    def __init__(self, directory: str, run_id: str, on_event: Callable[[AnyEvent], None] = lambda event: None) -> None:
        self.directory = directory
        self.run_id = run_id
        self.journals_dir = os.path.join(directory, JOURNALS)
        self.path = os.path.join(directory, EVENTS)
        self.faults: list[str] = []
        self.in_order = True
        self._on_event = on_event
        self._journals: dict[str, _Journal] = {}
        self._waiting: list[_Entry] = []
        self._last_key = ""
        os.makedirs(self.journals_dir, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._out = os.open(self.path, flags, 0o600)

    @property
    def sink(self) -> str:
        """What SUB_EVENTS must say for shims to write here."""
        return "dir:" + self.journals_dir

    def pump(self, now: str | None) -> bool:
        """Move what has been written since; `now` None takes all. True: there may be more at once."""
        more = False
        names = list_journals(self.journals_dir)
        for name in self._journals.keys() - set(names):
            if self._journals[name].offset >= 0:
                self._fault(f"the journal {name} was removed while the run was on")
                self._journals[name].offset = -1
        for name in names:
            more |= self._read(self._journals.setdefault(name, _Journal(name)))
        self._waiting.sort(key=lambda entry: entry[:3])
        ready = len(self._waiting)
        if now is not None:
            ready = next((i for i, entry in enumerate(self._waiting) if entry[0] > now), ready)
        if ready:
            self._release(self._waiting[:ready])
            del self._waiting[:ready]
        return more

    def _read(self, journal: _Journal) -> bool:
        descriptor = open_journal(self.journals_dir, journal.name) if journal.offset >= 0 else None
        if descriptor is None:
            return False
        try:
            facts = os.fstat(descriptor)
            if journal.inode not in (0, facts.st_ino) or facts.st_size < journal.offset:
                self._fault(f"the journal {journal.name} was cut or replaced while the run was on")
                journal.offset = -1
                return False
            journal.inode = facts.st_ino
            chunk = os.pread(descriptor, READ_BYTES, journal.offset)
        finally:
            os.close(descriptor)
        lines, size = complete_lines(chunk)
        if not size and len(chunk) == READ_BYTES:
            self._fault(f"the journal {journal.name} holds a line longer than any event")
            journal.offset += len(chunk)
            return True
        journal.offset += size
        for line in lines:
            self._take(journal, line)
        return len(chunk) == READ_BYTES

    def _take(self, journal: _Journal, line: bytes) -> None:
        journal.number += 1
        try:
            event = read_event(line)
        except BadEvent:
            self._fault(f"line {journal.number} of the journal {journal.name} is no event")
            return
        if event.run_id != self.run_id:
            self._keep_aside(line)
            return
        shim_id = event.source.shim_id
        if journal_name(shim_id) != journal.name:
            self._fault(f"the journal {journal.name} speaks for another shim")
            self._keep_aside(line)
            return
        call_id = claimed_call(event)
        if call_id is not None:
            self._fault(f"shim {shim_id} speaks of the call {call_id}, which is that of shim {owner_of(call_id)}")
        seq = event.source.seq
        if seq is not UNSET:
            if seq != journal.next_seq:
                self._fault(f"the journal {journal.name} goes from event {journal.next_seq - 1} to {seq}")
            journal.next_seq = seq + 1
        journal.key = max(journal.key, event.ts)
        self._waiting.append((journal.key, event.source.shim_id, journal.number, line, event))

    def _release(self, entries: list[_Entry]) -> None:
        if entries[0][0] < self._last_key:
            self.in_order = False
        self._last_key = max(self._last_key, entries[-1][0])
        data = b"".join(entry[3] + b"\n" for entry in entries)
        try:
            done = os.write(self._out, data)
        except OSError as error:
            done = 0
            self._fault(f"{EVENTS} cannot be written: {error.strerror}")
        if done != len(data):
            self.in_order = False  # made anew from the journals, if the disk lets us
        for entry in entries:
            self._on_event(entry[4])

    def _keep_aside(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(os.path.join(self.directory, OTHER_RUNS), flags, 0o600)
            os.write(descriptor, line + b"\n")
            os.close(descriptor)
        except OSError as error:
            self._fault(f"{OTHER_RUNS} cannot be written: {error.strerror}")

    def _fault(self, what: str) -> None:
        if len(self.faults) < MAX_FAULTS and what not in self.faults:
            self.faults.append(what)

    def close(self) -> None:
        """The last of it, in order where the journals are whole."""
        while self.pump(None):
            pass
        os.close(self._out)
        if not self.in_order and not any(journal.offset < 0 for journal in self._journals.values()):
            lines = (line + b"\n" for line in gathered(self.journals_dir, self.run_id))
            replace_file(self.path, lines)
            self.in_order = True


def writers_left(journals_dir: str) -> list[str]:
    """Shims that still hold their journal. Only when no new one is to be expected: see `host.record.journal`."""
    left = []
    for name in list_journals(journals_dir):
        descriptor = open_journal(journals_dir, name)
        if descriptor is not None:
            if not take_if_dead(descriptor):
                left.append(name.removesuffix(SUFFIX))
            os.close(descriptor)
    return left


def gathered(journals_dir: str, run_id: str | None = None) -> Iterator[bytes]:
    """The events of the journals in one order, in bounded memory. Lines that are no events come where they stand."""
    sources = [_keyed(journals_dir, name, run_id) for name in list_journals(journals_dir)]
    for _, _, _, line in merge(*sources, key=lambda entry: entry[:3]):
        yield line


def strangers(journals_dir: str) -> list[str]:
    """Journals in which a line speaks for another shim than theirs: `gathered` leaves such lines out."""
    return [name for name in list_journals(journals_dir) if any(_read(journals_dir, name, foreign=True))]


def _keyed(journals_dir: str, name: str, run_id: str | None) -> Iterator[tuple[str, str, int, bytes]]:
    key, shim_id = "", name
    for number, line, event in _read(journals_dir, name):
        if event is None:
            if run_id is None:
                yield key, shim_id, number, line
        elif run_id is None or event.run_id == run_id:
            key, shim_id = max(key, event.ts), event.source.shim_id
            yield key, shim_id, number, line


def _read(journals_dir: str, name: str, *, foreign: bool = False) -> Iterator[tuple[int, bytes, AnyEvent | None]]:
    """(number, line, event) of what a journal says for its own shim, or of what it says for others (`foreign`)."""
    descriptor = open_journal(journals_dir, name)
    if descriptor is None:
        return
    number = 0
    with os.fdopen(descriptor, "rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            if not line.endswith(b"\n"):
                return  # the writer was killed, or is at work, in the middle of it
            number += 1
            try:
                event = read_event(line[:-1])
            except BadEvent:
                event = None
            if foreign == (event is not None and journal_name(event.source.shim_id) != name):
                yield number, line[:-1], event
