"""The single writer: event lines in, rows out, all of a batch in one transaction.

    store.write(work)              one transaction; inside it, `work` calls
        store.add(line)            BadEvent for a line that is no event, or contradicts one that is stored
        store.take(lines, name)    a piece of a journal, many at a time: the same of each
        store.places.set(...)      a journal's offset commits together with its events: exactly once

Rows gather in memory and are written with `executemany`. If anything fails, the transaction and every cache are thrown
away together; the caller offers the same lines again later.

Traps:
- An event already stored (same shim, run and seq) is passed over if its bytes are the same and refused if they differ.
- A shim that has a journal is heard through it alone, and a journal speaks for its own shim alone. What is stored
  already may come again by any way.
- A producer without `source.seq` is numbered by the hash of its line, negative, so reading a file twice adds nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import UNSET

from subluminal.contracts import events as ev
from subluminal.contracts.errors import LedgerError
from subluminal.host.home import heads_path, snapshot_dir
from subluminal.host.record.journal import journal_name
from subluminal.ledger.fold import familiar, reading
from subluminal.ledger.fold.familiar import Familiar
from subluminal.ledger.fold.ownership import is_foreign
from subluminal.ledger.fold.reading import AnyEvent, BadEvent, NewerEvent, read_event
from subluminal.ledger.fold.run import Producer, Run, json_text
from subluminal.ledger.fold.whole import whole
from subluminal.ledger.store import chain
from subluminal.ledger.store.agent_rows import AgentTable
from subluminal.ledger.store.events import EventTable, hashed_seq
from subluminal.ledger.store.journal_places import JournalPlaces
from subluminal.ledger.store.links import hash_at
from subluminal.ledger.store.schema import BUSY_TIMEOUT_MS, open_writer
from subluminal.ledger.store.tables import CallTable, Catalogue, ConflictTable, RunTable, StoredCall
from subluminal.ledger.store.tool_versions import ToolVersionTable

T = TypeVar("T")

HAS_JOURNAL = "shim {} is heard through its own journal; nobody else can speak for it"
OTHER_JOURNAL = "shim {} has another journal; this one cannot speak for it"
OTHER_CONTENT = "event {} of shim {} is already in the ledger with other content"
# Lines of journals that were refused for these reasons contradict somebody else: as globs on the reason.
DISPUTES = (OTHER_JOURNAL.format("*"), OTHER_CONTENT.format("*", "*"))


class Store:
    """`journals`: the names of those that are there and may not have been read yet. `keeping` False: the rows alone are
    wanted, by someone who has the lines."""

    _speaker: Producer | None
    _way: str | None  # the journal by which the speaker is heard; None: a socket
    _barred: str | None  # why the speaker cannot be heard in this way
    _heard: AnyEvent  # the first event of the speaker
    _familiar: Familiar | None  # made of it where it is needed

    def __init__(self, path: str, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS, keeping: bool = True) -> None:
        self.path = path
        self._keeping = keeping
        self.journals: Container[str] = ()
        try:
            self.connection = open_writer(path, busy_timeout_ms=busy_timeout_ms)
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"The ledger {path} cannot be opened for writing: {error}.") from None
        self.places = JournalPlaces(self.connection)
        self._heads_path = heads_path(path) if path else os.devnull
        self._heads_limit = chain.COMPACT_ABOVE_BYTES
        self.unwitnessed: dict[str, chain.Head] = {}
        self._disputed: set[str] = set()
        self._read_witness()
        self._trusting = True
        self.forget()

    def close(self) -> None:
        self.witness()
        self.connection.close()

    # -- batches ----------------------------------------------------------------------------------------------

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction. Raises `sqlite3.Error` if it cannot begin or commit; then nothing of it has happened."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._flush()
            self.connection.execute("COMMIT")
        except BaseException:
            self.forget()
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        self.unwitnessed.update((run_id, head) for run_id, head in self._moved.items() if run_id not in self._disputed)
        self._moved.clear()

    def write(self, work: Callable[[], T]) -> T:
        """Run `work` in a batch. Ids that were taken for new and are not make it run again, looking each one up."""
        try:
            with self.batch():
                return work()
        except sqlite3.IntegrityError:
            self._trusting = False
            self.forget()
            try:
                with self.batch():
                    return work()
            finally:
                self._trusting = True
                self.forget()

    def add(self, line: bytes, journal: str | None = None, barred: str | None = None) -> bool:
        """Store one event line (without its newline). False: it was there already. `barred`: why only that will do."""
        event = read_event(line)
        source = event.source
        producer = self._speaker
        if (
            producer is None
            or source.shim_id != producer.shim_id
            or event.run_id != producer.run_id
            or journal != self._way
        ):
            producer = self._listen_to(event, journal, barred)
        run = self._run
        seq = source.seq
        if seq is UNSET:
            seq = hashed_seq(line)
        if seq <= producer.last_seq and self._is_stored(producer, seq, line):
            return False
        barred = self._barred or barred
        if barred is not None:
            raise BadEvent(barred)
        if seq > producer.last_seq:
            producer.last_seq = seq
        self._events.append(run, producer.no, seq, [line])
        if not run.identified:
            run.identify(event)
        fold = _FOLDS.get(type(event))
        if fold is not None:
            fold(self, event, run.event_count, producer, run)
        if self._events.full:
            self._flush()
        return True

    def take(self, lines: list[bytes], journal: str | None = None) -> Iterator[tuple[int, BadEvent]]:
        """Store event lines in their order; the place of each that cannot be, and why."""
        place = 0
        while place < len(lines):
            place += self._take_familiar(lines, place, journal)
            if place < len(lines):
                try:
                    self.add(lines[place], journal)
                except BadEvent as error:
                    yield place, error
                place += 1

    def _take_familiar(self, lines: list[bytes], place: int, journal: str | None) -> int:
        """What the speaker goes on to tell of its calls, as far as it is familiar; how many lines that is."""
        producer = self._speaker
        if producer is None or journal != self._way or self._barred is not None or isinstance(self._heard, NewerEvent):
            return 0
        if self._familiar is None:
            self._familiar = Familiar(self._heard)
        read, run = self._familiar.events, self._run
        first_n, first_seq = run.event_count + 1, producer.last_seq + 1
        taken = 0
        while place + taken < len(lines):
            events = read(lines, place + taken, first_seq + taken)
            if not events:
                break
            if len(events) < 3 or not self._whole_call(events, first_n + taken, producer, run):
                for n, event in enumerate(events, first_n + taken):
                    _FOLDS[type(event)](self, event, n, producer, run)
            taken += len(events)
        if taken:
            producer.last_seq += taken
            self._events.append(run, producer.no, first_seq, lines[place : place + taken])
            if not run.identified:
                run.identify(self._heard)
            if self._events.full:
                self._flush()
        return taken

    def _listen_to(self, event: AnyEvent, journal: str | None, barred: str | None) -> Producer:
        """Events of one shim come in rows: its run, its place and its right to speak are looked up once."""
        self._speaker = None
        shim_id = event.source.shim_id
        if journal is not None and journal != journal_name(shim_id):
            raise BadEvent(OTHER_JOURNAL.format(shim_id))
        run = self._runs.get(event.run_id)
        producer = run.producers.get(shim_id) if run is not None else None
        self._barred = None
        if journal is None and self._has_journal(shim_id, producer):
            self._barred = HAS_JOURNAL.format(shim_id)
        barred = self._barred or barred
        if producer is None and barred is not None:
            raise BadEvent(barred)
        run = run or self._runs.create(event)
        producer = producer or self._runs.create_producer(run, event)
        producer.journal = journal or producer.journal
        self._runs.touch(run, producer)
        self._run, self._speaker, self._way = run, producer, journal
        self._heard, self._familiar = event, None
        return producer

    def _has_journal(self, shim_id: str, producer: Producer | None) -> bool:
        if journal_name(shim_id) in self.journals:
            return True
        if producer is not None:
            return producer.journal is not None
        sql = "SELECT 1 FROM producers WHERE shim_id = ? AND journal IS NOT NULL LIMIT 1"
        return self.connection.execute(sql, (shim_id,)).fetchone() is not None

    # -- the fold, one method per event type ------------------------------------------------------------------

    def _whole_call(self, events: list[Any], n: int, producer: Producer, run: Run) -> bool:
        """The three events of a call at once, where it is like most of them. False: nothing was done."""
        start, decision, end = events
        if is_foreign(start.call.call_id, producer.shim_id):
            return False
        columns = whole(start, decision, end, n)
        if columns is None or not self._calls.add_whole(columns, start.call, end.preview, producer.no, run):
            return False
        run.counts.total += 1
        run.counts.decided(decision.decision.action)
        run.counts.ended(decision.decision.action, end.status)
        self._catalogue.saw_tool(start.call.server_name, start.call.tool_name)
        return True

    def _call_start(self, event: ev.ToolCallStart, n: int, producer: Producer, run: Run) -> None:
        if self._is_foreign(event.call.call_id, n, producer):
            return
        call = self._calls.starting(event, producer.no, run)
        if call.start(event, n):
            if call.stored:
                call.restarted = True
            if call.tags is not None:
                call.tags_json = json_text(call.tags)
        self._calls.changed(call)
        self._catalogue.saw_tool(event.call.server_name, event.call.tool_name)

    def _call_decision(self, event: ev.ToolCallDecision, n: int, producer: Producer, run: Run) -> None:
        call = self._referred(event, n, producer, run)
        if call is None:
            return
        run.decide(call, event, n)
        self._calls.changed(call)

    def _call_end(self, event: ev.ToolCallEnd, n: int, producer: Producer, run: Run) -> None:
        call = self._referred(event, n, producer, run)
        if call is None:
            return
        run.end_call(call, event, n)
        self._calls.changed(call)

    def _referred(
        self, event: ev.ToolCallDecision | ev.ToolCallEnd, n: int, producer: Producer, run: Run
    ) -> StoredCall | None:
        """The call that an event speaks of; None: it is another producer's."""
        call = self._calls.at_hand(producer.no, event.call.call_id)
        if call is None and not self._is_foreign(event.call.call_id, n, producer):
            call = self._calls.referred(event, producer.no, run)
        return call

    def _hint(self, event: ev.HintIssued, n: int, producer: Producer, run: Run) -> None:
        if self._is_foreign(event.call.call_id, n, producer):
            return
        call = self._calls.find(run, producer.no, event.call.call_id)
        if call is not None:
            call.hinted(event.hint, event.ts)
            self._calls.changed(call)

    def _breaker_trip(self, event: ev.BreakerTrip, n: int, producer: Producer, run: Run) -> None:
        self._is_foreign(event.call.call_id, n, producer)

    def _is_foreign(self, call_id: str, n: int, producer: Producer) -> bool:
        """Whether the call is another producer's; that it was claimed is kept."""
        if not is_foreign(call_id, producer.shim_id):
            return False
        self._conflicts.claimed(producer, call_id, n)
        return True

    def _run_start(self, event: ev.RunStart, n: int, producer: Producer, run: Run) -> None:
        run.start(event, producer)
        for policy in [event.run.policy, *(event.run.policies or [])]:
            self._catalogue.saw_policy(policy, event.run.mode, event.ts)

    def _run_end(self, event: ev.RunEnd, n: int, producer: Producer, run: Run) -> None:
        run.end(event, producer)

    def _policy_loaded(self, event: ev.PolicyLoaded, n: int, producer: Producer, run: Run) -> None:
        if event.load.ok:
            self._catalogue.saw_policy(event.policy, None, event.ts)

    def _model_message(self, event: ev.ModelMessage, n: int, producer: Producer, run: Run) -> None:
        run.message(event)

    def _tools_seen(self, event: ev.ToolsSeen, n: int, producer: Producer, run: Run) -> None:
        self._tool_versions.add(event, n)

    def _agent_event(self, event: ev.AgentEventRecorded, n: int, producer: Producer, run: Run) -> None:
        self._agent.add(event, n, run.run_no)

    def _is_stored(self, producer: Producer, seq: int, line: bytes) -> bool:
        same = self._events.holds(producer.no, seq, line)
        if same is False:
            raise BadEvent(OTHER_CONTENT.format(seq, producer.shim_id))
        return same is True

    # -- other writes -----------------------------------------------------------------------------------------

    def remove_run(self, run_id: str, work: Callable[[], None]) -> None:
        """Announce in its witness that a run goes, then take it out in one transaction.

        In this order a run that is gone without an announcement was not removed by us. A run that was announced and is
        still there (we were killed in between) is witnessed again at the next start.
        """
        run = self._runs.get(run_id)
        if run is not None:
            self.unwitnessed[run_id] = chain.Head(run.event_count, run.chain_head, pruned=True)
            self.witness()
        self.write(work)
        self.forget()

    def add_policy(self, policy_hash: str, snapshot: str) -> None:
        """Keep the text of a policy that a stored run refers to."""
        sql = "UPDATE policy_versions SET rules_json = ? WHERE rules_hash = ? AND rules_json IS NULL"
        self.write(lambda: self.connection.execute(sql, (snapshot, policy_hash)))

    def make_durable(self) -> None:
        """After this, every committed event survives a power cut as well: only then may its journal go."""
        try:
            descriptor = os.open(self.path + "-wal", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def witness(self) -> None:
        """Bring the heads file up to date. One that cannot be written now is tried again; the events are safe."""
        if not self.unwitnessed:
            return
        try:
            self.make_durable()
            size = chain.append_heads(self._heads_path, list(self.unwitnessed.items()))
            self.unwitnessed.clear()
            if size > self._heads_limit:
                self._heads_limit = max(chain.COMPACT_ABOVE_BYTES, 2 * chain.compact_heads(self._heads_path))
        except OSError:
            pass

    # -- inside -----------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Start the caches afresh from what is committed."""
        self._moved: dict[str, chain.Head] = {}
        self._speaker = None
        self._events = EventTable(self.connection, keeping=self._keeping)
        self._runs = RunTable(self.connection)
        self._calls = CallTable(self.connection, self._trusting)
        self._agent = AgentTable(self.connection)
        self._conflicts = ConflictTable(self.connection)
        self._tool_versions = ToolVersionTable(self.connection)
        self._catalogue = Catalogue(self.connection, snapshot_dir(os.path.dirname(self.path) or os.curdir))

    def _flush(self) -> None:
        self._speaker = None
        self._events.flush()
        self._calls.flush()
        for run in self._runs.flush():
            self._moved[run.run_id] = chain.Head(run.event_count, run.chain_head)
        self._catalogue.flush()
        self._agent.flush()
        self._conflicts.flush()
        self._tool_versions.flush()

    def _read_witness(self) -> None:
        """Find runs whose witness was not written because a process was killed in between: those are caught up.

        And runs that do not agree with their witness: those were tampered with. Their witness is left as it is, or
        going on would wipe out the evidence.
        """
        heads = chain.read_heads(self._heads_path)
        rows = self.connection.execute("SELECT run_no, run_id, event_count, chain_head FROM runs")
        for run_no, run_id, count, head in rows:
            known = heads.get(run_id)
            if known is None or known.pruned:
                self.unwitnessed[run_id] = chain.Head(count, head)
            elif known.count != count or known.hash != head:
                if hash_at(self.connection, run_no, known.count) == known.hash:
                    self.unwitnessed[run_id] = chain.Head(count, head)
                else:
                    self._disputed.add(run_id)


# The fold of each event type; a type that is not here is kept in the chain and changes no row.
_FOLDS: dict[type, Callable[[Store, Any, int, Producer, Run], None]] = {
    reading.Start: Store._call_start,
    reading.Decision: Store._call_decision,
    reading.End: Store._call_end,
    familiar.Start: Store._call_start,
    familiar.Decision: Store._call_decision,
    familiar.End: Store._call_end,
    ev.HintIssued: Store._hint,
    ev.BreakerTrip: Store._breaker_trip,
    ev.RunStart: Store._run_start,
    ev.RunEnd: Store._run_end,
    ev.PolicyLoaded: Store._policy_loaded,
    ev.AgentEventRecorded: Store._agent_event,
    ev.ModelMessage: Store._model_message,
    ev.ToolsSeen: Store._tools_seen,
}
