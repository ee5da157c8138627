"""Every process that an agent has brought into the world, and how to end them all.

An agent runs as the leader of a session of its own. Its tool servers may sit in other process groups (Codex) and its
shells in other sessions (Claude Code), and orphans lose their parent, so no single id reaches them all: the family is
whoever shares the leader's session or descends from a known member, gathered while the leader is still alive.
A member is known by process id and start time, since ids are reused.
"""

from __future__ import annotations

import os
import signal

from subluminal.host.run.processes import process_table, send_signal


class Family:
    """The living processes that belong to one leader."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self._known: set[tuple[int, str]] = set()

    def members(self) -> list[int]:
        """Process ids alive now, newly found ones included. Zombies are not alive: they only wait to be reaped."""
        table = [process for process in process_table() if not process.dead]
        pids = {process.pid for process in table if (process.pid, process.started) in self._known}
        pids |= {process.pid for process in table if process.session == self.leader or process.pid == self.leader}
        grown = True
        while grown:
            children = {process.pid for process in table if process.parent in pids} - pids
            pids |= children
            grown = bool(children)
        self._known |= {(process.pid, process.started) for process in table if process.pid in pids}
        return sorted(pids)

    def terminate(self) -> None:
        """Ask the leader's group to end; a client passes the request on to its servers in its own way."""
        self.members()
        try:
            os.killpg(self.leader, signal.SIGTERM)
        except (ProcessLookupError, PermissionError):
            pass

    def kill(self) -> None:
        """End every member, now. Twice, since one may have forked between the look and the blow."""
        for _ in range(2):
            for pid in self.members():
                send_signal(pid, signal.SIGKILL)
