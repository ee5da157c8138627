"""What the rules of a policy have done, as far as the record tells."""

from __future__ import annotations

import json

from subluminal.contracts.moments import rfc3339
from subluminal.ledger.read.ledger import Ledger, Row
from subluminal.ledger.store.lines import TIE_BITS

# Trips stand in events alone: they are looked for in the latest runs that the rule decided in, and no further.
TRIP_RUNS = 50
TRIP_EVENTS = 20_000
_MARK = b'"breaker_trip"'

_DECIDED = (
    "SELECT count(*), count(nullif(c.decision, 'ALLOW')), max(c.id) FROM tool_calls c INDEXED BY tool_calls_rule"
    " WHERE c.rule_id = ?"
)
_TRIPPED = (
    "SELECT c.run_id, max(c.id) AS latest FROM tool_calls c INDEXED BY tool_calls_rule WHERE c.rule_id = ?"
    f" AND c.reason_code LIKE 'BREAKER\\_%' ESCAPE '\\' GROUP BY c.run_id ORDER BY latest DESC LIMIT {TRIP_RUNS}"
)
_WOULD = (
    "SELECT c.would_rule_id, count(*), max(c.id) FROM tool_calls c WHERE c.would_rule_id IS NOT NULL"
    " GROUP BY c.would_rule_id"
)


def deeds(ledger: Ledger, rule_ids: list[str], *, observed: bool) -> dict[str, Row]:
    """By rule: `decided`, `refused`, `trips`, `last`; where a policy only observes, `would` and when last."""
    found: dict[str, Row] = {}
    for rule_id in rule_ids:
        decided, refused, last = ledger.connection.execute(_DECIDED, (rule_id,)).fetchone()
        found[rule_id] = {
            "decided": decided,
            "refused": refused,
            "trips": _trips(ledger, rule_id) if refused else 0,
            "would": None,
            "last": _moment(last),
        }
    if observed:
        for rule_id, would, last in ledger.connection.execute(_WOULD):
            if rule_id in found:
                known = found[rule_id]
                known["would"], known["last"] = would, max(known["last"] or "", _moment(last) or "")
    return found


def _moment(number: int | None) -> str | None:
    return None if number is None else rfc3339(number >> TIE_BITS)


def _trips(ledger: Ledger, rule_id: str) -> int:
    runs = [row[0] for row in ledger.connection.execute(_TRIPPED, (rule_id,))]
    left, trips = TRIP_EVENTS, 0
    for run_id in runs:
        for line in ledger.lines(run_id, limit=left):
            left -= 1
            if _MARK in line:
                event = json.loads(line)
                trips += event["type"] == "breaker_trip" and event["breaker"]["rule_id"] == rule_id
    return trips


def policy_versions(ledger: Ledger) -> list[Row]:
    """Every version that the ledger has heard of, the newest first; `stored`: it has its text."""
    sql = (
        "SELECT policy_id, version, mode, rules_hash, created_at, rules_json IS NOT NULL FROM policy_versions"
        " ORDER BY created_at DESC, rowid DESC LIMIT 500"
    )
    names = ("policy_id", "policy_version", "mode", "policy_hash", "created_at")
    return [
        {**dict(zip(names, tuple(row)[:5], strict=True)), "stored": bool(row[5])}
        for row in ledger.connection.execute(sql)
    ]
