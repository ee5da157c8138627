"""Policies: fetched, verified, compiled, laid. Until one of these goes wrong; then the last good stays, for as long as
it may, whatever is done to the clock meanwhile."""

from __future__ import annotations

from typing import Any

from subluminal.fleet.joined import Joined
from subluminal.fleet.keeper.state import read_state
from subluminal.fleet.keeper.tampering import Tampering
from subluminal.fleet.machine.clock import SetClock, wall_ms
from subluminal.fleet.machine.laying import Memory, follow_clock, lay_policies
from subluminal.fleet.machine.origin import Origin
from subluminal.ledger.daemon.log import Log


class RefreshTask:
    name = "refresh"

    def __init__(self, origin: Origin, joined: Joined, home: str, log: Log) -> None:
        self._origin = origin
        self._joined = joined
        self._home = home
        self._log = log
        self._memory = Memory()
        self._tampering = Tampering("policies", self._memory, home, log)
        before = read_state(home).tasks.get(self.name)
        kept = before.facts.get("clock") if before is not None else None
        self._clock = SetClock(kept if isinstance(kept, dict) else {})
        self.every_s = joined.refresh_ms / 1000

    def step(self) -> float:
        self._follow_clock()
        with self._tampering.told():
            if lay_policies(self._origin, self._joined, self._home, wall_ms(), self._memory):
                self._log("other policies of the fleet are in force")
        return self.every_s

    def _follow_clock(self) -> None:
        set_by_ms = self._clock.set_by()
        if set_by_ms:
            follow_clock(set_by_ms, self._joined, self._home, self._memory)
            self._log(f"this machine's clock was set by {set_by_ms / 1000:+.0f} s: the policies hold as long as before")
        self._clock.keep()

    def facts(self) -> dict[str, Any]:
        ahead = self._origin.ahead_ms
        told = {} if ahead is None else {"clock_ahead_s": ahead // 1000}
        return {**self._tampering.facts(), **told, "clock": self._clock.facts()}
