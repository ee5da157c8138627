"""The home of a machine within a bound of bytes (`sub fleet join --max-disk`), kept by itself: a pod over its volume is
evicted, and takes with it what was not shipped.

What goes first is what `sub prune` takes, in its order (`holding`), and no more of it than is needed: kept results,
runs that were acknowledged whole, and then, of the oldest runs that were not, all but the decisions. A run that still
goes on stays, and so does every decision that was not acknowledged: where these alone are beyond the bound, it is told.
"""

from __future__ import annotations

import os
from contextlib import closing
from time import time
from typing import Any

from subluminal.contracts.errors import LedgerError
from subluminal.contracts.moments import epoch_ms, rfc3339
from subluminal.fleet.shipping.holding import acknowledged_place, may_go
from subluminal.host.clock import utc_now
from subluminal.host.home import ledger_db
from subluminal.host.record.results import kept_runs, remove
from subluminal.ledger.daemon.contact import ask
from subluminal.ledger.daemon.log import Log
from subluminal.ledger.store.prune import Shipped, prunable
from subluminal.ledger.store.schema import NoLedger, open_reader

EVERY_S = 30.0
AGAIN_S = 1.0
# Down to this part of the bound, so that not every look has to remove something.
_GOAL = 0.9
# Results of a run to which some were added since may still be needed by whoever works there.
_RESULTS_REST_S = 3600.0
_PATIENCE_S = 120.0
_PRAGMAS = ("freelist_count", "page_size")


class RoomTask:
    name = "room"

    def __init__(self, max_bytes: int, home: str, log: Log) -> None:
        self._bound, self._home, self._log = max_bytes, home, log
        self._bytes = self._over = 0
        self.every_s = EVERY_S

    def step(self) -> float:
        before = needed_bytes(self._home)
        if before > self._bound:
            self._make_room(before - int(self._bound * _GOAL))
        self._bytes = needed_bytes(self._home)
        self._over = max(0, self._bytes - self._bound)
        if self._bytes < before > self._bound:
            self._log(f"removed {before - self._bytes:,} bytes of what goes first: {self._bytes:,} of {self._bound:,}")
        return AGAIN_S if self._over and self._bytes < before else EVERY_S

    def facts(self) -> dict[str, Any]:
        return {"bytes": self._bytes, "max_disk_bytes": self._bound, "over_bytes": self._over}

    def _make_room(self, wanted: int) -> None:
        wanted -= _remove_results(wanted)
        if wanted <= 0:
            return
        now = utc_now()
        try:
            before, shipped, missing = _acknowledged(wanted, now, self._home)
        except NoLedger:
            return
        if before is not None:
            _prune(before, shipped)
        if missing > 0 and (found := may_go(now, self._home, missing=missing)) is not None and found.released:
            _prune(now, found)


def disk_bytes(home: str) -> int:
    """As a volume counts it: blocks, of whatever lies there."""
    total = 0
    for directory, _, names in os.walk(home):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except OSError:  # gone meanwhile
                pass
    return total


def needed_bytes(home: str) -> int:
    """Without what SQLite gives back or uses again by itself: removing more would not make that less."""
    path = ledger_db(home)
    try:
        with closing(open_reader(path)) as ledger:
            free, page = (int(ledger.execute(f"PRAGMA {name}").fetchone()[0]) for name in _PRAGMAS)
    except NoLedger:
        return disk_bytes(home)
    wal = os.path.getsize(path + "-wal") if os.path.exists(path + "-wal") else 0
    return max(0, disk_bytes(home) - free * page - wal)


def _remove_results(wanted: int) -> int:
    freed = 0
    for directory, written_s, _ in sorted(kept_runs(), key=lambda kept: kept[1]):
        if freed >= wanted or written_s > time() - _RESULTS_REST_S:
            break
        freed += remove(directory)
    return freed


def _acknowledged(wanted: int, now: str, home: str) -> tuple[str | None, Shipped, int]:
    """Up to when acknowledged runs must go, which these are, and how many bytes of lines are missing then, as the
    ledger stores them."""
    with closing(open_reader(ledger_db(home))) as ledger:
        shipped = Shipped(acknowledged_place(ledger, home) or 0)
        of_run = dict(ledger.execute("SELECT run_no, sum(length(lines)) FROM segments GROUP BY run_no").fetchall())
        # A run takes more than its lines, rows and indexes: as much more as the ledger has on average.
        lines = sum(of_run.values())
        missing = min(lines, wanted * lines // max(lines, os.path.getsize(ledger_db(home))) + 1)
        before = None
        for run in prunable(ledger, now, shipped):
            if missing <= 0:
                break
            missing -= of_run.get(run["run_no"], 0)
            before = rfc3339(epoch_ms(run["ended_at"]) + 1)
    return before, shipped, missing


def _prune(before: str, shipped: Shipped) -> None:
    """By ledgerd, which alone writes in the ledger."""
    asked = {"control": "prune", "before": before, "shipped": [shipped.place, sorted(shipped.released)]}
    answer = ask(asked, timeout=_PATIENCE_S) or {}
    if "pruned" not in answer:
        raise LedgerError(f"The ledger daemon could not remove the runs: {answer.get('error', 'no answer')}.")
