"""The shipper: a piece of the ledger at a time, each acknowledged before the next. One task of the keeper.

A collector that refuses a segment for what it holds would refuse it for ever: it is cut in halves until the lines that
are refused stand alone. Those are written down, tried again each hour, and kept from pruning; the others go on. What
was refused and has gone from the ledger all the same is let go, so that nothing waits behind it.

Where an acknowledgement cannot be written down (a full disk), nothing more is sent until it can: it is kept in memory,
so that only a shipper that ends meanwhile sends those lines again.
"""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

from subluminal.contracts.errors import FleetError, LedgerError
from subluminal.fleet.joined import Joined
from subluminal.fleet.segments import Segment
from subluminal.fleet.shipping.backlog import Piece, part, read_piece, without_known
from subluminal.fleet.shipping.holding import Held, held, held_line
from subluminal.fleet.shipping.progress import NO_PLACE, Ack, NotKept, Progress, Refused, ledger_name
from subluminal.fleet.shipping.sending import Address, Collector, Later, Refusal
from subluminal.fleet.waiting import wait_s
from subluminal.host.clock import utc_now
from subluminal.host.home import ledger_db
from subluminal.ledger.store.lines import has_reached
from subluminal.ledger.store.schema import NoLedger, open_reader

# How long a step goes on while there is something to send; the keeper wants to look up now and then.
STEP_S = 20.0
IDLE_S = 1.0
# Until somebody has made room; looking costs next to nothing.
NO_ROOM_S = 2.0
# Segments on their way at a time: each waits for the commit of its collector.
AT_ONCE = 4
_HELD_AT_ONCE = 512
_HELD_CONNECTIONS = 32
_REFUSED_AGAIN_S = 3600.0
_MAX_TOLD = 500


class _Sent(NamedTuple):
    """What is still to be written down, and of which ledger."""

    ledger: str
    place: int
    acks: list[Ack]
    refused: list[Refused]


class _Share(NamedTuple):
    """What became of the held lines that one connection was given; `error`: why it went no further."""

    acked: list[Held]
    refused: list[Refused]
    error: FleetError | None


