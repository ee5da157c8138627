"""`run.html` of a bundle: the page of `sub ui` for this run, out of what the bundle holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from subluminal.host.clock import utc_now
from subluminal.host.files import replace_file
from subluminal.ledger.fold.run_facts import RunFacts
from subluminal.ledger.read.policy_rules import rules_in
from subluminal.ledger.read.whole import MAX_CALLS, gathered
from subluminal.ledger.trace.run_directory import EVENTS
from subluminal.reports.page import page

NAME = "run.html"


def write_page(directory: str, facts: RunFacts) -> None:
    """Once the run has ended. A run of more calls than a page holds has none; its other reports are there."""
    if facts.counts.total > MAX_CALLS:
        return
    policies: dict[str, Any] = {}

    def rule(policy: dict[str, Any] | None, rule_id: str | None) -> dict[str, Any] | None:
        if policy is None or rule_id is None:
            return None
        name = policy["policy_hash"]
        if name not in policies:
            policies[name] = _stored(directory, name)
        return (rules_in(policies[name]) or {}).get(rule_id)

    record = gathered(_run(facts), _events(directory), rule)
    replace_file(os.path.join(directory, NAME), page(record, utc_now()).encode("utf-8", "replace"))


def _events(directory: str) -> Iterator[dict[str, Any]]:
    with open(os.path.join(directory, EVENTS), "rb") as file:
        for line in file:
            yield msgspec.json.decode(line)


def _stored(directory: str, policy_hash: str) -> Any:
    try:
        with open(os.path.join(directory, "policies", f"{os.path.basename(policy_hash)}.json"), "rb") as file:
            return msgspec.json.decode(file.read())
    except (OSError, msgspec.MsgspecError):
        return None


def _run(facts: RunFacts) -> dict[str, Any]:
    """As a row of the ledger tells a run."""
    counts = facts.counts
    policy = next(iter(facts.policies.values()), None)
    names = ("policy_id", "policy_version", "policy_hash")
    return {
        **{name: getattr(facts, name) for name in ("run_id", "agent_id", "client", "env", "principal", "mode")},
        **{name: getattr(policy, name, None) for name in names},
        "started_at": facts.started_at,
        "ended_at": facts.ended_at,
        "status": facts.status or "RUNNING",
        "calls_total": counts.total,
        "calls_allowed": counts.allowed,
        "calls_blocked": counts.blocked,
        "calls_throttled": counts.throttled,
        "errors_total": counts.errors,
        "event_count": facts.events,
        "meta": None,
        "workload": facts.workload,
        "usage": facts.usage,
        "producers": [],
    }
