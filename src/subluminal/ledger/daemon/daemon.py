"""`sub ledgerd`: one thread, one selector. It reads journals and sockets, commits, acknowledges, and waits.

Pace: after work, look again at once; then, while a shim is connected or a journal has a living writer, after 50 ms,
doubling to a second; else after five seconds. A doorbell (`{"control": "wake"}`), a new connection or a signal ends any
wait. With nothing to do for `idle_exit_s` it ends, and the next shim starts it again.

Traps:
- Exactly one per home: the lock on `ledgerd.pid` decides, not the socket file, which a killed daemon leaves behind.
- A batch that fails (full disk, locked database) is tried again: journals keep what is not committed, sockets are not
  acknowledged. The daemon itself never dies of it.
"""

from __future__ import annotations

import fcntl
import gc
import os
import selectors
import signal
import socket
import sqlite3
from time import monotonic
from typing import Any

import msgspec

from subluminal.contracts.errors import LedgerError
from subluminal.contracts.moments import is_moment
from subluminal.host.home import ledger_db, ledger_socket, ledgerd_pid, run_dir, spool_dir
from subluminal.host.record.ledgerd import socket_address
from subluminal.host.run.files import remove_stale
from subluminal.ledger.daemon.connections import Connection
from subluminal.ledger.daemon.live import Follower, follow_request
from subluminal.ledger.daemon.log import Log
from subluminal.ledger.daemon.peer import is_owner
from subluminal.ledger.fold.reading import BadEvent
from subluminal.ledger.ingest.journals import Spool
from subluminal.ledger.store.lines import newest_arrival
from subluminal.ledger.store.policies import is_snapshot
from subluminal.ledger.store.prune import prune
from subluminal.ledger.store.writer import Store

# After a small batch, this long until the next: under a steady stream batches grow, and each commit costs the same.
GATHER_S = 0.02
SMALL_BATCH_BYTES = 512 << 10
LOOK_FIRST_S = 0.05
LOOK_LAST_S = 1.0
LOOK_IDLE_S = 5.0
RETRY_S = 0.5
WITNESS_EVERY_S = 1.0
# The state of runs that nobody has used for long is removed at the start and then this often.
HOUSEKEEPING_S = 3600.0
MAX_CONNECTIONS = 512
# A writer that is locked out gives up soon, so that sockets are served meanwhile; the batch is tried again.
BUSY_TIMEOUT_MS = 250
# All that decoding a hostile line can raise; nothing that comes over the socket may end the daemon.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Reference(msgspec.Struct):
    shim_id: str = ""
    seq: int | None = None


class _Line(msgspec.Struct):
    control: str | None = None
    source: _Reference | None = None


class _Prune(msgspec.Struct):
    before: str


class _Policy(msgspec.Struct):
    policy_hash: str
    snapshot: str


_decode_line = msgspec.json.Decoder(_Line).decode


class AlreadyRunning(LedgerError):
    exit_code = 0
    hint = "See it with `sub ledgerd --status`."


