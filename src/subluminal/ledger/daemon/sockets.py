"""The daemon's end of its socket: who is connected, and who can be read from or written to now."""

from __future__ import annotations

import os
import selectors
import socket
import sqlite3
from collections.abc import Callable, Collection

from subluminal.contracts.errors import LedgerError
from subluminal.host.peer import is_owner
from subluminal.host.record.ledgerd import socket_address
from subluminal.ledger.daemon.connections import Connection

MAX_CONNECTIONS = 512


class Sockets:
    """`on_line` gets every line that comes in."""

    def __init__(self, path: str, on_line: Callable[[Connection, bytes], None]) -> None:
        self._path = path
        self._on_line = on_line
        self._by_number: dict[int, Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(path)
        self._accepted = False
        self.watch(self._listener.fileno(), self._accept)

    @property
    def connections(self) -> Collection[Connection]:
        return self._by_number.values()

    @property
    def reachable(self) -> bool:
        return os.path.exists(self._path)

    def watch(self, descriptor: int, callback: Callable[[], object]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def wait(self, seconds: float) -> bool:
        """Until something can be done, and do it. True: somebody has connected."""
        if any(c.follower is not None and c.has_room and c.behind for c in self.connections):
            seconds = 0.0
        self._accepted = False
        for key, _ in self._selector.select(seconds):
            key.data()
        return self._accepted

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        if not is_owner(peer) or len(self._by_number) >= MAX_CONNECTIONS:
            peer.close()
            return
        connection = self._by_number[peer.fileno()] = Connection(peer)
        self._register(connection, selectors.EVENT_READ)
        self._accepted = True

    def _register(self, connection: Connection, interest: int) -> None:
        self._selector.register(connection.socket, interest, lambda: self._ready(connection))

    def _ready(self, connection: Connection) -> None:
        if connection.wants_input:
            for line in connection.receive():
                self._on_line(connection, line)
        connection.flush()

    def serve(self, ledger: sqlite3.Connection) -> None:
        """Feed followers, write what can be written, and let go of connections that have closed."""
        for number, connection in list(self._by_number.items()):
            follower = connection.follower
            if follower is not None and connection.has_room:
                lines, connection.behind = follower.next_lines(ledger)
                for line in lines:
                    connection.send_line(line)
            connection.flush()
            # What a producer sent before it closed is still stored; only the answer has nowhere to go.
            if not connection.is_open and not connection.queued:
                self._set_interest(connection, 0)
                connection.socket.close()
                del self._by_number[number]
                continue
            interest = selectors.EVENT_READ if connection.wants_input else 0
            if connection.wants_output:
                interest |= selectors.EVENT_WRITE
            self._set_interest(connection, interest)

    def _set_interest(self, connection: Connection, interest: int) -> None:
        """Selectors refuse an empty interest: a connection that waits for a commit is watched for nothing at all."""
        known = self._selector.get_map().get(connection.socket)
        if not interest:
            if known is not None:
                self._selector.unregister(connection.socket)
        elif known is None:
            self._register(connection, interest)
        elif known.events != interest:
            self._selector.modify(connection.socket, interest, known.data)

    def stop_listening(self) -> None:
        try:
            os.unlink(self._path)
        except OSError:
            pass
        self._listener.close()

    def close(self) -> None:
        for connection in self.connections:
            connection.flush()
            connection.socket.close()


def _listen(path: str) -> socket.socket:
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
    return listener
