"""The first process of a pod's sidecar (`sub fleet sidecar`): ledgerd with its keeper, and nothing lost at the end.

    prepare   before anything else runs: join, unless this home has joined already
    run       ledgerd in the foreground, which starts the keeper; until SIGTERM, or until it ends by itself
    drain     after SIGTERM: all journals in the ledger, all of it shipped, and only then SIGTERM to ledgerd

Kubernetes ends a native sidecar after the containers that it serves, so nobody writes any more when SIGTERM comes. A
preStop hook would run while they still do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

from subluminal.contracts.errors import FleetError
from subluminal.fleet.joined import Joined, read_joined
from subluminal.host.home import ledger_db
from subluminal.ledger.daemon.contact import ask

LOOK_S = 0.1
# What ledgerd needs to end once there is nothing left to take in.
END_S = 5.0

Say = Callable[[str], None]


def prepare(joined: Joined, root: str, home: str) -> bool:
    """True: it has joined now. A container that is started again finds its home as it left it."""
    from subluminal.fleet.machine.joining import join

    before = read_joined(home)
    if before is None:
        join(joined, root, home)
        return True
    if before.url != joined.url:
        raise FleetError(
            f"This home has joined {before.url}, not {joined.url}.",
            hint="Give the pod a new volume, or the old origin.",
        )
    return False


class Unshipped(NamedTuple):
    """`waiting`: events that are still to be acknowledged; `refused`: those that no collector took."""

    waiting: int
    refused: int = 0


def unshipped(home: str) -> Unshipped | None:
    """What no collector has acknowledged; None: this home ships nothing."""
    from subluminal.fleet.shipping.progress import standing

    joined = read_joined(home)
    if joined is None or joined.collector is None:
        return None
    found = standing(home)
    if found is None:  # before the first shipment nothing of the ledger was acknowledged
        return Unshipped(_events(home))
    return Unshipped(found.unacked_events + found.held, found.refused)


def _events(home: str) -> int:
    from subluminal.ledger.store.schema import NoLedger, open_reader

    try:
        connection = open_reader(ledger_db(home))
    except NoLedger:
        return 0
    with closing(connection):
        return int(connection.execute("SELECT coalesce(sum(event_count), 0) FROM runs").fetchone()[0])


class Sidecar:
    """`unshipped`: what is still to be acknowledged; None: nothing is shipped from here."""

    def __init__(self, drain_s: float, unshipped: Callable[[], Unshipped | None], say: Say) -> None:
        self._drain_s = drain_s
        self._unshipped = unshipped
        self._say = say
        self._asked_to_end = Event()

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._asked_to_end.set())
        # Never idle: a daemon that ends would take the pod's only reader of journals with it.
        environ = {**os.environ, "SUB_LEDGER_IDLE_S": "31536000"}
        command = [sys.executable, "-P", "-m", "subluminal", "ledgerd", "--foreground"]
        child = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, start_new_session=True)
        while not self._asked_to_end.wait(LOOK_S):
            code = child.poll()
            if code is not None:
                self._say(f"ledgerd ended by itself ({code})")
                return code if code > 0 else 1
        return self._drain(child)

    def _drain(self, child: subprocess.Popen[bytes]) -> int:
        deadline = monotonic() + self._drain_s
        taken_in = self._wait(_nothing_to_take_in, deadline)
        shipped = self._wait(self._nothing_waits, deadline)
        child.terminate()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        code, told = self._outcome(taken_in, shipped, self._unshipped())
        self._say(told)
        return code

    def _nothing_waits(self) -> bool:
        """What was refused is tried again each hour: to wait for it would only be to wait."""
        left = self._unshipped()
        return left is None or left.waiting == 0

    def _outcome(self, taken_in: bool, shipped: bool, left: Unshipped | None) -> tuple[int, str]:
        refused = f"{left.refused} events were refused by the collector" if left is not None and left.refused else ""
        if taken_in and shipped and not refused:
            return 0, "everything is in the ledger, and shipped" if left is not None else "drained"
        if taken_in and shipped:
            return 1, f"everything is in the ledger; {refused}, and the rest is shipped"
        waiting = f"{left.waiting if left is not None else 0} events were not shipped"
        what = "journals were still growing" if not taken_in else waiting
        also = f"; {refused}" if refused else ""
        return 1, f"not drained within {self._drain_s:g} s: {what}{also}"

    def _wait(self, done: Callable[[], bool], deadline: float) -> bool:
        pause = Event()
        while not done():
            if monotonic() >= deadline:
                return False
            pause.wait(LOOK_S)
        return True


def _nothing_to_take_in() -> bool:
    """A journal whose writer is gone is closed and removed when all of it is in the ledger."""
    answer: dict[str, Any] | None = ask({"control": "status"}, timeout=2.0)
    status = (answer or {}).get("status") or {}
    return bool(status) and status["journals"] == 0 and status["lag_bytes"] == 0
