"""The rules of a policy as they were in one version of it, and what differs between two."""

from __future__ import annotations

from typing import Any

from subluminal.ledger.read.ledger import Ledger

Rules = dict[str, dict[str, Any]]


def rules_of(ledger: Ledger, policy_hash: str) -> Rules | None:
    """By their ids, in order; None: this version's text is not known here."""
    from subluminal.ledger.read.policies import stored_snapshot  # heavy, and most that is shown has no rule

    return rules_in(stored_snapshot(ledger, policy_hash))


def rules_in(stored: Any) -> Rules | None:
    """Of a compiled policy."""
    rules = stored.get("rules") if isinstance(stored, dict) else stored
    if not isinstance(rules, list):
        return None
    return {str(rule["rule_id"]): rule for rule in rules if isinstance(rule, dict) and "rule_id" in rule}


def differing(ledger: Ledger, before: str, after: str) -> dict[str, list[str]] | None:
    """Which rules were added, removed and changed from one version to the other; None: one of them is not known."""
    old, new = rules_of(ledger, before), rules_of(ledger, after)
    if old is None or new is None:
        return None
    return {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and new[name] != old[name]],
    }
