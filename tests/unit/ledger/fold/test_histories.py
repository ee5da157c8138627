"""What a call became, and how many calls there were, is the same whoever is asked.

Random histories go to everybody who reads events: the store, verification, reports, replay (from lines and from the
ledger), tail, the timeline, groups and filters; and to the counts as a gate keeps them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.histories import histories, outcomes
from harness.ledger import EventMaker
from subluminal.cli.tail.command import Tail
from subluminal.cli.tail.doors import Key
from subluminal.cli.tail.view import View
from subluminal.contracts.counts import Counts
from subluminal.contracts.filters import Filters
from subluminal.ledger.fold.call import Call
from subluminal.ledger.fold.reading import read_event
from subluminal.ledger.fold.run_facts import RunFacts
from subluminal.ledger.read.history import recorded_runs, runs_of_lines
from subluminal.ledger.read.ledger import Ledger, open_ledger
from subluminal.ledger.read.timeline import timeline
from subluminal.ledger.read.wanted import Wanted
from subluminal.ledger.store.writer import Store
from subluminal.ledger.trace.verify import verify_run

NAMES = ("calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total")
Outcomes = dict[str, tuple[str | None, str | None]]


@contextmanager
def ledger_of(batches: list[list[bytes]]) -> Iterator[tuple[str, Ledger]]:
    """A ledger on the disk. Each batch is taken in by a store of its own, as by daemons that follow on each other."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "ledger.db")
        for batch in batches:
            store = Store(path)
            store.write(lambda store=store, batch=batch: [store.add(line) for line in batch])
            store.close()
        with open_ledger(path) as ledger:
            yield path, ledger


def gate_counts(lines: list[bytes]) -> list[int]:
    """The events counted as they come, call by call, as a gate counts what it decides."""
    counts, known = Counts(), dict[str, tuple[str | None, str | None]]()
    for line in dict.fromkeys(lines):
        event = json.loads(line)
        if event["type"].startswith("tool_call_"):
            call_id = event["call"]["call_id"]
            counts.total += call_id not in known
            decision, status = known.get(call_id, (None, None))
            if event["type"] == "tool_call_decision" and (decision is None or status is None):
                counts.decided_again(decision, event["decision"]["action"], status)
                decision = event["decision"]["action"]
            elif event["type"] == "tool_call_end" and status is None:
                status = event["status"]
                counts.ended(decision, event["status"])
            known[call_id] = (decision, status)
    return list(counts.as_summary(0).values())[:5]


class Shown(View):
    def __init__(self) -> None:
        self.calls: Outcomes = {}

    def call(self, call: Call, ledger: Ledger | None, place: Key) -> None:
        self.calls[call.call_id] = (call.decision, call.status)


def tailed(ledger: Ledger) -> Outcomes:
    values: dict[str, Any] = {"events": False}
    shown = Shown()
    tail = Tail(values, shown)
    tail._wanted = Wanted(Filters())
    tail._feed.ledger = ledger
    for line in ledger.lines("run-1"):
        tail._take(line)
    return shown.calls


