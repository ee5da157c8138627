"""Write `schema/*.json` from the contract types; a file that belongs to no schema is removed.

The schemas of policies are also written to where the package carries them (`sub policy schema`).

The contracts as JSON Schema (draft 2020-12), for those who are not written in Python. Generated from the types, so
that they cannot drift; what types cannot say ("THROTTLE needs backoff_ms") is added here.

    python tools/generate_schemas.py [--check]

With --check nothing is written; exits with 1 if a file is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from subluminal.adapters.http_api.shape import MappingShape
from subluminal.contracts.events import Event, Hint, PolicyRef, Terminate
from subluminal.contracts.policy import Bundle, Snapshot
from subluminal.contracts.secrets import ServerSecrets
from subluminal.contracts.terms import Count
from subluminal.contracts.vocabulary import INTERFACE_VERSION
from subluminal.policy.lint.spelled_out import DURATIONS
from subluminal.policy.lint.wording import PATTERN_WORDS

ROOT = Path(__file__).parents[1]
DIRECTORY = ROOT / "schema"
CARRIED = ROOT / "src" / "subluminal" / "policy" / "edit"
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
        "policy-bundle.json": _bundle(),
        "policy-snapshot.json": _snapshot(),
        "error-data.json": _error_data(),
        "http-mapping.json": _schema("http-mapping", "Mapping of an HTTP API (`sub proxy http`)", MappingShape),
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


def _bundle() -> dict[str, Any]:
    schema = _schema("policy-bundle", "Policy bundle", Bundle)
    definitions = schema["$defs"]
    for definition in definitions.values():
        fields = definition.get("properties", {})
        both = [{"required": [name, f"{name}_ms"]} for name in DURATIONS if name in fields]
        if both:
            definition["not"] = both[0] if len(both) == 1 else {"anyOf": both}
    _demand_partners(definitions, lambda name: {"anyOf": [_with(name), _with(f"{name}_ms")]})
    _word_patterns(definitions)
    slow = definitions["Breaker"]
    slow["anyOf"].append(_with("latency_threshold"))
    slow["dependentSchemas"]["latency_threshold"] = slow["dependentSchemas"]["latency_threshold_ms"]
    return schema


def _word_patterns(schema: Any) -> None:
    """For editors: what a pattern means, beside it. `patternErrorMessage` is a word of the YAML and JSON servers."""
    if isinstance(schema, list):
        for member in schema:
            _word_patterns(member)
    elif isinstance(schema, dict):
        words = PATTERN_WORDS.get(schema.get("pattern", ""))
        if words is not None:
            schema["patternErrorMessage"] = f"It must be {words}."
        for member in list(schema.values()):
            _word_patterns(member)


def _snapshot() -> dict[str, Any]:
    """As the compiler writes it: times in milliseconds, sizes as numbers, lists (`policy.lint.spelled_out`)."""
    schema = _schema("policy-snapshot", "Policy snapshot", Snapshot)
    definitions = schema["$defs"]
    for definition in definitions.values():
        fields = definition.get("properties", {})
        for name in DURATIONS:
            fields.pop(name, None)
        for field in fields.values():
            _spell_out(field)
            _spell_out(field.get("items"))
            _spell_out(field.get("additionalProperties"))
        if "enabled" in fields:
            definition["required"] += ["enabled", "severity"]
    _demand_partners(definitions, lambda name: _with(f"{name}_ms"))
    return schema


def _spell_out(schema: Any) -> None:
    """Where one of several spellings may be written, the one that a snapshot has."""
    options = schema.get("anyOf") if isinstance(schema, dict) else None
    if options:
        texts = [option for option in options if option.get("type") == "string"]
        others = [option for option in options if option.get("type") in ("integer", "number", "array")]
        if len(texts) == 1 and others and ("pattern" in texts[0] or others[0]["type"] == "array"):
            del schema["anyOf"]
            schema.update(others[0] if len(others) == 1 else {"anyOf": others})


def _demand_partners(definitions: dict[str, Any], time: Callable[[str], dict[str, Any]]) -> None:
    """Fields that need each other. `time`: that a time is given, in one of the ways it can be."""
    definitions["Budget"]["anyOf"] = [_with("limit_calls"), _with("limit_cost_units")]
    throttles = {"properties": {"on_limit": {"const": "THROTTLE"}}, "required": ["on_limit"]}
    definitions["RateLimit"]["allOf"] = [time("refill_period"), {"if": throttles, "then": time("backoff")}]
    breaker = definitions["Breaker"]
    breaker["anyOf"] = [_with("error_threshold"), _with("repeat_threshold"), _with("latency_threshold_ms")]
    breaker["dependentSchemas"] = {
        "error_threshold": time("window"),
        "latency_threshold_ms": time("window"),
        "repeat_threshold": time("repeat_window"),
    }
    custom = {"properties": {"key": {"const": "custom"}}, "required": ["key"]}
    keys = {"if": custom, "then": _with("key_args"), "else": {"not": _with("key_args")}}
    definitions["Dedupe"]["allOf"] = [time("window"), keys]


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
    wanted |= {CARRIED / path.name: text for path, text in wanted.items() if path.name.startswith("policy-")}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    stale += [path for directory in (DIRECTORY, CARRIED) for path in directory.glob("*.json") if path not in wanted]
    for path in stale:
        if args:
            print(f"{path.relative_to(ROOT)} is not current", file=sys.stderr)
        elif path in wanted:
            path.write_text(wanted[path], "utf-8")
            print(f"{path.relative_to(ROOT)} written", file=sys.stderr)
        else:
            path.unlink()
            print(f"{path.relative_to(ROOT)} removed", file=sys.stderr)
    return 1 if args and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
