"""A process that runs beside the daemon while it is wanted, and ends with it.

The daemon knows nothing of what it does: whoever made the daemon says what to start and when it is wanted. The child's
standard input is a pipe that only we hold: however we end, it sees the end of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from subluminal.ledger.daemon.log import Log

if TYPE_CHECKING:
    import subprocess

LOOK_S = 1.0
# After a child that ended by itself: a fault that stays must not be a loop.
RETRY_FIRST_S = 1.0
RETRY_LAST_S = 60.0
# One that lived so long was well; its successor need not wait.
WELL_S = 60.0
GRACE_S = 3.0


class Companion:
    def __init__(self, wanted: Callable[[], bool], argv: list[str], environ: dict[str, str], log: Log) -> None:
        self._is_wanted = wanted
        self._argv = argv
        self._environ = environ
        self._log = log
        self.wanted = False  # as of the last look
        self._child: subprocess.Popen[bytes] | None = None
        self._look_at = 0.0
        self._started_at = 0.0
        self._retry_s = RETRY_FIRST_S

    def tend(self, now: float) -> None:
        """Start it, start it again, or end it, as things are. Cheap: looks once a second."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        self.wanted = self._is_wanted()
        if self._child is not None and self._child.poll() is not None:
            self._ended(now)
        elif not self.wanted:
            self.end()
        elif self._child is None:
            self._start(now)

    def _start(self, now: float) -> None:
        from subprocess import DEVNULL, PIPE, Popen  # few daemons have a companion

        try:
            self._child = Popen(self._argv, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, cwd="/", env=self._environ)
        except OSError as error:
            self._log(f"{self._argv[-1]} cannot be started: {error}")
            self._look_at = now + RETRY_LAST_S
            return
        self._started_at = now

    def _ended(self, now: float) -> None:
        assert self._child is not None
        code = self._child.returncode
        self._close()
        self._retry_s = RETRY_FIRST_S if now - self._started_at > WELL_S else min(self._retry_s * 2, RETRY_LAST_S)
        self._look_at = now + self._retry_s
        self._log(f"the keeper ended ({code}); again in {self._retry_s:g} s")

    def end(self) -> None:
        if self._child is None:
            return
        from subprocess import TimeoutExpired

        self._child.terminate()
        try:
            self._child.wait(GRACE_S)
        except TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._close()

    def _close(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
        self._child = None
