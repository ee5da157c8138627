"""Random histories of a run, as its shims could leave them, and what a plain loop says that each call became.

Several shims, calls under way at once, further legs with decisions of their own, hints, cancellations, ends that come
late or twice, a decision after the end, journals that begin or break off in the middle, lines that come twice. Each
shim's own order is kept, as its journal keeps it; between shims any order is possible.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from harness.ledger import EventMaker
from subluminal.contracts.vocabulary import ACTIONS, ALLOW

HINT = {"hint_text": "Use a branch.", "suggested_args": {"b": 1}, "retry_advice": None, "hint_kind": "ARG_FIX"}
TOOLS = ("git_status", "git_push", "git_log")

actions = st.sampled_from(ACTIONS)
ends = st.sampled_from(("OK", "ERROR", "TIMEOUT", "CANCELLED"))


@st.composite
def call_steps(draw: st.DrawFn) -> list[tuple[str, str]]:
    """One call as steps in its shim's order: mostly start, decision, end; sometimes anything."""
    steps = [("start", draw(st.sampled_from(TOOLS)))]
    legs = draw(st.lists(actions, max_size=2))
    steps += [("decision", ALLOW)] * draw(st.booleans()) + [("decision", action) for action in legs]
    for _ in range(draw(st.sampled_from((0, 1, 1, 1, 2)))):
        steps.append(("end", draw(ends)))
    if draw(st.integers(0, 5)) == 0:
        steps.append(("decision", draw(actions)))
    return steps


@st.composite
def shims(draw: st.DrawFn, number: int) -> list[bytes]:
    """The journal of one shim, whole or cut at either end."""
    maker = EventMaker("run-1", f"shim-{number}", start_ms=1_700_000_000_000 + 7 * number)
    lines = [maker.run_start()]
    waiting = draw(st.lists(call_steps(), max_size=4))
    references: dict[int, dict[str, Any]] = {}
    places = [0] * len(waiting)
    while left := [i for i, steps in enumerate(waiting) if places[i] < len(steps)]:
        chosen = draw(st.sampled_from(left))
        kind, word = waiting[chosen][places[chosen]]
        places[chosen] += 1
        if kind == "start":
            lines.append(maker.start(word))
            references[chosen] = maker.reference
            continue
        maker.reference = references[chosen]
        lines += _decision(maker, word) if kind == "decision" else [_end(maker, word)]
    if draw(st.booleans()):
        lines.append(maker.run_end(draw(st.sampled_from(("SUCCEEDED", "FAILED", "CANCELLED")))))
    first = draw(st.sampled_from((0, 0, 0, 1, 2, 3)))
    last = len(lines) - draw(st.sampled_from((0, 0, 0, 1, 2, 3)))
    return lines[first:last]


def _decision(maker: EventMaker, action: str) -> list[bytes]:
    members: dict[str, Any] = {}
    if action == "THROTTLE":
        members["backoff_ms"] = maker.seq
    if action == "REJECT_WITH_HINT":
        members["hint"] = {**HINT, "hint_text": f"Try {maker.seq}."}
    if action == ALLOW and maker.seq % 3 == 0:
        explain = {"summary": "Would.", "reason_code": "DENYLIST_MATCH"}
        members["would"] = {"action": "BLOCK", "rule_id": "r", "severity": "warn", "explain": explain}
    lines = [maker.decision(action, **members)]
    if "hint" in members and maker.seq % 2:
        call = {"call_id": maker.reference["call_id"]}
        lines.append(maker.event("hint_issued", call=call, hint=members["hint"]))
    return lines


def _end(maker: EventMaker, status: str) -> bytes:
    return maker.end(status) if status == "OK" else maker.end(status, error={"class": "upstream_error", "code": 0})


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """The lines of one run in the order in which they arrive, some of them twice."""
    journals = [draw(shims(number)) for number in range(draw(st.integers(1, 3)))]
    lines: list[bytes] = []
    while left := [journal for journal in journals if journal]:
        lines.append(draw(st.sampled_from(left)).pop(0))
    for _ in range(draw(st.integers(0, 4)) if lines else 0):
        again = draw(st.integers(0, len(lines) - 1))
        lines.insert(draw(st.integers(again + 1, len(lines))), lines[again])
    return lines


def outcomes(lines: list[bytes]) -> dict[str, tuple[str | None, str | None]]:
    """call_id -> (decision, status): the last decision before the first end, or else the first of all."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for line in dict.fromkeys(lines):
        event = json.loads(line)
        if not event["type"].startswith("tool_call_"):
            continue
        decision, status = found.get(event["call"]["call_id"], (None, None))
        if event["type"] == "tool_call_decision" and (status is None or decision is None):
            decision = event["decision"]["action"]
        if event["type"] == "tool_call_end" and status is None:
            status = event["status"]
        found[event["call"]["call_id"]] = (decision, status)
    return found
