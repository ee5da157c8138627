"""The doorbell: tells ledgerd that journals have grown, and starts it if nobody answers.

Never on a call's path: it is pressed when something was written, and rung when DELAY_MS have passed since.
"""

from __future__ import annotations

import os
from time import monotonic_ns

from subluminal.host import home
from subluminal.host.record.ledgerd import socket_address, spawn_ledgerd

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

# A shim's first seconds belong to the agent's start: ledgerd is not started before that much of its life.
START_AFTER_NS = 1_500_000_000
# Between two attempts to start ledgerd.
RETRY_NS = 10_000_000_000
DELAY_MS = 15


class Doorbell:
    """Not `enabled`: nobody reads what is written, so nobody is told. `pressed_ns`: since when; 0 while it is not."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.pressed_ns = 0
        self._socket: socket.socket | None = None
        self._start_ns = monotonic_ns() + START_AFTER_NS

    def press(self) -> None:
        if not self.pressed_ns and self.enabled:
            self.pressed_ns = monotonic_ns()

    def ring_if_due(self, now_ns: int) -> None:
        if self.pressed_ns and now_ns - self.pressed_ns >= DELAY_MS * 1_000_000:
            self.ring()

    def ring(self, last: bool = False) -> None:
        """`last`: this process is ending, so nobody will ring later."""
        self.pressed_ns = 0
        if not self.enabled or self._send():
            return
        now_ns = monotonic_ns()
        if last or now_ns >= self._start_ns:
            self._start_ns = now_ns + RETRY_NS
            spawn_ledgerd(home.sub_home())

    def close(self) -> None:
        connection, self._socket = self._socket, None
        try:
            if connection is not None:
                connection.close()
        except OSError:
            pass  # closed by the host we are in

    def _send(self) -> bool:
        import socket

        try:
            if self._socket is None:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.setblocking(False)
                address, directory = socket_address(home.ledger_socket())
                try:
                    connection.connect(address)
                except OSError:
                    connection.close()
                    raise
                finally:
                    if directory >= 0:
                        os.close(directory)
                self._socket = connection
            self._socket.send(b'{"control":"wake"}\n')
        except BlockingIOError:
            return True  # it is there and has not yet read the last ring
        except OSError:
            self.close()
            return False
        return True
