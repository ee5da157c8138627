"""The daemon's own log: a few lines a day, never more than two files of LIMIT_BYTES."""

from __future__ import annotations

import os
import sys

from subluminal.host.clock import utc_now
from subluminal.host.files import open_private

LIMIT_BYTES = 512 << 10


class Log:
    def __init__(self, path: str, *, echo: bool) -> None:
        self._path = path
        self._echo = echo

    def __call__(self, message: str) -> None:
        line = f"{utc_now()} {message}\n"
        if self._echo:
            sys.stderr.write(line)
            sys.stderr.flush()
        try:
            self._append(line.encode("utf-8", "replace"))
        except OSError:
            pass  # a log that cannot be written must not stop the ledger

    def _append(self, line: bytes) -> None:
        descriptor = open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, line)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size > LIMIT_BYTES:
            os.replace(self._path, self._path + ".1")