class ShipTask:
    name = "ship"

    def __init__(self, address: Address, home: str | None = None) -> None:
        self._home, self._address = home, address
        self._collectors = [Collector(address) for _ in range(AT_ONCE)]
        self._threads = ThreadPoolExecutor(AT_ONCE, "ship")
        self._opened: Progress | None = None
        self._sent: _Sent | None = None
        self._failures = 0
        self._catching_up = False
        self._cursors: dict[tuple[str, str], int] = {}
        self._refused_at = float("-inf")
        self.last_wait: str | None = None

    def close(self) -> None:
        self._threads.shutdown()
        for collector in self._collectors:
            collector.close()
        if self._opened is not None:
            self._opened.close()

    @property
    def _progress(self) -> Progress:
        """Not before it is needed: a disk that is full when the keeper starts must not keep it from starting."""
        if self._opened is None:
            self._opened = Progress(self._home)
        return self._opened

    def step(self) -> float:
        """Seconds until it wants to run again."""
        try:
            more = self._ship()
        except Later as error:
            self._failures += 1
            self.last_wait = str(error)
            return wait_s(self._failures, error.seconds)
        except NoLedger:
            return IDLE_S
        except (NotKept, LedgerError, sqlite3.Error) as error:
            self._failures += 1
            self.last_wait = str(error)
            return NO_ROOM_S
        except FleetError:
            self._failures += 1
            raise
        self._failures = 0
        self.last_wait = None
        return 0.0 if more else IDLE_S

    def facts(self) -> dict[str, Any]:
        """What keeps it waiting, and for how many steps now: a collector that is away is no failure of a step."""
        return {} if self.last_wait is None else {"last_wait": self.last_wait[:_MAX_TOLD], "waits": self._failures}

    def _ship(self) -> bool:
        """Whether there is more to send."""
        until = monotonic() + STEP_S
        self._write_down()
        with closing(open_reader(ledger_db(self._home))) as ledger:
            self._again(ledger)
            self._send_held()
            while (piece := read_piece(ledger, self._after(ledger))) is not None:
                self._send(piece)
                if monotonic() > until:
                    return True
        self._catching_up = False
        self._cursors.clear()
        return False

    def _after(self, ledger: sqlite3.Connection) -> int:
        place = self._progress.place()
        if place is not None and not has_reached(ledger, place):  # an earlier copy was put in its place
            place = None
        if place is None:
            self._catching_up = True
        return place or 0

    def _send(self, piece: Piece) -> None:
        """All of it is acknowledged, or nothing of it is written down: then it is sent again."""
        ledger = ledger_name(self._home)
        wanted = [self._unknown(segment) if self._catching_up else segment for segment in piece.segments]
        segments = [segment for segment in wanted if segment is not None]
        acks: list[Ack] = []
        refused: list[Refused] = []
        failed = Event()

        def send(place: int) -> None:
            for segment in segments[place::AT_ONCE]:
                if failed.is_set():
                    return
                try:
                    self._offer(self._collectors[place], segment, piece, acks, refused)
                except BaseException:
                    failed.set()
                    raise

        sent = [self._threads.submit(send, place) for place in range(min(AT_ONCE, len(segments)))]
        wait(sent)  # whoever comes next uses the same connections
        for each in sent:
            each.result()
        self._sent = _Sent(ledger, piece.place, acks, refused)
        self._write_down()

    def _write_down(self) -> None:
        sent = self._sent
        if sent is not None and sent.ledger == ledger_name(self._home):
            self._progress.record(sent.place, sent.acks, sent.refused, utc_now())
        self._sent = None

    def _unknown(self, segment: Segment) -> Segment | None:
        """After long absence, or with another ledger, the collector is asked what it has."""
        producer = (segment.run_id, segment.shim_id)
        if producer not in self._cursors:
            self._cursors[producer] = self._collectors[0].cursor(*producer)
        return without_known(segment, self._cursors[producer])

    def _offer(
        self, collector: Collector, segment: Segment, piece: Piece, acks: list[Ack], refused: list[Refused]
    ) -> None:
        try:
            collector.send(segment)
            acks.append(Ack(segment.run_id, segment.shim_id, segment.first_seq, segment.last_seq))
        except Refusal as error:
            count = len(segment.lines)
            if count == 1:
                where = (segment.run_id, segment.shim_id, segment.first_seq, piece.first_place, piece.place)
                refused.append(Refused(*where, str(error)))
                return
            for half in (part(segment, 0, count // 2), part(segment, count // 2, count)):
                self._offer(collector, half, piece, acks, refused)

    def _send_held(self) -> None:
        """Decisions of runs that were pruned before they could be sent. What lay between them is gone, so each is a
        segment of its own; many at once, for each waits for a commit."""
        found = held(self._progress, _HELD_AT_ONCE)
        if not found:
            return
        collectors = [Collector(self._address) for _ in range(min(len(found), _HELD_CONNECTIONS))]
        try:
            with ThreadPoolExecutor(len(collectors), "held") as threads:
                while found:
                    shares = [found[place :: len(collectors)] for place in range(len(collectors))]
                    self._settle(list(threads.map(_send_alone, collectors, shares)))
                    found = held(self._progress, _HELD_AT_ONCE)
        finally:
            for collector in collectors:
                collector.close()

    def _settle(self, shares: list[_Share]) -> None:
        self._progress.let_go([line[:3] for share in shares for line in share.acked])
        self._progress.refuse([each for share in shares for each in share.refused], utc_now())
        for share in shares:
            if share.error is not None:
                raise share.error

    def _again(self, ledger: sqlite3.Connection) -> None:
        """What was refused: a collector of a later version may take it."""
        if monotonic() - self._refused_at < _REFUSED_AGAIN_S:
            return
        self._refused_at = monotonic()
        for each in self._progress.refused():
            segment = self._held_again(each) if each.first_place == NO_PLACE else _in_ledger(ledger, each)
            if segment is None:
                if not _has_run(ledger, each.run_id):
                    self._progress.taken(*each[:3])
                continue
            try:
                self._collectors[0].send(segment)
            except Refusal:
                continue
            self._progress.let_go([each[:3]])
            self._progress.taken(*each[:3])

    def _held_again(self, refused: Refused) -> Segment | None:
        found = held_line(self._progress, *refused[:3])
        return None if found is None else _alone(found)


def _send_alone(collector: Collector, lines: list[Held]) -> _Share:
    acked: list[Held] = []
    refused: list[Refused] = []
    for line in lines:
        try:
            collector.send(_alone(line))
            acked.append(line)
        except Refusal as error:
            refused.append(Refused(*line[:3], NO_PLACE, NO_PLACE, str(error)))
        except FleetError as error:
            return _Share(acked, refused, error)
    return _Share(acked, refused, None)


def _alone(line: Held) -> Segment:
    return Segment(line.run_id, line.shim_id, line.seq, [line.line], [(line.n, 1)])


def _has_run(ledger: sqlite3.Connection, run_id: str) -> bool:
    return ledger.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is not None


def _in_ledger(ledger: sqlite3.Connection, refused: Refused) -> Segment | None:
    """The line that was refused; None: it is not there."""
    found = read_piece(ledger, refused.first_place - 1, refused.last_place)
    for segment in found.segments if found is not None else ():
        offset = refused.seq - segment.first_seq
        same = (segment.run_id, segment.shim_id) == (refused.run_id, refused.shim_id)
        if same and 0 <= offset < len(segment.lines):
            return part(segment, offset, offset + 1)
    return None


def ship_task(joined: Joined, collector: str, home: str | None = None) -> ShipTask:
    return ShipTask(Address.of(joined, collector), home)
