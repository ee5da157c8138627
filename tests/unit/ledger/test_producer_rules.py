"""Random producers, honest and hostile, against the rules of ownership.

The reference is a ledger that only ever saw the honest ones: whatever the hostile say, in whose name, by which way and
when, every call of an honest producer is there as it is in the reference, and who claimed a foreign call is named.
Random steps; `make fuzz` takes new ones, and many.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.ledger import OURS, THEIRS, EventMaker, create_journal, spool_of
from subluminal.host.record.journal import journal_name
from subluminal.ledger.daemon.connections import Connection
from subluminal.ledger.daemon.intake import Intake
from subluminal.ledger.fold.call import CALL_COLUMNS
from subluminal.ledger.fold.ownership import is_foreign, owner_of
from subluminal.ledger.read.history import runs_of_lines
from subluminal.ledger.read.ledger import open_ledger
from subluminal.ledger.read.timeline import timeline
from subluminal.ledger.trace.verify import verify_ledger

OTHER = "s018bcfe56802c3c3c3c3c3c3c3c3"
# (shim_id, has a journal, ids of its calls): two of our own kind, and two of others that name calls as they like.
HONEST = ((OURS, True, OURS), (THEIRS, False, THEIRS), ("ext", False, "call"), ("ext-j", True, "job"))
# Hostile ones choose their names: like a stranger's, and so that others' ids look like theirs.
HOSTILE = (OTHER, "evil", "call", "s", OURS[:-1], f"{OURS}-1", "ext-j.jsonl")
ACTS = ("claim", "name", "journal of claims", "journal in another's name", "again", "own", "run")

steps = st.lists(
    st.one_of(
        st.tuples(st.just("honest"), st.integers(0, len(HONEST) - 1), st.just(0), st.just("")),
        st.tuples(
            st.just("hostile"),
            st.integers(0, len(HONEST) - 1),
            st.integers(0, len(HOSTILE) - 1),
            st.sampled_from(ACTS),
        ),
        st.tuples(st.just("commit"), st.just(0), st.just(0), st.just("")),
    ),
    min_size=15,
    max_size=40,
)


class Producer:
    """Calls one after the other: start, BLOCK, end. Its ids begin with `prefix`."""

    def __init__(self, shim_id: str, prefix: str, run_id: str = "run-1", action: str = "BLOCK") -> None:
        self.shim_id = shim_id
        self.maker = EventMaker(run_id, prefix)
        self.said: list[bytes] = []
        self._action = action
        self._waiting = [self._own(self.maker.run_start())]

    def _own(self, line: bytes) -> bytes:
        event = json.loads(line)
        event["source"]["shim_id"] = self.shim_id
        return json.dumps(event).encode()

    def next(self) -> bytes:
        self._waiting = self._waiting or [self._own(line) for line in self.maker.call(self._action)]
        self.said.append(self._waiting.pop(0))
        return self.said[-1]


class World:
    """A daemon's intake with the journals and connections of the honest; `hostile` says whether the others act."""

    def __init__(self, home: Path, *, hostile: bool) -> None:
        self.spool = str(spool_of(home))
        self._hostile = hostile
        self.intake = Intake(str(home))
        self.connections: list[Connection] = []
        self.peers: list[socket.socket] = []
        self.honest = [Producer(shim_id, prefix) for shim_id, _, prefix in HONEST]
        self.journals = {shim_id: create_journal(self.spool, shim_id) for shim_id, has, _ in HONEST if has}
        self.voices = {shim_id: self.connect() for shim_id, has, _ in HONEST if not has}
        self.numbers = 0

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(5)
        self.connections.append(Connection(theirs))
        self.peers += [ours, theirs]
        return ours

    def say(self, voice: socket.socket, *lines: bytes) -> None:
        voice.sendall(b"".join(line + b"\n" for line in lines))

    def take(self, kind: str, whom: int, who: int, act: str) -> None:
        producer = self.honest[whom]
        if kind == "commit":
            self.commit()
        elif kind == "honest":
            line = producer.next()
            if producer.shim_id in self.journals:
                os.write(self.journals[producer.shim_id], line + b"\n")
            else:
                self.say(self.voices[producer.shim_id], line)
        elif self._hostile:
            self.attack(producer, HOSTILE[who], act)

    def attack(self, target: Producer, shim_id: str, act: str) -> None:
        self.numbers += 1
        if act == "again":
            self.say(self.connect(), *target.said)
            return
        in_its_name = act in ("name", "journal in another's name")
        if in_its_name and target.shim_id in self.voices and not target.said:
            return  # who speaks first for a shim without a journal is that shim
        self.commit()
        run_id = "run-2" if act == "run" else "run-1"
        name = target.shim_id if in_its_name or act == "run" else shim_id
        prefix = shim_id if act == "own" else target.maker.shim_id
        forger = Producer(name, prefix, run_id, action="ALLOW")
        forger.maker.seq = len(target.said) if in_its_name else 100 * self.numbers
        forger.maker.calls = max(0, target.maker.calls - self.numbers % 2)
        lines = [forger._own(line) for line in forger.maker.call("ALLOW")]
        if act.startswith("journal"):
            with open(os.path.join(self.spool, journal_name(shim_id)), "ab") as journal:
                journal.write(b"".join(line + b"\n" for line in lines))
        elif act != "run" or target.shim_id in self.journals or target.said:
            self.say(self.connect(), *lines)

    def commit(self) -> None:
        for connection in self.connections:
            for line in connection.receive():
                connection.queue(line)
        while self.intake.commit(self.connections):
            pass
        for connection in self.connections:
            connection.flush()

    def close(self) -> None:
        self.commit()
        self.intake.close()
        for peer in self.peers:
            peer.close()
        for journal in self.journals.values():
            os.close(journal)


