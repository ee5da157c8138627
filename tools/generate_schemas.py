"""Write `schema/*.json` from the contract types; a file that belongs to no schema is removed.

The contracts as JSON Schema (draft 2020-12), for those who are not written in Python. Generated from the types, so
that they cannot drift; what types cannot say ("THROTTLE needs backoff_ms") is added here.

    python tools/generate_schemas.py [--check]

With --check nothing is written; exits with 1 if a file is not current.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from subluminal.contracts.events import Count, Event, Hint, PolicyRef, Terminate
from subluminal.contracts.policy import Bundle, Snapshot
from subluminal.contracts.secrets import ServerSecrets
from subluminal.contracts.vocabulary import INTERFACE_VERSION

DIRECTORY = Path(__file__).parents[1] / "schema"
# §1.6 and §3.2: the member that each action brings with it.
ACTION_MEMBERS = {"THROTTLE": "backoff_ms", "REJECT_WITH_HINT": "hint", "TERMINATE_RUN": "terminate"}


class SubluminalData(Struct):
    """`error.data.subluminal` of a refused tool call (§3.2.2 to §3.2.4)."""

    v: str
    action: Literal["BLOCK", "THROTTLE", "REJECT_WITH_HINT", "TERMINATE_RUN"]
    rule_id: str | None
    reason_code: str
    summary: str
    run_id: str
    call_id: str
    server_name: str
    tool_name: str
    args_hash: str
    policy: PolicyRef
    backoff_ms: Count | UnsetType = UNSET
    retry_advice: str | UnsetType = UNSET
    hint: Hint | UnsetType = UNSET
    terminate: Terminate | UnsetType = UNSET


class ErrorData(Struct):
    """The `data` member of the JSON-RPC error."""

    subluminal: SubluminalData


def schemas() -> dict[str, dict[str, Any]]:
    """File name to schema."""
    return {
        "event.json": _event(),
        "policy-bundle.json": _policy("policy-bundle", "Policy bundle", Bundle),
        "policy-snapshot.json": _policy("policy-snapshot", "Policy snapshot", Snapshot),
        "error-data.json": _error_data(),
        "secret-bindings.json": _schema("secret-bindings", "Secret bindings of one server", ServerSecrets),
    }


def schema_text(schema: dict[str, Any]) -> str:
    """As it stands in its file."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _schema(name: str, title: str, type_: Any) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:subluminal:{INTERFACE_VERSION}:{name}",
        **msgspec.json.schema(type_),
        "title": title,
    }


def _event() -> dict[str, Any]:
    schema = _schema("event", "Event: one line of the event stream", Event)
    _demand_action_members(schema["$defs"]["DecisionTaken"])
    return schema


def _error_data() -> dict[str, Any]:
    schema = _schema("error-data", "error.data of a refused tool call", ErrorData)
    _demand_action_members(schema["$defs"]["SubluminalData"])
    return schema


def _policy(name: str, title: str, type_: Any) -> dict[str, Any]:
    schema = _schema(name, title, type_)
    definitions = schema["$defs"]
    definitions["Budget"]["anyOf"] = [_with("limit_calls"), _with("limit_cost_units")]
    definitions["RateLimit"]["allOf"] = [_when("on_limit", "THROTTLE", "backoff_ms")]
    breaker = definitions["Breaker"]
    breaker["anyOf"] = [_with("error_threshold"), _with("repeat_threshold"), _with("latency_threshold_ms")]
    breaker["dependentRequired"] = {
        "error_threshold": ["window_ms"],
        "latency_threshold_ms": ["window_ms"],
        "repeat_threshold": ["repeat_window_ms"],
    }
    definitions["Dedupe"]["properties"]["key"]["enum"] = ["args_hash"]
    return schema


def _demand_action_members(definition: dict[str, Any]) -> None:
    definition["allOf"] = [_when("action", action, member) for action, member in ACTION_MEMBERS.items()]


def _with(member: str) -> dict[str, Any]:
    return {"required": [member]}


def _when(member: str, value: str, demanded: str) -> dict[str, Any]:
    return {"if": {"properties": {member: {"const": value}}, "required": [member]}, "then": _with(demanded)}


def main(args: list[str]) -> int:
    if args not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = {DIRECTORY / name: schema_text(schema) for name, schema in schemas().items()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    stale += [path for path in DIRECTORY.glob("*.json") if path not in wanted]
    for path in stale:
        if args:
            print(f"schema/{path.name} is not current", file=sys.stderr)
        elif path in wanted:
            path.write_text(wanted[path], "utf-8")
            print(f"schema/{path.name} written", file=sys.stderr)
        else:
            path.unlink()
            print(f"schema/{path.name} removed", file=sys.stderr)
    return 1 if args and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
