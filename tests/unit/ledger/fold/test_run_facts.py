"""What a report says of a run: bounded lists, exact counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.ledger import EventMaker
from subluminal.contracts.counts import Counts
from subluminal.contracts.vocabulary import ACTIONS, ALLOW
from subluminal.ledger.fold import run_facts
from subluminal.ledger.fold.reading import read_event
from subluminal.ledger.fold.run_facts import RunFacts

NAMES = ("calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total")


def facts_of(lines: list[bytes]) -> RunFacts:
    facts = RunFacts("run-1")
    for line in lines:
        facts.add(read_event(line))
    return facts


def honest_run(calls: list[tuple[list[str], str]], order: Any) -> tuple[list[bytes], Counts]:
    """Calls under way at once, as a shim writes them: legs are decided while the call is allowed, and a refusal ends
    it. `order` chooses which call goes on."""
    maker, counts, lines = EventMaker("run-1", "shim-1"), Counts(), []
    under_way: list[tuple[Any, list[str], str]] = []
    while calls or under_way:
        if calls and (not under_way or order(2)):
            legs, status = calls.pop()
            lines += [maker.start(), maker.decision(legs[0])]
            counts.total += 1
            counts.decided(legs[0])
            under_way.append((maker.reference, legs, status))
            continue
        maker.reference, legs, status = under_way.pop(order(len(under_way)))
        if legs[0] == ALLOW and len(legs) > 1:
            lines.append(maker.decision(legs[1]))
            counts.decided_again(ALLOW, legs[1])
            under_way.append((maker.reference, legs[1:], status))
        elif legs[0] == ALLOW:
            lines.append(maker.end(status))
            counts.ended(ALLOW, status)
        else:
            lines.append(maker.end("ERROR", error={"class": "policy_block", "message": "refused"}))
            counts.ended(legs[0], "ERROR")
    return lines, counts


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_calls_that_were_forgotten_do_not_break_the_counts(
    monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    monkeypatch.setattr(run_facts, "MAX_OPEN", 2)
    legs = st.lists(st.sampled_from((ALLOW, ALLOW, *ACTIONS)), min_size=1, max_size=3)
    calls = data.draw(st.lists(st.tuples(legs, st.sampled_from(("OK", "ERROR"))), max_size=12))
    lines, counts = honest_run(calls, lambda limit: data.draw(st.integers(0, limit - 1)))
    facts = facts_of(lines)
    assert [facts.summary()[name] for name in NAMES] == [counts.as_summary(0)[name] for name in NAMES]
    assert facts.summary()["unfinished"] == 0
    assert sum(tool.counts.errors for tool in facts.tools.values()) == counts.errors


def test_a_refusal_on_a_later_leg_is_one_refusal_and_no_error() -> None:
    maker = EventMaker("run-1", "shim-1")
    refused = {"class": "policy_block", "message": "refused"}
    facts = facts_of([maker.start(), maker.decision(), maker.decision("BLOCK"), maker.end("ERROR", error=refused)])
    summary = facts.summary()
    assert [summary[name] for name in NAMES] == [1, 0, 1, 0, 0]
    assert summary["decisions"] == {"BLOCK": 1} and summary["refused_by_severity"]["warn"] == 1
    assert [(call.decision, call.status) for call in facts.recent] == [("BLOCK", "ERROR")]
    (tool,) = facts.tools.values()
    assert (tool.counts.total, tool.counts.allowed, tool.counts.blocked, tool.counts.errors) == (1, 0, 1, 0)


def test_a_decision_that_is_taken_back_takes_its_refusal_with_it() -> None:
    maker = EventMaker("run-1", "shim-1")
    facts = facts_of([maker.start(), maker.decision("BLOCK"), maker.decision(), maker.end()])
    assert (facts.refused, facts.refusals, facts.refused_at("info")) == (0, [], 0)
    assert facts.summary()["refused_by_rule"] == {}


def test_previews_are_not_kept() -> None:
    maker = EventMaker("run-1", "shim-1")
    facts = facts_of([maker.start(), maker.decision(), maker.end()])
    assert [(call.args_preview, call.result_preview) for call in facts.recent] == [(None, None)]


def test_what_one_shim_told_cannot_be_unsaid_in_the_name_of_another() -> None:
    """An agent runs as the same user: it could write that a call was allowed, before or after it was refused."""
    shim, agent = EventMaker("run-1", "shim-1"), EventMaker("run-1", "agent-1")
    real = [shim.start(), shim.decision("BLOCK"), shim.end("ERROR", error={"class": "policy_block"})]
    agent.reference, agent.seq = shim.reference, 1000
    forged = [agent.decision(), agent.end()]
    for lines in ([*forged, *real], [*real, *forged], [real[0], *forged, *real[1:]], [*real[:2], *forged, real[2]]):
        facts = facts_of(lines)
        assert facts.refused == 1 and facts.refused_at("info") == 1