class Daemon:
    def __init__(self, home: str, *, idle_exit_s: float, log: Log) -> None:
        self.home = home
        self.idle_exit_s = idle_exit_s
        self.log = log
        self.connections: dict[int, Connection] = {}
        self.last_error: str | None = None
        self._stopping = False
        self._rung = True
        self._look_s = LOOK_FIRST_S
        self._not_before = 0.0  # no batch before this moment
        self._witnessed_at = 0.0
        self._housekeeping_at = 0.0
        self._active_at = monotonic()
        self._started_at = monotonic()
        self._ingested_bytes = 0
        self._lock = self._take_lock()
        self.store = Store(ledger_db(home), busy_timeout_ms=BUSY_TIMEOUT_MS)
        self.spool = Spool(spool_dir(home), self.store)
        self._selector = selectors.DefaultSelector()
        self._listener = self._listen()

    # -- start and end ----------------------------------------------------------------------------------------

    def _take_lock(self) -> int:
        path = ledgerd_pid(self.home)
        try:
            os.makedirs(spool_dir(self.home), mode=0o700, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerError(
                f"The ledger daemon cannot write in {self.home}: {error.strerror}.",
                hint="Make the directory writable, or set SUB_HOME to another one.",
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise AlreadyRunning(f"A ledger daemon is running already for {self.home}.") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return descriptor

    def _listen(self) -> socket.socket:
        path = self._socket_path = ledger_socket(self.home)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address, directory = socket_address(path)
        try:
            listener.bind(address)
        except OSError as error:
            raise LedgerError(f"The socket {path} cannot be made: {error.strerror}.") from None
        finally:
            if directory >= 0:
                os.close(directory)
        os.chmod(path, 0o600)
        listener.listen(128)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        return listener

    def run(self) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._selector.register(wake_read, selectors.EVENT_READ, lambda: os.read(wake_read, 512))
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
        try:
            os.unlink(self._socket_path)
        except OSError:
            pass
        self._listener.close()
        try:
            while self._commit():
                pass
        except (sqlite3.Error, OSError) as error:
            self.log(f"left for the next daemon: {error}")
        for connection in self.connections.values():
            connection.flush()
            connection.socket.close()
        self.spool.close()
        self.store.close()
        self.log(f"ledgerd {os.getpid()} ended")
        os.close(self._lock)

    def _forget_missing(self) -> None:
        try:
            self.spool.forget_missing()
        except (sqlite3.Error, OSError) as error:
            self._failed(error)

    # -- one turn ---------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._wait_s()):
            key.data()
        now = monotonic()
        if now >= self._not_before:
            try:
                self._work(now)
                self.last_error = None
            except (sqlite3.Error, OSError) as error:
                self._failed(error)
        self._serve()
        if self._idle(now):
            self.log("nothing to do; ending")
            self._stopping = True

    def _work(self, now: float) -> None:
        before = self._ingested_bytes
        if self._commit():
            self._active_at = now
            if 0 < self._ingested_bytes - before < SMALL_BATCH_BYTES:
                self._not_before = now + GATHER_S
            self._look_s = LOOK_FIRST_S
            self._rung = True  # look again at once: there may be more
        elif self.spool.tend():
            self._rung = True
        elif self._rung:
            self._rung = False
            self._look_s = LOOK_FIRST_S
        else:
            self._look_s = min(self._look_s * 2, LOOK_LAST_S)
        if now >= self._housekeeping_at:
            self._housekeeping_at = now + HOUSEKEEPING_S
            remove_stale(directory=run_dir(self.home))
        if self.store.unwitnessed and (now - self._witnessed_at > WITNESS_EVERY_S or not self._rung):
            self._witnessed_at = now
            self.store.witness()

    def _wait_s(self) -> float:
        if any(c.follower is not None and c.has_room and c.behind for c in self.connections.values()):
            return 0.0
        if (pause := self._not_before - monotonic()) > 0:
            return pause
        if self._rung:
            return 0.0
        if self.connections or self.spool.journals:
            return self._look_s
        return min(LOOK_IDLE_S, max(0.05, self.idle_exit_s))

    def _idle(self, now: float) -> bool:
        if not os.path.exists(self._socket_path):
            return True  # the home was removed: nobody can reach this daemon, and a new one would not see it
        if self.connections or self.spool.journals:
            self._active_at = max(self._active_at, now - self.idle_exit_s / 2)
            return False
        return now - self._active_at > self.idle_exit_s

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text != self.last_error:
            self.log(f"cannot store events now, will go on trying: {text}")
        self.last_error = text
        self._not_before = monotonic() + RETRY_S

    def _commit(self) -> bool:
        """One batch of whatever the journals and the sockets hold. True: there was something."""
        grown = self.spool.scan()
        speaking = [c for c in self.connections.values() if c.queued]
        if not grown and not speaking:
            return False
        taken = self.spool.pump() if grown else 0
        self._ingested_bytes += taken
        for connection in speaking:
            self._store_queued(connection)
        return bool(taken or speaking)

    def _store_queued(self, connection: Connection) -> None:
        lines = list(connection.queued)

        def work() -> list[dict[str, Any]]:
            return [self._store_line(line) for line in lines]

        answers = self.store.write(work)
        connection.take_queued()
        for answer in answers:
            connection.send(answer)

    def _store_line(self, line: bytes) -> dict[str, Any]:
        try:
            is_new = self.store.add(line)
        except BadEvent as error:
            return {"nack": {**_reference(line), "error": str(error)}}
        return {"ack": _reference(line)} if is_new else {"ack": _reference(line), "duplicate": True}

    # -- connections ------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        if not is_owner(peer) or len(self.connections) >= MAX_CONNECTIONS:
            peer.close()
            return
        connection = Connection(peer)
        self.connections[peer.fileno()] = connection
        self._selector.register(peer, selectors.EVENT_READ, lambda: self._ready(connection))
        self._rung = True

    def _ready(self, connection: Connection) -> None:
        if connection.wants_input:
            for line in connection.receive():
                self._take(connection, line)
        connection.flush()

    def _take(self, connection: Connection, line: bytes) -> None:
        try:
            control = _decode_line(line).control
        except UNREADABLE:
            control = None
        if control is None:
            connection.queue(line)
            self._rung = True
        elif control == "wake":
            self._rung = True
        elif control == "status":
            connection.send({"status": self.status()})
        elif control == "stop":
            connection.send({"stopping": True})
            self._stopping = True
        elif control == "follow":
            self._follow(connection, line)
        elif control in ("prune", "policy"):
            self._change(connection, control, line)
        else:
            connection.send({"error": "unknown control; known are wake, status, stop, follow, prune and policy"})

    def _change(self, connection: Connection, control: str, line: bytes) -> None:
        """Writes that commands ask for: the daemon is the one writer, so it does them."""
        try:
            if control == "prune":
                before = msgspec.json.decode(line, type=_Prune).before
                if is_moment(before):
                    connection.send({"pruned": prune(self.store, before)})
                else:
                    connection.send({"error": "before is no date"})
                return
            policy = msgspec.json.decode(line, type=_Policy)
            if is_snapshot(policy.snapshot.encode(), policy.policy_hash):
                self.store.add_policy(policy.policy_hash, policy.snapshot)
                connection.send({"policy": policy.policy_hash})
            else:
                connection.send({"error": "the snapshot does not have this policy_hash"})
        except (*UNREADABLE, sqlite3.Error, OSError) as error:
            connection.send({"error": str(error)})

    def _follow(self, connection: Connection, line: bytes) -> None:
        try:
            request = follow_request(msgspec.json.decode(line))
        except UNREADABLE as error:
            connection.send({"error": str(error)})
            return
        connection.follower = Follower(request, newest_arrival(self.store.connection))
        connection.send({"following": {"after": connection.follower.after}})

    def _serve(self) -> None:
        """Feed followers, write what can be written, and let go of connections that have closed."""
        for number, connection in list(self.connections.items()):
            follower = connection.follower
            if follower is not None and connection.has_room:
                lines, connection.behind = follower.next_lines(self.store.connection)
                for line in lines:
                    connection.send_line(line)
            connection.flush()
            # What a producer sent before it closed is still stored; only the answer has nowhere to go.
            if not connection.is_open and not connection.queued:
                self._watch(connection, 0)
                connection.socket.close()
                del self.connections[number]
                continue
            interest = selectors.EVENT_READ if connection.wants_input else 0
            if connection.wants_output:
                interest |= selectors.EVENT_WRITE
            self._watch(connection, interest)

    def _watch(self, connection: Connection, interest: int) -> None:
        """Selectors refuse an empty interest: a connection that waits for a commit is watched for nothing at all."""
        known = self._selector.get_map().get(connection.socket)
        if not interest:
            if known is not None:
                self._selector.unregister(connection.socket)
        elif known is None:
            self._selector.register(connection.socket, interest, lambda: self._ready(connection))
        elif known.events != interest:
            self._selector.modify(connection.socket, interest, known.data)

    def status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "uptime_s": round(monotonic() - self._started_at, 1),
            "connections": len(self.connections),
            "followers": sum(c.follower is not None for c in self.connections.values()),
            "journals": len(self.spool.journals),
            "lag_bytes": sum(max(0, j.size - j.offset) for j in self.spool.journals.values()),
            "ingested_bytes": self._ingested_bytes,
            "rejected_lines": self.spool.rejected_lines,
            "last_error": self.last_error,
        }


def _reference(line: bytes) -> dict[str, Any]:
    try:
        source = _decode_line(line).source
    except UNREADABLE:
        source = None
    if source is None:
        return {}
    return {"shim_id": source.shim_id, "seq": source.seq}
