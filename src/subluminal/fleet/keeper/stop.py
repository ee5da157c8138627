"""Stops: asked for often. One that is active stays so through restarts and through everything that goes wrong here."""

from __future__ import annotations

from time import time_ns
from typing import Any

from subluminal.fleet.joined import Joined
from subluminal.fleet.keeper.tampering import Tampering
from subluminal.fleet.machine.laying import Memory, active_stops, lay_stops
from subluminal.fleet.machine.origin import Origin
from subluminal.ledger.daemon.log import Log


class StopTask:
    name = "stop"

    def __init__(self, origin: Origin, joined: Joined, home: str, log: Log) -> None:
        self._origin = origin
        self._joined = joined
        self._home = home
        self._log = log
        self._memory = Memory()
        self._tampering = Tampering("stops", self._memory, home, log)
        self.every_s = joined.stop_poll_ms / 1000

    def step(self) -> float:
        with self._tampering.told():
            if lay_stops(self._origin, self._joined, self._home, time_ns() // 1_000_000, self._memory):
                stops = active_stops(self._home)
                told = "; ".join(f"{stop.by} stopped {stop.what}: {stop.reason}" for stop in stops)
                self._log(f"stops: {told}" if stops else "no stop is active any more")
        return self.every_s

    def facts(self) -> dict[str, Any]:
        return self._tampering.facts()
