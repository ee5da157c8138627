"""Runs of a fleet as ledgers of their own, folded here from their exact lines: in a private directory, a few at a time.

A run that goes on is brought up to date with what is new of it. Where that does not make as many events as the store
has (another machine took part, a gap was filled), it is folded anew.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from subluminal.contracts.errors import LedgerError
from subluminal.host.home import ledger_db, snapshot_dir
from subluminal.ledger.read.ledger import Ledger, open_ledger

# Of one run. More takes longer to fetch and fold than anybody waits in front of a page.
MOST_EVENTS = 100_000
MOST_BYTES = 256 << 20
# Of all that are kept: those that were looked at last.
MOST_RUNS = 8
KEPT_BYTES = 512 << 20

# The lines of the run from after so many on.
Lines = Callable[[int], Iterable[bytes]]


class Short(Exception):
    """The lines were not all that is new: nothing of them was added."""


class Added(NamedTuple):
    lines: int
    events: int


def fold_lines(path: str, lines: Iterable[bytes], need: int = 0) -> Added:
    """To the ledger there, all at once; Short: fewer events than `need` are new."""
    from subluminal.ledger.fold.reading import BadEvent
    from subluminal.ledger.store.writer import Store

    store = Store(path)
    count = events = 0
    try:
        with store.batch():
            for line in lines:
                count += 1
                try:
                    events += store.add(line)
                except BadEvent:
                    continue  # of a version that this machine does not read
            if events < need:
                raise Short
    finally:
        store.close()
    return Added(count, events)


class _Folded:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.path = ledger_db(directory)
        self.bringing = Lock()
        self.added = Added(0, 0)
        self.events = -1  # as many as the store had when it was folded
        self.users = 0

    @property
    def bytes(self) -> int:
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0


class FoldedRuns:
    """`home`: whose policies may be those that decided; the store of a fleet has their hashes alone."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._directory = tempfile.TemporaryDirectory(prefix="sub-fleet-")
        self._lock = Lock()
        self._kept: dict[str, _Folded] = {}

    def close(self) -> None:
        self._directory.cleanup()

    @contextmanager
    def ledger(self, run_id: str, events: int, lines: Lines) -> Iterator[Ledger]:
        """Of a run that has so many events now."""
        if events > MOST_EVENTS:
            raise _too_large(f"has {events:,} events")
        folded = self._borrow(run_id)
        try:
            with folded.bringing:
                if folded.events != events:
                    self._bring(folded, events, lines)
            with open_ledger(folded.path) as ledger:
                yield ledger
        finally:
            self._give_back(folded)

    def _bring(self, folded: _Folded, events: int, lines: Lines) -> None:
        folded.events = -1
        had = folded.added
        try:
            new = fold_lines(folded.path, _bounded(lines(had.lines)), events - had.events if had.lines else 0)
            folded.added = Added(had.lines + new.lines, had.events + new.events)
        except Short:
            _remove(folded.path)
            folded.added = Added(0, 0)
            folded.added = fold_lines(folded.path, _bounded(lines(0)))
        self._add_policies(folded.path)
        folded.events = events

    def _add_policies(self, path: str) -> None:
        from subluminal.ledger.store.policies import find_snapshot
        from subluminal.ledger.store.writer import Store

        with open_ledger(path) as ledger:
            sql = "SELECT DISTINCT rules_hash FROM policy_versions WHERE rules_json IS NULL"
            wanted = [row[0] for row in ledger.connection.execute(sql)]
        found = {policy_hash: find_snapshot(snapshot_dir(self._home), policy_hash) for policy_hash in wanted}
        if any(found.values()):
            store = Store(path)
            try:
                for policy_hash, text in found.items():
                    if text is not None:
                        store.add_policy(policy_hash, text.decode())
            finally:
                store.close()

    def _borrow(self, run_id: str) -> _Folded:
        with self._lock:
            folded = self._kept.pop(run_id, None)
            if folded is None:
                folded = _Folded(tempfile.mkdtemp(dir=self._directory.name))
            self._kept[run_id] = folded  # the one that was looked at last stands last
            folded.users += 1
            return folded

    def _give_back(self, folded: _Folded) -> None:
        with self._lock:
            folded.users -= 1
            held = sum(each.bytes for each in self._kept.values())
            for run_id, each in list(self._kept.items())[:-1]:
                if len(self._kept) <= MOST_RUNS and held <= KEPT_BYTES:
                    break
                if each.users == 0:
                    held -= each.bytes
                    del self._kept[run_id]
                    shutil.rmtree(each.directory, ignore_errors=True)


def _remove(path: str) -> None:
    """With what SQLite and its witness have laid beside it. Whoever reads it still has it."""
    directory = os.path.dirname(path)
    for name in os.listdir(directory):
        os.unlink(os.path.join(directory, name))


def _bounded(lines: Iterable[bytes]) -> Iterator[bytes]:
    count = size = 0
    for line in lines:
        count, size = count + 1, size + len(line)
        if count > MOST_EVENTS or size > MOST_BYTES:
            raise _too_large(f"has more than {MOST_EVENTS:,} events or {MOST_BYTES >> 20} MiB")
        yield line


def _too_large(what: str) -> LedgerError:
    hint = "Its calls are listed; `sub show` on the machine that recorded it tells the rest."
    return LedgerError(f"This run {what}: too much to be fetched for a page.", hint=hint)
