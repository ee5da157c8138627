"""`sub ledgerd`: one thread, one loop. It takes in journals and sockets, commits, acknowledges, and waits (see `pace`).

Trap: exactly one per home. The lock on `ledgerd.pid` decides, not the socket file, which a killed daemon leaves behind.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sqlite3
from time import monotonic
from typing import Any

from subluminal.contracts.errors import LedgerError
from subluminal.host.files import open_private
from subluminal.host.home import ensure_private_dir, ledger_socket, ledgerd_pid, spool_dir
from subluminal.ledger.daemon.companion import Companion
from subluminal.ledger.daemon.connections import Connection
from subluminal.ledger.daemon.controls import answer, control_of
from subluminal.ledger.daemon.intake import Intake
from subluminal.ledger.daemon.log import Log
from subluminal.ledger.daemon.pace import Pace
from subluminal.ledger.daemon.sockets import Sockets
from subluminal.ledger.daemon.ui import Ui

# Between taking its name out of the lock and letting go of it a daemon does nothing else.
GOING_S = 0.5


class AlreadyRunning(LedgerError):
    exit_code = 0
    hint = "See it with `sub ledgerd --status`."


def _take_lock(home: str) -> int:
    try:
        ensure_private_dir(spool_dir(home), home)
        descriptor = open_private(ledgerd_pid(home), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        hint = "Make the directory writable, or set SUB_HOME to another one."
        place = error.filename or home
        raise LedgerError(f"The ledger daemon cannot write in {home}: {place}: {error.strerror}.", hint=hint) from None
    give_up = monotonic() + GOING_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if os.pread(descriptor, 1, 0) or monotonic() > give_up:
                os.close(descriptor)
                raise AlreadyRunning(f"A ledger daemon is running already for {home}.") from None
            os.sched_yield()  # nobody's name is in it: its holder is on its way out, or looks whether one is
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return descriptor


class Daemon:
    def __init__(self, home: str, *, idle_exit_s: float, log: Log) -> None:
        self.home = home
        self.log = log
        self._last_error: str | None = None
        self._stopping = False
        self._started_at = monotonic()
        self._pace = Pace(idle_exit_s, self._started_at)
        self._lock = _take_lock(home)
        self._intake = Intake(home)
        self._sockets = Sockets(ledger_socket(home), self._take)
        self.ui = Ui(home, log)
        self.companion: Companion | None = None

    def run(self) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._sockets.watch(wake_read, lambda: os.read(wake_read, 512))
        # A batch makes tens of thousands of objects and no cycles: looking for some after every 700 costs a tenth.
        gc.freeze()
        gc.set_threshold(200_000, 10, 10)
        self.log(f"ledgerd {os.getpid()} started for {self.home}")
        try:
            self._forget_missing()
            while not self._stopping:
                self._turn()
        except Exception as error:
            self.log(f"ledgerd {os.getpid()} failed: {type(error).__name__}: {error}")
            raise
        finally:
            self._shut_down()

    def _on_signal(self, number: int, frame: Any) -> None:
        self._stopping = True

    def _shut_down(self) -> None:
        """The socket goes first, so that whoever comes now starts a new daemon; then what is there is taken in."""
        self._sockets.stop_listening()
        if self.companion is not None:
            self.companion.end()
        try:
            while self._intake.commit(self._sockets.connections):
                pass
        except (sqlite3.Error, OSError) as error:
            self.log(f"left for the next daemon: {error}")
        self._sockets.close()
        self._intake.close()
        self.log(f"ledgerd {os.getpid()} ended")
        os.ftruncate(self._lock, 0)  # whoever waits for the end (`contact.stop`) sees it
        os.close(self._lock)

    def _forget_missing(self) -> None:
        try:
            self._intake.spool.forget_missing()
        except (sqlite3.Error, OSError) as error:
            self._failed(error)

    def _turn(self) -> None:
        if self._sockets.wait(self._pace.wait_s(monotonic(), watched=self._watched)):
            self._pace.rung = True
        now = monotonic()
        if self._pace.may_work(now):
            try:
                self._work(now)
                self._last_error = None
            except (sqlite3.Error, OSError) as error:
                self._failed(error)
        self._sockets.serve(self._intake.store.connection)
        if self.companion is not None:
            self.companion.tend(now)
        # Without its socket (the home was removed) nobody can reach this daemon, and a new one would not see it.
        if not self._sockets.reachable or self._pace.is_over(now, watched=self._watched):
            self.log("nothing to do; ending")
            self._stopping = True

    @property
    def _watched(self) -> bool:
        kept = self.companion is not None and self.companion.wanted
        return bool(self._sockets.connections or self._intake.spool.journals or self.ui.pages or kept)

    def _work(self, now: float) -> None:
        before = self._intake.journal_bytes
        if self._intake.commit(self._sockets.connections):
            self._pace.worked(self._intake.journal_bytes - before, now)
            self.ui.committed()
        elif self._intake.spool.tend():
            self._pace.rung = True
        else:
            self._pace.found_nothing()
        self._intake.keep_house(now, busy=self._pace.rung)

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self._last_error:
            self.log(f"cannot store events now, will go on trying: {text}")
        self._last_error = text
        self._pace.failed(monotonic())

    def _take(self, connection: Connection, line: bytes) -> None:
        control = control_of(line)
        if control is None:
            connection.queue(line)
            self._pace.rung = True
        elif control == "wake":
            self._pace.rung = True
        elif control == "status":
            connection.send({"status": self.status()})
        elif control == "stop":
            connection.send({"stopping": True})
            self._stopping = True
        elif control == "ui":
            connection.send(self.ui.open(line))
        else:
            connection.send(answer(control, line, connection, self._intake.store))

    def status(self) -> dict[str, Any]:
        connections, spool = self._sockets.connections, self._intake.spool
        return {
            "pid": os.getpid(),
            "uptime_s": round(monotonic() - self._started_at, 1),
            "connections": len(connections),
            "followers": sum(connection.follower is not None for connection in connections),
            "journals": len(spool.journals),
            "lag_bytes": sum(max(0, journal.size - journal.offset) for journal in spool.journals.values()),
            "ingested_bytes": self._intake.journal_bytes,
            "rejected_lines": spool.rejected_lines,
            "last_error": self._last_error,
        }
