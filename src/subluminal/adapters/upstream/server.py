"""What a door knows of the server behind it, whatever that is."""

from __future__ import annotations

from typing import Protocol


class Server(Protocol):
    """Three descriptors, as of a process: lines go into `stdin`, lines come out of `stdout`, words out of `stderr`."""

    stdin: int
    stdout: int
    stderr: int
    status: int | None  # exit code, or 128 + signal, once it has ended

    def poll(self) -> int | None:
        """The exit status if it has ended; never waits."""

    def signal(self, number: int) -> bool:
        """False when nothing of it is left."""

    def release_watchdog(self) -> None:
        """All is clean: nobody has to end it after us."""
