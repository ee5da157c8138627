"""A server out of the record as the relay knows one: three pipes and a status, and no process. It lives in a thread.

Where a command is given, calls that are not on record go to the server itself (`real`), which is started for the first.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, start_new_thread
from collections.abc import Sequence

from subluminal.runs.replay.answering import RecordedServer
from subluminal.runs.replay.real import RealServer

READ_BYTES = 1 << 16


class RecordedUpstream:
    """See `adapters.upstream.server`."""

    def __init__(self, recorded: RecordedServer, command: Sequence[str] = ()) -> None:
        self._lines_in, self.stdin = os.pipe()
        self.stdout, self._lines_out = os.pipe()
        self.stderr, self._words_out = os.pipe()
        self.status: int | None = None
        self._recorded = recorded
        self._real = RealServer(command) if command else None
        self._lock = allocate_lock()
        start_new_thread(self._live, ())

    def poll(self) -> int | None:
        return self.status

    def signal(self, number: int) -> bool:
        if self.status is not None:
            return False
        if number:
            self._end(128 + number)
        return True

    def release_watchdog(self) -> None:
        pass

    # -- in its thread --------------------------------------------------------------------------------------------

    def _live(self) -> None:
        part = b""
        try:
            while data := os.read(self._lines_in, READ_BYTES):
                *lines, part = (part + data).split(b"\n")
                for line in lines:
                    self._hear(line)
            if part:
                self._hear(part)
        except OSError:
            pass  # the relay has gone
        finally:
            self._end(0)

    def _hear(self, line: bytes) -> None:
        answer = self._answer(line)
        if answer is not None:
            view = memoryview(answer + b"\n")
            while view:
                view = view[os.write(self._lines_out, view) :]

    def _answer(self, line: bytes) -> bytes | None:
        if self._real is None:
            return self._recorded.heard(line)
        self._real.overheard(line)
        missed = self._recorded.missed(line)
        return self._recorded.heard(line) if missed is None else self._real.answer(line, missed)

    def _end(self, status: int) -> None:
        """The status is known before the streams end. Who still writes writes to nobody."""
        with self._lock:
            if self.status is not None:
                return
            self.status = status
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for descriptor in (self._lines_out, self._words_out):
                os.dup2(null, descriptor, inheritable=False)
            os.close(null)
        if self._real is not None:
            self._real.end()
