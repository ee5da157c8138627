"""Policies for calls of a model, and what the record says of them."""

from __future__ import annotations

from typing import Any

from harness.sink import EventFile

NO_RM: dict[str, Any] = {
    "rule_id": "no-rm",
    "kind": "deny",
    "match": {
        "server_name": {"glob": ["builtin"]},
        "tool_name": {"glob": ["Bash"]},
        "args": {"command": {"command": {"programs": ["rm"]}}},
    },
    "effect": {"action": "REJECT_WITH_HINT", "hint_text": "Move the file to the trash instead."},
}
RM = {"command": "rm -rf build"}
LS = {"command": "ls"}


def bundle(*rules: dict[str, Any], mode: str = "guardrails", on_error: str = "BLOCK") -> dict[str, Any]:
    head = {"policy_id": "model", "version": "1", "mode": mode, "selectors": {}}
    return {**head, "defaults": {"decision_on_error": on_error}, "rules": list(rules)}


def deny(server: str, tool: str) -> dict[str, Any]:
    match = {"server_name": {"glob": [server]}, "tool_name": {"glob": [tool]}}
    return {"rule_id": f"no-{tool}", "kind": "deny", "match": match, "effect": {"action": "BLOCK"}}


def budget(limit: int, on_exceed: str) -> dict[str, Any]:
    effect = {"budget": {"scope": "run", "limit_calls": limit, "on_exceed": on_exceed}}
    return {"rule_id": "budget", "kind": "budget", "match": {"tool_name": {"glob": ["*"]}}, "effect": effect}


def decided(events: EventFile) -> list[tuple[str, str]]:
    return [
        (event["call"]["tool_name"], event["decision"]["action"]) for event in events.events_of("tool_call_decision")
    ]


def ends(events: EventFile) -> list[tuple[str, str, str | None]]:
    """(tool, status, class of the error) of every call, in the order of their ends."""
    return [
        (end["call"]["tool_name"], end["status"], end.get("error", {}).get("class"))
        for end in events.events_of("tool_call_end")
    ]