@contextmanager
def world(taken: list[tuple[str, int, int, str]], *, hostile: bool) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        made = World(Path(directory) / "home", hostile=hostile)
        try:
            for step in taken:
                made.take(*step)
        finally:
            made.close()
        yield os.path.join(directory, "home", "ledger.db")


# By the numbers of events, and by those of producers, a ledger with more events in it differs.
_COMPARED = [name for name in CALL_COLUMNS if not name.endswith("_event") and name != "producer_no"]


def honest_calls(path: str) -> dict[tuple[str, str], Any]:
    shims = {shim_id for shim_id, _, _ in HONEST}
    with open_ledger(path) as ledger:
        sql = (
            f"SELECT p.shim_id, {', '.join('c.' + name for name in _COMPARED)}, v.args_preview, v.result_preview"
            " FROM tool_calls c JOIN producers p USING (producer_no) LEFT JOIN previews v USING (id)"
        )
        rows = [tuple(row) for row in ledger.connection.execute(sql)]
    return {(row[0], row[1]): row for row in rows if row[0] in shims}


def told_of_ours(path: str) -> tuple[Any, Any]:
    """What the timeline and replay tell of calls whose id says whose they are."""
    with open_ledger(path) as ledger:
        if not ledger.connection.execute("SELECT 1 FROM runs WHERE run_id = 'run-1'").fetchone():
            return [], []
        items = [item for item in timeline(ledger, "run-1") if item["kind"] == "call"]
        (run,) = runs_of_lines(ledger.lines("run-1"), {})
    ours = (OURS, THEIRS)
    shown = sorted((item["call_id"], item["decision"], item["status"]) for item in items if is_ours(item["call_id"]))
    replayed = sorted((call.call_id, call.action, call.status) for call in run.calls if owner_of(call.call_id) in ours)
    return shown, replayed


def is_ours(call_id: str) -> bool:
    return owner_of(call_id) in (OURS, THEIRS)


@settings(
    max_examples=settings.default.max_examples // 5,  # type: ignore[union-attr]
    suppress_health_check=[HealthCheck.too_slow],
)
@given(steps)
def test_honest_calls_are_as_in_a_ledger_that_only_saw_the_honest(taken: list[tuple[str, int, int, str]]) -> None:
    with world(taken, hostile=False) as reference, world(taken, hostile=True) as path:
        assert honest_calls(path) == honest_calls(reference)
        assert told_of_ours(path) == told_of_ours(reference)
        assert all(report.ok for report in verify_ledger(reference)[1])
        database, reports = verify_ledger(path)
        assert database.ok
        assert all(report.chain_ok and report.rows_ok for report in reports)
        with open_ledger(path) as ledger:
            events = [event for report in reports for event in ledger.timeline(report.run_id)]
        claims = {
            (event["call"]["call_id"], event["source"]["shim_id"])
            for event in events
            if "call" in event and is_foreign(event["call"]["call_id"], event["source"]["shim_id"])
        }
        named = [(fault.call_id, fault.shim_ids) for report in reports for fault in report.faults]
        assert claims == {(call, shims[1]) for call, shims in named if call and shims and owner_of(call)}
        assert all(event["source"]["shim_id"] not in (OURS, "ext-j") or event["run_id"] == "run-1" for event in events)
