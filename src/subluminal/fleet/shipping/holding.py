"""What pruning leaves of a machine that cannot send: everything up to a bound of bytes, and decisions beyond it.

`sub prune` removes old runs, and so does the keeper where the home is bounded (`room`). On a machine that ships, in
this order:

1. results that were kept (`record.results`), which are never shipped;
2. runs that a collector has acknowledged whole;
3. beyond HELD_BYTES of what was not acknowledged, or as far as the home is beyond its bound, the oldest of the other
   runs: their decisions, and what says who acted under which policy, move to `fleet/shipped.db` and are sent from
   there; previews, starts and ends of calls, messages of models and the rest go. The collector names what is missing
   as gaps.

A decision that was not acknowledged is never removed, whatever the bound.
"""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from typing import NamedTuple

import msgspec

from subluminal.fleet.joined import read_joined
from subluminal.fleet.shipping.progress import NotKept, Progress, shipped_place
from subluminal.host.home import ledger_db
from subluminal.ledger.store.encoding import unpack_lines
from subluminal.ledger.store.lines import has_reached
from subluminal.ledger.store.prune import Shipped, prunable
from subluminal.ledger.store.schema import open_reader

HELD_BYTES = 4 << 30
# Their names go in one line to ledgerd.
_RELEASED_AT_ONCE = 10_000
# What stays of a run: decisions, who acted, and what changed how was decided.
KEPT_TYPES = frozenset(
    ("tool_call_decision", "run_start", "run_end", "policy_loaded", "breaker_trip", "promote", "settings_change")
)
_SPANS = (
    "SELECT s.first_n, s.count, p.shim_id, s.first_seq FROM spans s JOIN producers p USING (producer_no)"
    " WHERE s.run_no = ? AND s.first_n <= ? AND s.first_n + s.count > ? ORDER BY s.first_n"
)


class _Typed(msgspec.Struct):
    type: str


class Held(NamedTuple):
    run_id: str
    shim_id: str
    seq: int
    n: int
    line: bytes


def numbers(connection: sqlite3.Connection, run_no: int, first_n: int, count: int) -> list[tuple[int, str, int]]:
    """(n, shim_id, seq) of each event of a segment of the ledger."""
    last_n = first_n + count - 1
    found = []
    for span_n, span_count, shim_id, first_seq in connection.execute(_SPANS, (run_no, last_n, first_n)):
        for n in range(max(first_n, span_n), min(last_n, span_n + span_count - 1) + 1):
            found.append((n, shim_id, first_seq + n - span_n))
    return found


def acknowledged_place(ledger: sqlite3.Connection, home: str | None = None) -> int | None:
    """None: this machine ships nothing. One that is to ship and has not begun has nothing acknowledged, nor has one
    whose ledger is another than that which was shipped."""
    place = shipped_place(home)
    if place is None:
        joined = read_joined(home)
        return None if joined is None or joined.collector is None else 0
    return place if has_reached(ledger, place) else 0


def may_go(
    before: str,
    home: str | None = None,
    *,
    bound: int = HELD_BYTES,
    missing: int | None = None,
    dry_run: bool = False,
) -> Shipped | None:
    """For `prune`; None: this machine ships nothing. Beyond the bound, or for as many bytes as are `missing` elsewhere,
    decisions of the oldest runs are put aside first, unless it is only asked what would go."""
    released: list[str] = []
    with closing(open_reader(ledger_db(home))) as ledger:
        place = acknowledged_place(ledger, home)
        if place is None:
            return None
        size = ledger.execute("SELECT coalesce(sum(length(lines)), 0) FROM segments WHERE id > ?", (place,)).fetchone()[
            0
        ]
        bound = bound if missing is None else max(0, size - missing)
        acknowledged = {run["run_no"] for run in prunable(ledger, before, Shipped(place))}
        for run in prunable(ledger, before):
            if size <= bound or len(released) >= _RELEASED_AT_ONCE:
                break
            if run["run_no"] not in acknowledged:
                try:
                    if not dry_run:
                        _put_aside(ledger, run["run_no"], run["run_id"], place, home)
                except NotKept:  # no room to put anything aside: what was acknowledged can go, and makes some
                    break
                size -= _bytes(ledger, run["run_no"], place)
                released.append(run["run_id"])
    return Shipped(place, frozenset(released))


def _bytes(ledger: sqlite3.Connection, run_no: int, place: int) -> int:
    sql = "SELECT coalesce(sum(length(lines)), 0) FROM segments WHERE run_no = ? AND id > ?"
    return int(ledger.execute(sql, (run_no, place)).fetchone()[0])


def _put_aside(ledger: sqlite3.Connection, run_no: int, run_id: str, place: int, home: str | None) -> None:
    kept = []
    sql = "SELECT first_n, lines FROM segments WHERE run_no = ? AND id > ? ORDER BY id"
    for first_n, stored in ledger.execute(sql, (run_no, place)):
        lines = unpack_lines(stored)
        for n, shim_id, seq in numbers(ledger, run_no, first_n, len(lines)):
            line = lines[n - first_n]
            if msgspec.json.decode(line, type=_Typed).type in KEPT_TYPES:
                kept.append((run_id, shim_id, seq, n, zlib.compress(line, 1)))
    progress = Progress(home)
    try:
        progress.hold(kept)
    finally:
        progress.close()


def held(progress: Progress, limit: int) -> list[Held]:
    """Which are to be sent."""
    return [
        Held(run_id, shim_id, seq, n, zlib.decompress(line)) for run_id, shim_id, seq, n, line in progress.held(limit)
    ]


def held_line(progress: Progress, run_id: str, shim_id: str, seq: int) -> Held | None:
    found = progress.held_line(run_id, shim_id, seq)
    return None if found is None else Held(run_id, shim_id, seq, found[0], zlib.decompress(found[1]))
