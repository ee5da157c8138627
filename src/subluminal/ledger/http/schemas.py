"""The shapes of the answers, as OpenAPI writes them. The types of the page are made from these (`make web`)."""

from __future__ import annotations

from typing import Any

from subluminal.contracts import vocabulary as vocab
from subluminal.contracts.filters import MAX_NUMBER
from subluminal.ledger.fold.recovery import BY_IDS, BY_TIME, OUTCOMES
from subluminal.ledger.read.ledger import CALL_COLUMNS, RUN_COLUMNS
from subluminal.ledger.read.ledger import GROUPS as GROUP_COLUMNS

Schema = dict[str, Any]
ANYTHING: Schema = {"type": "object"}
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
YES: Schema = {"type": "boolean"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_WHOLE_OR_NULL: Schema = {"type": ["integer", "null"]}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
_ANYTHING_OR_NULL: Schema = {"type": ["object", "null"]}
AFTER: Schema = {
    "name": "after",
    "in": "query",
    "schema": {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER},
    "description": "The place up to which changes are known: those after it come first.",
}


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def shape(properties: dict[str, Schema], *, also: dict[str, Schema] | None = None) -> Schema:
    """An object that has all of these; `also`: what it may have."""
    return {"type": "object", "properties": {**properties, **(also or {})}, "required": list(properties)}


_CALL_WHOLE = (
    "latency_ms", "bytes_in", "bytes_out", "seq", "backoff_ms", "overhead_us", "waited_ms",
)  # fmt: skip
_CALL_CERTAIN = ("call_id", "run_id", "server_name", "tool_name", "args_hash", "created_at")
_CALL_OTHERS: dict[str, Schema] = {
    "preview_truncated": YES,
    "observed": YES,
    "decision": {"enum": [*vocab.ACTIONS, None]},
    "status": {"enum": [*vocab.STATUSES, None]},
}
_CALL = {
    **{
        name: _CALL_OTHERS.get(name)
        or (TEXT if name in _CALL_CERTAIN else _WHOLE_OR_NULL if name in _CALL_WHOLE else _TEXT_OR_NULL)
        for name in CALL_COLUMNS
        if name != "tags_json"
    },
    "shim_id": _TEXT_OR_NULL,
    "tags": listed(TEXT),
}
_RUN_CERTAIN = ("run_id", "agent_id", "client", "env", "started_at", "status")
_RUN_WHOLE = ("calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total", "event_count")
_RUN = {
    **{
        name: TEXT if name in _RUN_CERTAIN else WHOLE if name in _RUN_WHOLE else _TEXT_OR_NULL
        for name in RUN_COLUMNS
        if not name.endswith("_json")
    },
    "meta": _ANYTHING_OR_NULL,
    "workload": _ANYTHING_OR_NULL,
    "usage": {**_ANYTHING_OR_NULL, "description": "What its models used, as it was stated."},
}
_HINT = {
    "type": ["object", "null"],
    "properties": {"hint_text": TEXT, "hint_kind": TEXT, "retry_advice": _TEXT_OR_NULL, "suggested_args": {}},
}
_DOOR = shape({"transport": _TEXT_OR_NULL, "call_id": TEXT, "decision": _TEXT_OR_NULL, "status": _TEXT_OR_NULL})
_PRODUCER = shape({"shim_id": TEXT, "host_id": TEXT, "proc_id": TEXT, "started_at": TEXT})
_POLICY = {
    "type": ["object", "null"],
    "properties": {"policy_id": TEXT, "policy_version": TEXT, "policy_hash": TEXT},
}

CALL_ROW = shape({**_CALL, "cursor": {**TEXT, "description": "The page after this call begins here."}})
RUN_ROW = shape(_RUN)
CALL_PAGE = shape({"rows": listed(CALL_ROW), "next_cursor": _TEXT_OR_NULL})
RUN_PAGE = shape({"rows": listed(RUN_ROW), "next_cursor": _TEXT_OR_NULL})
WHOLE_RUN = shape({**_RUN, "producers": listed(_PRODUCER)})
WHOLE_CALL = shape(
    {
        **_CALL,
        "args_preview": _TEXT_OR_NULL,
        "result_preview": _TEXT_OR_NULL,
        "redaction_flags": listed(TEXT),
        "hint": _HINT,
        "events": listed(ANYTHING),
        "agent_id": TEXT,
        "client": TEXT,
        "env": TEXT,
        "principal": _TEXT_OR_NULL,
        "mode": _TEXT_OR_NULL,
        "policy": _POLICY,
        "rule": _ANYTHING_OR_NULL,
        "call_context": _ANYTHING_OR_NULL,
        "doors": listed(_DOOR),
    }
)
EXPLANATION = shape({"policies": listed(ANYTHING), "unknown": listed(TEXT)})
EVENTS = shape({"events": listed(ANYTHING), "after_n": WHOLE})
_ITEM = shape({"at": TEXT, "kind": TEXT}, also={"call_id": TEXT, "server_name": TEXT})
TIMELINE = shape(
    {"items": listed(_ITEM), "whole": {**YES, "description": "False: the run is too large; its calls can be paged."}}
)
_SPARK = shape({"run_id": TEXT, "calls": {"type": ["array", "null"], "items": WHOLE}})
SPARKS = shape({"sparks": listed(_SPARK)})
_RECOVERY_RATE = {**_NUMBER_OR_NULL, "description": "Corrected, of those that count; null: none does, or not yet."}
_RECOVERY = shape(
    {
        "run_id": TEXT,
        "corrected": _WHOLE_OR_NULL,
        "counted": {**_WHOLE_OR_NULL, "description": "Null: no such run, or more calls than are followed here."},
        "recovery_rate": _RECOVERY_RATE,
    }
)
RECOVERY = shape({"runs": listed(_RECOVERY)})
_COUNTS = ("calls", "allowed", "blocked", "throttled", "errors")
_LATENCIES = ("latency_ms_p50", "latency_ms_p95", "latency_ms_max")
_FIGURES = {
    **dict.fromkeys(_COUNTS, WHOLE),
    "latency_ms_avg": _NUMBER_OR_NULL,
    **dict.fromkeys(_LATENCIES, _WHOLE_OR_NULL),
}
_GROUP = shape(_FIGURES, also=dict.fromkeys(GROUP_COLUMNS, _TEXT_OR_NULL))
GROUPS = shape({"groups": listed(_GROUP)})
_TALLY = {
    "refused": WHOLE,
    "outcomes": {**shape(dict.fromkeys(OUTCOMES, WHOLE)), "description": "What the agents did next."},
    "counted": {**WHOLE, "description": "Without those that are open or were promoted."},
    "as_hinted": {**WHOLE, "description": "Corrected with exactly the arguments that were suggested."},
    "recovery_rate": _RECOVERY_RATE,
    "calls_to_recovery": {**_NUMBER_OR_NULL, "description": "On average, the correcting call included."},
}
_EXAMPLE = shape(
    {
        **dict.fromkeys(("call_id", "run_id", "shim_id", "agent_id", "at", "tool"), TEXT),
        "summary": _TEXT_OR_NULL,
        "outcome": {"enum": list(OUTCOMES)},
        "by": {"enum": [BY_IDS, BY_TIME], "description": "How it is known what followed."},
        "calls_to_recovery": _WHOLE_OR_NULL,
        "next_call_id": _TEXT_OR_NULL,
        "next_tool": _TEXT_OR_NULL,
    }
)
_HINT_RULE = shape(
    {
        "rule_id": _TEXT_OR_NULL,
        "reason_code": TEXT,
        **_TALLY,
        "runs": WHOLE,
        "by_time": {**WHOLE, "description": "Refusals of which only times tell what followed."},
        "first_at": TEXT,
        "last_at": TEXT,
        "actions": {"type": "object", "additionalProperties": WHOLE},
        "agents": listed(shape({"agent_id": TEXT, "refused": WHOLE})),
        "tools": listed(shape({"tool": TEXT, "refused": WHOLE})),
        "hints": listed(shape({"hint_text": TEXT, "hint_kind": TEXT, **_TALLY})),
        "examples": listed(_EXAMPLE),
    }
)
HINTS = shape({"rules": listed(_HINT_RULE)})
_BAD = shape({"line": WHOLE, "error": TEXT})
INGESTED = shape({"stored": WHOLE, "known": WHOLE, "bad": listed(_BAD)})
CHANGES = shape(
    {
        "after": {**WHOLE, "description": "Asked for with `after`, the stream goes on from here."},
        "rows": {**listed(CALL_ROW), "description": "Calls that match, as they are now."},
        "gone": {**listed(TEXT), "description": "Cursors of calls that do not match any more, or never did."},
        "runs": {**listed(TEXT), "description": "Runs of which something was heard."},
        "reset": {**YES, "description": "Too much has happened since: ask for pages again."},
    }
)
OVER_TIME = shape(
    {
        "from_ms": WHOLE,
        "step_ms": WHOLE,
        "exact": {**YES, "description": "False: there are too many calls for quantiles; ask for a shorter time."},
        "parts": listed(shape({"at_ms": WHOLE, **_FIGURES})),
    }
)
_DEEDS = shape(
    {"decided": WHOLE, "refused": WHOLE, "trips": WHOLE, "would": _WHOLE_OR_NULL, "last": _TEXT_OR_NULL},
)
_PART = shape({"rule_id": _TEXT_OR_NULL, "line": WHOLE, "text": TEXT, "deeds": {**_DEEDS, "type": ["object", "null"]}})
_FINDING = shape({"level": TEXT, "code": TEXT, "message": TEXT, "fix": TEXT, "line": WHOLE})
_IN_FORCE = shape(
    {
        "order": WHOLE,
        "origin": TEXT,
        "path": _TEXT_OR_NULL,
        "valid": YES,
        "policy_id": _TEXT_OR_NULL,
        "policy_version": _TEXT_OR_NULL,
        "policy_hash": _TEXT_OR_NULL,
        "mode": _TEXT_OR_NULL,
        "applies": YES,
        "left_out": _TEXT_OR_NULL,
        "error": _TEXT_OR_NULL,
        "findings": listed(_FINDING),
        "parts": {**listed(_PART), "description": "The text of the file, comments and all, rule by rule."},
    }
)
_VERSION = shape(
    {
        "policy_id": TEXT,
        "policy_version": TEXT,
        "mode": _TEXT_OR_NULL,
        "policy_hash": TEXT,
        "created_at": TEXT,
        "stored": {**YES, "description": "The ledger has its text, so that it can be compared."},
    }
)
POLICIES = shape({"directory": TEXT, "policies": listed(_IN_FORCE), "versions": listed(_VERSION)})
_CHANGE = shape({"severity": TEXT, "direction": TEXT, "change": TEXT, "rule_id": _TEXT_OR_NULL, "summary": TEXT})
_NAMED = shape({"policy_id": TEXT, "policy_version": TEXT, "policy_hash": TEXT})
POLICY_DIFF = shape({"old": _NAMED, "new": _NAMED, "changes": listed(_CHANGE), "lines": listed(TEXT)})
_TOOL = {
    "server_name": TEXT,
    "key": TEXT,
    "kind": TEXT,
    "name": TEXT,
    "state": TEXT,
    "why": TEXT,
    "classes": {"type": "object"},
    "fingerprint": TEXT,
    "pinned_by": listed(TEXT),
    "unsteady": YES,
    "changed": {**YES, "description": "It waits for somebody to look at it."},
    "first_seen": TEXT,
    "last_seen": TEXT,
}
TOOLS = shape(
    {"directory": TEXT, "tools": listed(shape(_TOOL, also={"calls": WHOLE, "refused": WHOLE, "launch": TEXT}))}
)
_TOOL_VERSION = shape(
    {"at": TEXT, "run_id": TEXT, "client": TEXT, "fingerprint": TEXT, "lines": {**listed(TEXT), "description": "Diff."}}
)
TOOL = shape(
    {
        **_TOOL,
        "lines": {**listed(TEXT), "description": "What is said now; what shows nothing is spelled out."},
        "diff": {**listed(TEXT), "description": "Against what was approved or pinned."},
        "findings": listed(shape({"class": TEXT, "where": TEXT, "what": TEXT})),
        "versions": listed(_TOOL_VERSION),
    }
)
KILL = shape({"run_id": TEXT}, also={"reason": TEXT})
KILLED = shape({"killed": YES, "ended_before": YES, "processes_left": WHOLE})
APPROVE = shape({"server_name": TEXT, "key": TEXT, "fingerprint": TEXT})
APPROVED = shape({"approved": TEXT, "files": listed(TEXT)})
PROMOTED = shape(
    {
        "promote_id": TEXT,
        "call_id": TEXT,
        "run_id": TEXT,
        "policy_id": TEXT,
        "rule_id": _TEXT_OR_NULL,
        "above": _TEXT_OR_NULL,
        "rule": _ANYTHING_OR_NULL,
        "limits": _ANYTHING_OR_NULL,
        "summary": TEXT,
        "notes": listed(TEXT),
        "scope": TEXT,
    },
    also={
        "file": TEXT,
        "text_diff": TEXT,
        "lint": listed(ANYTHING),
        "diff": listed(ANYTHING),
        "tests": WHOLE,
        "tests_failed": listed(TEXT),
        "past": {**ANYTHING, "description": "Past calls that it would have decided otherwise."},
    },
)
PROPOSAL = {
    **PROMOTED,
    "properties": {**PROMOTED["properties"], "seen": {**TEXT, "description": "Stands for what would be done."}},
    "required": [*PROMOTED["required"], "seen"],
}
PROMOTE = shape(
    {"call_id": TEXT, "scope": {"enum": ["session", "persist"]}, "seen": TEXT},
    also={"run_id": _TEXT_OR_NULL, "shim_id": _TEXT_OR_NULL},
)
_FLEET = {**TEXT, "description": "The collector whose record is shown; absent: it is this machine's."}
SESSION = shape(
    {"csrf": TEXT, "version": TEXT, "home": TEXT, "directory": TEXT, "now_ms": WHOLE}, also={"fleet": _FLEET}
)
ENDED = shape({"ended": YES})
ERROR = shape({"error": TEXT}, also={"hint": TEXT})
