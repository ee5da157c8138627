"""What `sub tail` follows: the ledger, read-only, polled for commits; and the daemon, kept awake.

Polling `PRAGMA data_version` costs some 20 µs, so many tails are cheap and none depends on the daemon's memory. The
connection to the daemon carries nothing: it keeps the daemon from ending while someone watches, and its end tells that
the daemon must be started again.
"""

from __future__ import annotations

import os
import select
import socket
import sqlite3
from collections.abc import Callable
from time import monotonic

from subluminal.cli.render.output import note
from subluminal.contracts.errors import LedgerError
from subluminal.host import home
from subluminal.host.record.ledgerd import spawn_ledgerd
from subluminal.ledger.daemon.contact import connect
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.store.encoding import unpack_lines
from subluminal.ledger.store.lines import arrivals
from subluminal.ledger.store.schema import NoLedger

# A call must be on the screen within 100 ms: 15 for the shim's doorbell, some for the commit, and this.
POLL_S = 0.03
_STAT_EVERY_S = 1.0
_START_EVERY_S = 2.0
_START_WITHIN_S = 6.0
_BATCH = 500
PATIENCE_S = 3.0
_MAX_PAUSE_S = 0.25
_NICE = 10


def give_way() -> None:
    """Whoever watches must not slow down what is watched: the daemon and the agents come first.

    Only once there is a ledger: a daemon that we start inherits this.
    """
    try:
        os.nice(_NICE)
    except OSError:
        pass


def pause_s(took_s: float, has_more: bool) -> float:
    """Until the next look. One that took long tells of a busy machine, perhaps with many like us: rest as long."""
    return min(max(took_s, 0.0 if has_more else POLL_S), _MAX_PAUSE_S)


class Gone(Exception):
    """Nobody reads our output any more."""


class Presence:
    """A connection to the daemon; starts it when it is not there."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._next_start = 0.0
        self._missing_since: float | None = None
        self._told = False
        self._poll = select.poll()
        self._poll.register(1, 0)  # errors and hang-ups only: the reader of our output has gone

    def keep(self) -> None:
        if self._connection is not None:
            return
        self._connection = connect()
        if self._connection is not None:
            self._connection.setblocking(False)
            self._poll.register(self._connection, select.POLLIN)
            self._missing_since = None
        else:
            self._start()

    def _start(self) -> None:
        self._missing_since = self._missing_since or monotonic()
        if not self._told and monotonic() - self._missing_since > _START_WITHIN_S:
            self._told = True
            note("The ledger daemon does not start; `sub ledgerd --foreground` shows why. Still trying.")
        if monotonic() >= self._next_start:
            self._next_start = monotonic() + _START_EVERY_S
            try:
                directory = home.ensure_private_dir(home.sub_home())
            except OSError as error:
                raise LedgerError(f"{home.sub_home()} cannot be used: {error.strerror}.") from None
            spawn_ledgerd(os.path.abspath(directory))

    def watch_input(self, watched: bool) -> None:
        """`wait` ends when something is typed."""
        if watched:
            self._poll.register(0, select.POLLIN)
        else:
            self._poll.unregister(0)

    def wait(self, seconds: float) -> bool:
        """Whether something was typed."""
        was_typed = False
        for descriptor, _ in self._poll.poll(seconds * 1000):
            if descriptor == 1:
                raise Gone
            if descriptor == 0:
                was_typed = True
            else:
                self._listen()
        return was_typed

    def _listen(self) -> None:
        assert self._connection is not None
        try:
            if self._connection.recv(4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._poll.unregister(self._connection)
        self._connection.close()
        self._connection = None
        self._next_start = 0.0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Feed:
    """Event lines in order of arrival, across restarts of the daemon and even a new database."""

    def __init__(self) -> None:
        self.ledger: Ledger | None = None
        self._place = 0
        self._version = -1
        self._inode = 0
        self._next_stat = 0.0
        self._more = False
        self._trouble_since: float | None = None

    def open(self, patience_s: float = PATIENCE_S) -> bool:
        """False: there is no ledger yet. One that cannot be read for so long raises `LedgerError`."""
        try:
            inode = os.stat(home.ledger_db()).st_ino
        except FileNotFoundError:
            self._trouble_since = None
            return False
        except OSError as error:
            raise LedgerError(f"The ledger {home.ledger_db()} cannot be read: {error.strerror}.") from None
        try:
            self.ledger = open_ledger()
        except NoLedger:
            self._trouble_since = None
            return False
        except LedgerError:
            # A daemon that has just started may be making or migrating the tables.
            self._trouble_since = self._trouble_since or monotonic()
            if monotonic() - self._trouble_since >= patience_s:
                raise
            return False
        self._trouble_since = None
        if inode != self._inode:
            self._inode, self._place = inode, 0
        self._version = -1
        return True

    def start_here(self) -> None:
        """Follow from what is stored now."""
        assert self.ledger is not None
        self._place = self.ledger.newest_arrival()

    def is_behind(self) -> bool:
        """Whether events have arrived that `lines` has not given yet."""
        try:
            return self.ledger is not None and self.ledger.newest_arrival() > self._place
        except sqlite3.Error:
            return False

    def lines(self) -> list[bytes]:
        """What has arrived since; soon again if `has_more`."""
        if self.ledger is None and not self.open():
            return []
        assert self.ledger is not None
        try:
            if self._replaced():
                self.close()
                return []
            version = self.ledger.changes()
            if version == self._version and not self._more:
                return []
            found = arrivals(self.ledger.connection, self._place, _BATCH)
        except sqlite3.Error:
            self.close()  # opened again at the next look
            return []
        self._version = version
        self._more = len(found) >= _BATCH
        if found:
            self._place = found[-1][0]
        return [line for _, line in found]

    def last_lines(self, count: int, wanted: Callable[[bytes], bool]) -> list[bytes]:
        """The last lines that are wanted, oldest first."""
        assert self.ledger is not None
        found: list[bytes] = []
        for (stored,) in self.ledger.connection.execute("SELECT lines FROM segments ORDER BY id DESC"):
            found += [line for line in reversed(unpack_lines(stored)) if wanted(line)]
            if len(found) >= count:
                break
        return found[:count][::-1]

    @property
    def has_more(self) -> bool:
        return self._more

    def close(self) -> None:
        if self.ledger is not None:
            self.ledger.close()
        self.ledger = None
        self._more = False

    def _replaced(self) -> bool:
        now = monotonic()
        if now < self._next_stat:
            return False
        self._next_stat = now + _STAT_EVERY_S
        try:
            return os.stat(home.ledger_db()).st_ino != self._inode
        except OSError:
            return True