def check(lines: list[bytes], batches: list[list[bytes]]) -> None:
    wanted = outcomes(lines)
    facts = RunFacts("run-1")
    for line in lines:
        facts.add(read_event(line))
    replayed = {c.call_id: (c.action, c.status) for run in runs_of_lines(lines, {}) for c in run.calls}
    assert replayed == wanted
    with ledger_of(batches) as (path, ledger):
        rows = {row["call_id"]: (row["decision"], row["status"]) for row in ledger.calls(limit=1000).rows}
        assert rows == wanted
        assert verify_run(path, "run-1").faults == []
        assert {c.call_id: (c.action, c.status) for run in recorded_runs(path) for c in run.calls} == wanted
        items = [item for item in timeline(ledger, "run-1") if item["kind"] == "call"]
        assert {item["call_id"]: (item["decision"], item["status"]) for item in items} == wanted
        started = {event["call"]["call_id"] for event in map(json.loads, lines) if event["type"] == "tool_call_start"}
        shown = tailed(ledger)
        assert started <= shown.keys() and shown.items() <= wanted.items()
        run = ledger.run("run-1")
        counts = [run[name] for name in NAMES]
        assert counts == gate_counts(lines)
        assert counts == [facts.summary()[name] for name in NAMES]
        told = {"SUCCEEDED", "FAILED", "CANCELLED", "RUNNING"}
        assert run["status"] in told and run["status"] in ("RUNNING", facts.status)
        if wanted:
            (group,) = ledger.group(by=["run_id"])
            assert [group[name] for name in ("calls", "allowed", "blocked", "throttled", "errors")] == counts
        assert ledger.count(Filters(status=["ERROR", "TIMEOUT", "CANCELLED"])) == counts[4]
        assert ledger.count(Filters(decision=["BLOCK", "REJECT_WITH_HINT", "TERMINATE_RUN"])) == counts[2]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_everybody_tells_the_same_of_any_history(data: st.DataObject) -> None:
    lines = data.draw(histories().filter(bool))
    cut = data.draw(st.integers(0, len(lines)))
    check(lines, [lines[:cut], lines[cut:]])


def test_a_call_allowed_at_first_and_refused_on_a_later_leg_is_refused_to_everybody() -> None:
    maker = EventMaker("run-1", "shim-1")
    refused = {"class": "policy_block", "message": "refused"}
    lines = [maker.run_start(), maker.start(), maker.decision(), maker.decision("BLOCK")]
    lines += [maker.end("ERROR", error=refused), maker.run_end()]
    assert outcomes(lines) == {"shim-1-1": ("BLOCK", "ERROR")}
    assert gate_counts(lines) == [1, 0, 1, 0, 0]
    for cut in range(len(lines) + 1):
        check(lines, [lines[:cut], lines[cut:]])


def test_a_later_decision_replaces_all_that_the_earlier_one_said() -> None:
    maker = EventMaker("run-1", "shim-1")
    would = {
        "action": "BLOCK",
        "rule_id": "r",
        "severity": "warn",
        "explain": {"summary": "Would.", "reason_code": "DENYLIST_MATCH"},
    }
    first = maker.start(), maker.decision("THROTTLE", backoff_ms=5, would=would)
    last = (maker.decision(rule_id=None),)
    for batches in ([[*first, *last]], [[*first], [*last]]):
        with ledger_of(batches) as (path, ledger):
            call = ledger.call("shim-1-1")
            assert (call["decision"], call["rule_id"], call["severity"]) == ("ALLOW", None, "info")
            assert (call["reason_code"], call["summary"]) == ("DEFAULT_ALLOW", "No rule matched.")
            assert (call["backoff_ms"], call["would_action"], call["would_reason_code"]) == (None, None, None)
            assert call["events"][1]["decision"]["action"] == "ALLOW"
            assert verify_run(path, "run-1").faults == []


def test_a_hint_is_that_of_the_decision_that_stands() -> None:
    maker = EventMaker("run-1", "shim-1")
    hints = [
        {"hint_text": text, "suggested_args": None, "retry_advice": None, "hint_kind": "OTHER"} for text in ("a", "b")
    ]
    lines = [maker.start(), *(maker.decision("REJECT_WITH_HINT", hint=hint) for hint in hints)]
    lines.append(maker.event("hint_issued", call={"call_id": "shim-1-1"}, hint=hints[1]))
    for cut in range(len(lines) + 1):
        with ledger_of([lines[:cut], lines[cut:]]) as (path, ledger):
            assert ledger.call("shim-1-1")["hint"]["hint_text"] == "b"
            assert [item["hint"]["hint_text"] for item in timeline(ledger, "run-1")] == ["b"]
            assert verify_run(path, "run-1").faults == []
