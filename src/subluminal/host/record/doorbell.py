"""The doorbell: tells ledgerd that journals have grown, and starts it if nobody answers.

Never on a call's path: the shim rings when it has been quiet for DELAY_MS, at most every DELAY_MS.
"""

from __future__ import annotations

import os

from subluminal.host import home
from subluminal.host.record.ledgerd import socket_address, spawn_ledgerd

# A shim's first seconds belong to the agent's start: ledgerd is not started before that much of its life.
START_AFTER_NS = 1_500_000_000
# Between two attempts to start ledgerd.
RETRY_NS = 10_000_000_000


class Notifier:
    DELAY_MS = 15

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._socket: object | None = None
        self._next_start_ns = START_AFTER_NS

    def ring(self, age_ns: int, last: bool = False) -> None:
        """`age_ns`: how long this process has run. `last`: it is ending, so nobody will ring later."""
        if not self._enabled:
            return
        if self._send():
            return
        if last or age_ns >= self._next_start_ns:
            self._next_start_ns = age_ns + RETRY_NS
            spawn_ledgerd(home.sub_home())

    def _send(self) -> bool:
        import socket

        try:
            if self._socket is None:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.setblocking(False)
                address, directory = socket_address(home.ledger_socket())
                try:
                    connection.connect(address)
                finally:
                    if directory >= 0:
                        os.close(directory)
                self._socket = connection
            assert isinstance(self._socket, socket.socket)
            self._socket.send(b'{"control":"wake"}\n')
        except BlockingIOError:
            return True  # it is there and has not yet read the last ring
        except OSError:
            if isinstance(self._socket, socket.socket):
                self._socket.close()
            self._socket = None
            return False
        return True
