"""Everything the ledger knows of one call, the policy that decided it and the other doors that saw it included."""

from __future__ import annotations

from subluminal.ledger.fold.joined import JoinedCall, join
from subluminal.ledger.read.call_row import recall
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.read.policy_rules import rules_of
from subluminal.ledger.read.timeline import doors


def describe(ledger: Ledger, call: Row) -> Row:
    """The call (from `Ledger.call`) with its run's identity, its policy and, where it is stored, the rule itself."""
    run = ledger.run(call["run_id"])
    events = {event["type"]: event for event in call["events"]}
    decided, started = events.get("tool_call_decision"), events.get("tool_call_start")
    policy = decided["decision"]["policy"] if decided else None
    return {
        **call,
        **{name: run[name] for name in ("agent_id", "client", "env", "principal", "mode")},
        "policy": policy,
        "rule": rule_of(ledger, policy, call["rule_id"]),
        "call_context": started["call"].get("call_context") if started else None,
        "doors": _doors(ledger, call),
    }


def _doors(ledger: Ledger, call: Row) -> list[Row]:
    if call["tool_use_id"] is None:
        return doors(JoinedCall(recall(call)))
    sql = (
        "SELECT call_id, shim_id FROM tool_calls c JOIN producers USING (producer_no)"
        " WHERE c.run_id = ? AND c.tool_use_id = ? ORDER BY c.created_at, c.id"
    )
    alike = ledger.connection.execute(sql, (call["run_id"], call["tool_use_id"])).fetchall()
    recalled = [recall(ledger.call(call_id, call["run_id"], shim_id)) for call_id, shim_id in alike]
    this = (call["run_id"], call["shim_id"], call["call_id"])
    return next(doors(one) for one in join(recalled) if this in [door.key for door in one.calls])


def rule_of(ledger: Ledger, policy: Row | None, rule_id: str | None) -> Row | None:
    if policy is None or rule_id is None:
        return None
    return (rules_of(ledger, policy["policy_hash"]) or {}).get(rule_id)
