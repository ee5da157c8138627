"""The daemon's socket connections: lines in, lines out, all non-blocking and bounded.

A connection whose input is not committed yet, or whose reader is slow, is simply not read from: the kernel's socket
buffer fills and the producer waits. Nothing here grows with the speed of the other side.
"""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from subluminal.ledger.daemon.live import Follower
from subluminal.ledger.fold.reading import MAX_LINE_BYTES

READ_BYTES = 256 << 10
# Lines that wait for the next commit, per connection.
QUEUE_BYTES = 1 << 20
OUT_BYTES = 1 << 20

_encode = msgspec.json.Encoder().encode


class Connection:
    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self.socket = peer
        self.queued: list[bytes] = []
        self.queued_bytes = 0
        self.follower: Follower | None = None
        self.behind = False  # the follower has not caught up
        self.is_open = True
        self._partial = b""
        self._out = bytearray()

    # -- input ------------------------------------------------------------------------------------------------

    @property
    def wants_input(self) -> bool:
        return self.is_open and self.queued_bytes < QUEUE_BYTES and len(self._out) < OUT_BYTES

    def receive(self) -> list[bytes]:
        """Complete lines that have come in. An end of file, an error or an endless line closes the connection."""
        try:
            data = self.socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b""
        if not data:
            self.is_open = False
            return []
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > MAX_LINE_BYTES:
            self.send({"error": f"a line may have at most {MAX_LINE_BYTES} bytes"})
            self.flush()
            self.is_open = False
        return [line for line in lines if line.strip()]

    def queue(self, line: bytes) -> None:
        self.queued.append(line)
        self.queued_bytes += len(line)

    def take_queued(self) -> list[bytes]:
        lines, self.queued, self.queued_bytes = self.queued, [], 0
        return lines

    # -- output -----------------------------------------------------------------------------------------------

    @property
    def wants_output(self) -> bool:
        return bool(self._out)

    @property
    def has_room(self) -> bool:
        return len(self._out) < OUT_BYTES

    def send(self, value: Any) -> None:
        self.send_line(_encode(value))

    def send_line(self, line: bytes) -> None:
        self._out += line
        self._out += b"\n"

    def flush(self) -> None:
        while self._out:
            try:
                sent = self.socket.send(self._out)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.is_open = False
                self._out.clear()
                return
            del self._out[:sent]
