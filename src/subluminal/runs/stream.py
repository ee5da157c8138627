"""Events handed on while a run is recorded: to stdout, another descriptor or a file, in the order of events.jsonl.

That file is the buffer, so a slow reader costs no memory and never holds up the run; what it has not read
is written when the run has ended. A reader that goes away ends the stream, not the run.
"""

from __future__ import annotations

import os
import select

from subluminal.contracts.errors import UsageError
from subluminal.host.record.sinks import descriptor

# A write of at most this much to a pipe that polls writable does not block.
PIECE_BYTES = 4096
_PIECES_AT_ONCE = 256


class Stream:
    def __init__(self, target: str) -> None:
        """`-` is stdout; `fd:N` and `stderr` as in SUB_EVENTS; anything else a file, written anew."""
        self.target = target
        self.trouble: str | None = None
        self._offset = 0
        self._own = False
        if target == "-":
            self._fd = 1
        elif target == "stderr":
            self._fd = 2
        elif target.startswith("fd:"):
            self._fd = descriptor(target)
            os.set_inheritable(self._fd, False)
        else:
            self._own = True
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            try:
                self._fd = os.open(target, flags, 0o644)
            except OSError as error:
                hint = "Name a file that can be written."
                raise UsageError(f"--events {target}: {error.strerror}", hint=hint) from None

    @property
    def takes_stdout(self) -> bool:
        return self._fd == 1

    def feed(self, path: str, *, wait: bool = False) -> None:
        """Hand on what the file has gained; only as much as the reader takes, unless `wait`."""
        if self.trouble is not None:
            return
        try:
            with open(path, "rb", buffering=0) as file:
                file.seek(self._offset)
                left = 1 << 62 if wait else _PIECES_AT_ONCE
                while left > 0 and (wait or self._ready()):
                    piece = file.read(PIECE_BYTES)
                    if not piece:
                        return
                    try:
                        done = os.write(self._fd, piece)
                    except BlockingIOError:  # somebody made the descriptor non-blocking
                        select.select([], [self._fd], [], 1.0)
                        done = 0
                    self._offset += done
                    file.seek(self._offset)
                    left -= 1
        except OSError as error:
            self.trouble = error.strerror or "the reader has gone"

    def _ready(self) -> bool:
        if self._own:
            return True
        poller = select.poll()
        poller.register(self._fd, select.POLLOUT)
        return any(event & (select.POLLOUT | select.POLLERR) for _, event in poller.poll(0))

    def close(self) -> None:
        if self._own:
            os.close(self._fd)
