"""A message too large to hold in memory: scanned as it passes, hashed as it passes, held in an unlinked file if it must
wait for its judgement (0600)."""

from __future__ import annotations

import os

from subluminal.contracts.digest import sha256
from subluminal.host import home
from subluminal.host.files import unlinked_file
from subluminal.mcp.message.scan import MessageScan

# Scanning makes several copies of what it is given: the first piece of a message can be a mebibyte.
SCAN_BYTES = 64 * 1024


class Oversize:
    """One message in pieces. With `hold`, its bytes wait in a file; `fault` says why they could not."""

    def __init__(self, hold: bool, max_message_bytes: int, *, strict: bool = True) -> None:
        self.scan = MessageScan(strict)
        self.size = 0
        self.hold = hold
        self.fault: str | None = None
        self._cr = b""  # a CR at the end: of CRLF if nothing follows, else inside the line, where some servers end it
        self._hash = sha256()
        self._limit = max_message_bytes
        self._fd = -1
        if hold:
            try:
                self._fd = unlinked_file(home.spool_dir())
            except OSError as error:
                self.fault = f"too large for memory, and there is no room to keep it: {error.strerror}"

    def feed(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._hash.update(chunk)
        self._scan(chunk)
        if self._fd < 0:
            return
        if self.size > self._limit:
            self._give_up(f"larger than {self._limit} bytes")
            return
        try:
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._give_up(f"too large for memory, and there is no room to keep it: {error.strerror}")

    def _scan(self, chunk: bytes) -> None:
        if self._cr and chunk:
            self.scan.feed(self._cr)
            self._cr = b""
        if chunk[-1:] == b"\r":
            self._cr, chunk = chunk[-1:], chunk[:-1]
        for start in range(0, len(chunk), SCAN_BYTES):
            self.scan.feed(chunk[start : start + SCAN_BYTES])

    def stream_hash(self) -> str:
        return str(self._hash.hexdigest())

    def release(self) -> tuple[int, int]:
        """The held message: a descriptor that is the caller's from now on, and its size."""
        fd, self._fd = self._fd, -1
        return fd, self.size

    def drop(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _give_up(self, fault: str) -> None:
        self.fault = fault
        self.drop()
