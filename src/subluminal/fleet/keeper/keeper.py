"""Threads for the tasks, one keeper for each home, and how it ends."""

from __future__ import annotations

import fcntl
import os
import random
from threading import Event, Thread
from time import monotonic, time_ns
from typing import Any, Protocol

from subluminal.contracts.errors import FleetError, SubluminalError
from subluminal.fleet.joined import Joined, has_left
from subluminal.fleet.keeper.state import StateFile
from subluminal.host.files import open_private
from subluminal.host.home import ensure_private_dir, fleet_dir, fleet_lock_file
from subluminal.ledger.daemon.log import Log

# Longer than any honest step: a file of 40 MB over a slow line, or a batch that a collector thinks about.
STEP_LIMIT_S = 300.0
LOOK_S = 0.5
RETRY_S = 10.0
# Machines that were started together must not come together for ever.
JITTER = 0.2


class Task(Protocol):
    name: str

    def step(self) -> float:
        """Do a little; in how many seconds to come again."""
        ...


class AlreadyKept(FleetError):
    exit_code = 0


class Keeper:
    def __init__(self, home: str, joined: Joined, tasks: list[Task], log: Log) -> None:
        self.home = home
        self._joined = joined
        self._tasks = tasks
        self._log = log
        self._ending = Event()
        self._began: dict[str, float] = {}
        self._lock = _take_lock(home)
        self.state = StateFile(home, os.getpid(), time_ns() // 1_000_000)

    def run(self) -> int:
        """Until `end`, or until this home has left the fleet. Exit code 1: a step hangs, start me again."""
        self._log(f"keeper {os.getpid()} started for {self.home}")
        for task in self._tasks:
            Thread(target=self._keep, args=(task,), name=task.name, daemon=True).start()
        while not self._ending.wait(LOOK_S):
            if has_left(self._joined, self.home):
                self._log("this machine has left the fleet; ending")
                break
            now = monotonic()
            hanging = [name for name, began in list(self._began.items()) if now - began > STEP_LIMIT_S]
            if hanging:
                self._log(f"{hanging[0]} has not come back for {STEP_LIMIT_S:g} s; ending")
                return 1
        return 0

    def once(self) -> dict[str, str | None]:
        """Every task one step, in order; what went wrong with each."""
        return {task.name: None if (error := self._step(task)[1]) is None else str(error) for task in self._tasks}

    def end(self) -> None:
        self._ending.set()

    def _keep(self, task: Task) -> None:
        while not self._ending.is_set():
            wait_s, _ = self._step(task)
            self._ending.wait(wait_s * random.uniform(1 - JITTER, 1))

    def _step(self, task: Task) -> tuple[float, Exception | None]:
        self._began[task.name] = monotonic()
        try:
            wait_s = task.step()
        except Exception as fault:  # one task must not take the others down
            error = _told(fault)
            if self.state.failed(task.name, error, time_ns() // 1_000_000, _facts(task)):
                kind = "" if isinstance(error, SubluminalError) else f"{type(error).__name__}: "
                self._log(f"{task.name}: {kind}{error}")
            return min(RETRY_S, getattr(task, "every_s", RETRY_S)), error
        else:
            self.state.good(task.name, time_ns() // 1_000_000, _facts(task))
            return wait_s, None
        finally:
            self._began.pop(task.name, None)


def _facts(task: Task) -> dict[str, Any] | None:
    facts = getattr(task, "facts", None)
    return facts() if callable(facts) else None


def _told(fault: Exception) -> Exception:
    """A disk that is full or a home that cannot be written, as a sentence; what was laid stays as it is."""
    if not isinstance(fault, OSError):
        return fault
    where = f"{fault.filename}: " if fault.filename else ""
    return FleetError(f"What the fleet says cannot be kept here: {where}{fault.strerror or fault}.")


def _take_lock(home: str) -> int:
    ensure_private_dir(fleet_dir(home), home)
    descriptor = open_private(fleet_lock_file(home), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise AlreadyKept(f"A keeper is running already for {home}.") from None
    return descriptor
