"""Policies: fetched, verified, compiled, laid. Until one of these goes wrong; then the last good stays."""

from __future__ import annotations

from time import time_ns
from typing import Any

from subluminal.fleet.joined import Joined
from subluminal.fleet.keeper.tampering import Tampering
from subluminal.fleet.machine.laying import Memory, lay_policies
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
        self.every_s = joined.refresh_ms / 1000

    def step(self) -> float:
        with self._tampering.told():
            if lay_policies(self._origin, self._joined, self._home, time_ns() // 1_000_000, self._memory):
                self._log("other policies of the fleet are in force")
        return self.every_s

    def facts(self) -> dict[str, Any]:
        return self._tampering.facts()
