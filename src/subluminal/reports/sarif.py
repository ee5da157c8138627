"""Refused calls as SARIF 2.1.0, which code scanning services show beside the policy that refused them."""

from __future__ import annotations

from typing import Any

from subluminal import __version__
from subluminal.contracts.digest import sha256_hex
from subluminal.ledger.fold.run_facts import Refusal, RunFacts

_LEVELS = {"critical": "error", "warn": "warning", "info": "note"}
# rule_id -> (address relative to the repository, line)
Places = dict[str, tuple[str, int]]


def sarif(facts: RunFacts, places: Places, problems: list[str]) -> dict[str, Any]:
    """One result for each refused call that is kept. `places` gives the rules whose text is in this repository."""
    rules = list(dict.fromkeys(_rule(refusal) for refusal in facts.refusals))
    invocation: dict[str, Any] = {"executionSuccessful": not problems}
    if facts.started_at:
        invocation["startTimeUtc"] = facts.started_at
    if facts.ended_at:
        invocation["endTimeUtc"] = facts.ended_at
    if problems:
        invocation["toolExecutionNotifications"] = [
            {"level": "error", "message": {"text": problem}} for problem in problems
        ]
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "subluminal",
                "version": __version__,
                "rules": [
                    {"id": rule, "shortDescription": {"text": f"Tool calls refused by {rule}"}} for rule in rules
                ],
            }
        },
        "automationDetails": {"id": f"subluminal/{facts.agent_id or 'agent'}/{facts.run_id}"},
        "invocations": [invocation],
        "results": [_result(refusal, rules, places) for refusal in facts.refusals],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _rule(refusal: Refusal) -> str:
    return refusal.rule_id or refusal.reason_code


def _result(refusal: Refusal, rules: list[str], places: Places) -> dict[str, Any]:
    rule = _rule(refusal)
    name = f"{refusal.server_name}/{refusal.tool_name}"
    location: dict[str, Any] = {
        "logicalLocations": [{"name": refusal.tool_name, "fullyQualifiedName": name, "kind": "function"}]
    }
    # Services refuse results without a file: what no rule of the repository refused points at the record beside this.
    uri, line = places.get(rule, ("events.jsonl", 1))
    location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
    return {
        "ruleId": rule,
        "ruleIndex": rules.index(rule),
        "level": _LEVELS.get(refusal.severity, "warning"),
        "message": {"text": f"{refusal.action}: {refusal.summary} {refusal.advice}".strip()},
        "locations": [location],
        "partialFingerprints": {"call/v1": sha256_hex(f"{rule}\0{name}\0{refusal.reason_code}".encode())},
        "properties": {"call_id": refusal.call_id, "reason_code": refusal.reason_code, "ts": refusal.ts},
    }
