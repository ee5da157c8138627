"""The resident judge of one client: a private socket, one producer, one thread, one loop.

A hook command connects, says which client and event it is for (one line), sends what its client gave it and ends its
side; it gets one answer (`answers.frame`). Whoever connects must be of our own user.

The judge ends with the client's process, when it is told to (SIGTERM), when nobody has asked for IDLE_S, and when its
socket is no longer its own: the next hook starts another, and what was counted is in the run's state.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from time import monotonic_ns

from subluminal.adapters.hook.answers import frame
from subluminal.host import home
from subluminal.host.identity import start_time
from subluminal.host.peer import is_owner
from subluminal.host.record.doorbell import DELAY_MS
from subluminal.producer.health import Heartbeat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from subluminal.adapters.hook.answers import Answer
    from subluminal.adapters.hook.calls import Calls
    from subluminal.producer.producer import Producer

# A client makes some tens of calls at once; further hooks wait in the socket's queue.
MAX_CONNECTIONS = 64
BACKLOG = 256
# What is held of one payload, and of all of them together. A client's own limits are far below.
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
MAX_HELD_BYTES = 96 * 1024 * 1024
MAX_FIRST_LINE = 128
_READ_BYTES = 262_144
# Longer than a hook command waits for us.
CONNECTION_S = 30
IDLE_S = 3600
TICK_S = 1.0
_SECOND = 1_000_000_000


class _Connection:
    """One hook command. `size` counts what was sent, `data` is what is held of it."""

    __slots__ = ("began_ns", "data", "size", "socket")

    def __init__(self, accepted: socket.socket, now_ns: int) -> None:
        self.socket = accepted
        self.began_ns = now_ns
        self.data = bytearray()
        self.size = 0

    def take(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size <= MAX_PAYLOAD_BYTES:
            self.data += piece
        elif len(self.data) > MAX_FIRST_LINE:
            del self.data[MAX_FIRST_LINE:]  # it cannot be read: who asks and what for is all that is needed

    def asked(self) -> tuple[str, str, bytes, int] | None:
        """(client, event, payload, its size); None: not one of our hook commands."""
        line, newline, text = bytes(self.data).partition(b"\n")
        words = line.decode("ascii", "replace").split(" ")
        if not newline or len(line) >= MAX_FIRST_LINE or len(words) != 2:
            return None
        return words[0], words[1], text, self.size - len(line) - 1


class Judge:
    def __init__(self, listener: Listener, producer: Producer, calls: Calls, client: Client, health_ms: int) -> None:
        self._listener = listener
        self._producer = producer
        self._calls = calls
        self._client = client
        self._heartbeat = Heartbeat(producer, health_ms, monotonic_ns())
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        self._accepting = False
        self._told_to_end = False
        self._used_ns = monotonic_ns()

    def run(self) -> None:
        """Until it is over, with the record complete."""
        wakes = self._await_signals()
        self._selector.register(wakes, selectors.EVENT_READ, self._signalled)
        if self._client.descriptor >= 0:
            self._selector.register(self._client.descriptor, selectors.EVENT_READ, self._client_ended)
        self._accept_again()
        status = "SUCCEEDED"
        try:
            while (over := self._over()) is None:
                wait_s = DELAY_MS / 1000 if self._producer.doorbell.pressed_ns else TICK_S
                for key, _ in self._selector.select(wait_s):
                    key.data()
                self._tick()
            status = over
        finally:
            self._listener.close()
            self._calls.close(status)

    def _over(self) -> str | None:
        """The status of the run, for this producer, once there is nothing more to do."""
        if self._told_to_end:
            return "CANCELLED"
        if self._client.gone or not self._listener.is_ours():
            return "SUCCEEDED"
        idle = not self._connections and monotonic_ns() - self._used_ns > IDLE_S * _SECOND
        return "SUCCEEDED" if idle else None

    def _await_signals(self) -> int:
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self._wakes = reading
        return reading

    def _signalled(self) -> None:
        try:
            os.read(self._wakes, 64)
        except BlockingIOError:
            return
        self._told_to_end = True

    def _client_ended(self) -> None:
        self._client.gone = True

    def _tick(self) -> None:
        now_ns = monotonic_ns()
        self._client.look(now_ns)
        self._producer.doorbell.ring_if_due(now_ns)
        if now_ns >= self._heartbeat.next_ns:
            self._heartbeat.beat(now_ns, self._calls.pending)
        for connection in list(self._connections.values()):
            if now_ns - connection.began_ns > CONNECTION_S * _SECOND:
                self._drop(connection)
        self._read_within_bounds()

    # -- connections ------------------------------------------------------------------------------------------

    def _accept_again(self) -> None:
        if not self._accepting and len(self._connections) < MAX_CONNECTIONS:
            self._accepting = True
            self._selector.register(self._listener.socket, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.socket.accept()
        except OSError:
            return
        if not is_owner(accepted):
            accepted.close()
            return
        accepted.setblocking(False)
        connection = _Connection(accepted, monotonic_ns())
        self._connections[accepted.fileno()] = connection
        self._selector.register(accepted, selectors.EVENT_READ, lambda: self._read(connection))
        if len(self._connections) >= MAX_CONNECTIONS:
            self._accepting = False
            self._selector.unregister(self._listener.socket)

    def _read_within_bounds(self) -> None:
        """While much is held, only the oldest is read on: it ends, or its time does."""
        full = sum(len(connection.data) for connection in self._connections.values()) > MAX_HELD_BYTES
        for number, connection in enumerate(self._connections.values()):
            key = self._selector.get_map().get(connection.socket)
            if full and number and key is not None:
                self._selector.unregister(connection.socket)
            elif key is None and not (full and number):
                self._selector.register(
                    connection.socket, selectors.EVENT_READ, lambda connection=connection: self._read(connection)
                )

    def _read(self, connection: _Connection) -> None:
        try:
            piece = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)
            return
        if piece:
            connection.take(piece)
            return
        self._used_ns = monotonic_ns()
        asked = connection.asked()
        try:
            if asked is not None:
                self._answer(connection, self._calls.hear(*asked))
        except Exception:
            pass  # a fault of ours is no answer, and the hook's own line says what follows; other hooks are answered
        self._drop(connection)

    def _answer(self, connection: _Connection, answer: Answer) -> None:
        """It is small, so the socket takes it at once; whoever has gone needs none."""
        try:
            connection.socket.sendall(frame(answer))
        except OSError:
            pass

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        try:
            self._selector.unregister(connection.socket)
        except (KeyError, ValueError):
            pass
        connection.socket.close()
        self._accept_again()


class Client:
    """The process whose hooks we answer. `gone`: it has ended, or its number belongs to another."""

    def __init__(self, pid: int, started: str) -> None:
        self._pid = pid
        self._started = started
        self._looked_ns = monotonic_ns()
        self.gone = False
        self.descriptor = -1
        try:
            self.descriptor = os.pidfd_open(pid)
        except (AttributeError, OSError):
            pass  # then it is looked at now and then
        self.gone = start_time(pid) != started

    def look(self, now_ns: int) -> None:
        if self.descriptor < 0 and now_ns - self._looked_ns > 2 * _SECOND:
            self._looked_ns = now_ns
            self.gone = start_time(self._pid) != self._started


class Listener:
    """The socket below `run_dir`. A path may be too long for a socket: it is bound by its name, from where it is."""

    def __init__(self, name: str) -> None:
        self._path = os.path.join(home.run_dir(), name)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _from_run_dir(lambda: self._bind(name))
        self.socket.listen(BACKLOG)
        self.socket.setblocking(False)
        status = os.lstat(self._path)
        self._identity = status.st_dev, status.st_ino

    def _bind(self, name: str) -> None:
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass
        before = os.umask(0o177)
        try:
            self.socket.bind(name)
        finally:
            os.umask(before)

    def is_ours(self) -> bool:
        """Whoever removed or replaced it has made us unreachable."""
        try:
            status = os.lstat(self._path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def close(self) -> None:
        if self.is_ours():
            try:
                os.unlink(self._path)
            except OSError:
                pass
        self.socket.close()


def answers(name: str) -> bool:
    """Whether a judge listens there. It may hold on to our question until its loop comes round: that is an answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            _from_run_dir(lambda: probe.connect(name))
        except OSError:
            return False
        return is_owner(probe)


def _from_run_dir(work: Callable[[], None]) -> None:
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(home.run_dir())
        try:
            work()
        finally:
            os.fchdir(here)
    finally:
        os.close(here)
