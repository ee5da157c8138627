"""That what was laid had been altered, and was put back: into the log, and kept in `state.json` through restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from subluminal.fleet.keeper.state import read_state
from subluminal.fleet.machine.laying import Memory
from subluminal.ledger.daemon.log import Log

_TASKS = {"policies": "refresh", "stops": "stop"}


class Tampering:
    def __init__(self, which: str, memory: Memory, home: str, log: Log) -> None:
        self._which, self._memory, self._log = which, memory, log
        before = read_state(home).tasks.get(_TASKS[which])
        memory.put_back, memory.put_back_ms = _numbers(before.facts if before is not None else {})

    @contextmanager
    def told(self) -> Iterator[None]:
        """One look, also one that fails."""
        before = self._memory.put_back
        try:
            yield
        finally:
            if self._memory.put_back > before:
                self._log(f"somebody has altered or removed the {self._which} that the fleet has laid: put back")

    def facts(self) -> dict[str, Any]:
        memory = self._memory
        return {"put_back": memory.put_back, "put_back_ms": memory.put_back_ms} if memory.put_back else {}


def _numbers(facts: dict[str, Any]) -> tuple[int, int]:
    found = facts.get("put_back"), facts.get("put_back_ms")
    return (found[0], found[1]) if isinstance(found[0], int) and isinstance(found[1], int) else (0, 0)
