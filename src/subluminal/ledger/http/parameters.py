"""The parameters of the routes, as OpenAPI writes them. Filters come from their table (`contracts.filters`)."""

from __future__ import annotations

from typing import Any

from subluminal.contracts.filters import (
    CALL_FILTERS,
    EVENT_FILTERS,
    HINT_FILTERS,
    LISTS,
    MAX_NUMBER,
    RUN_FILTERS,
    TEXT,
    Filter,
)
from subluminal.contracts.vocabulary import CLIENTS, ENVS
from subluminal.ledger.read.ledger import GROUPS
from subluminal.ledger.read.over_time import MAX_PARTS

Parameter = dict[str, Any]
_TEXT = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER}
# Of which something is told that has to be worked out for each: a page of the scoreboard.
MAX_RUNS = 100


def query(name: str, schema: dict[str, Any] | None = None) -> Parameter:
    return {"name": name, "in": "query", "schema": schema or _TEXT}


def _path(name: str) -> Parameter:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _filter(found: Filter) -> Parameter:
    """`x-option`: the word for the same on the command line, and in the address of the page."""
    one: dict[str, Any] = {"type": "string", "enum": list(found.words)} if found.words else _TEXT
    told = {"description": found.help, "x-option": found.option}
    if found.kind in LISTS:
        return {**query(found.name, {"type": "array", "items": one}), **told, "explode": True}
    return {**query(found.name, one if found.kind == TEXT else _WHOLE), **told}


LIMIT = query("limit", {"type": "integer", "minimum": 1, "maximum": 100_000})
_CURSOR = query("cursor", {"type": "string", "pattern": "^[0-9]{1,18}$"})
_RUN_CURSOR = query("cursor", {"type": "string", "pattern": "^[0-9TZ:.-]{20,30}~[0-9]{1,18}$"})
FILTERS = [*map(_filter, CALL_FILTERS)]
FOLLOW = [*map(_filter, EVENT_FILTERS)]
_PATIENCE = {
    **query("patience_ms", _WHOLE),
    "description": "Where all calls must be looked at, answer after about so long; next_cursor goes on.",
}
CALLS = [*FILTERS, LIMIT, _CURSOR, _PATIENCE]
HINTS = [*map(_filter, HINT_FILTERS)]
RUNS = [LIMIT, _RUN_CURSOR, *map(_filter, RUN_FILTERS)]
RUN = _path("run_id")
CALL = [_path("call_id"), query("run_id"), query("shim_id")]
EVENTS = [RUN, query("after_n", _WHOLE), query("limit", {"type": "integer", "minimum": 1, "maximum": 10_000})]
BY = {
    **query("by", {"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(GROUPS)}}),
    "required": True,
    "explode": True,
}
EACH_RUN = [
    {
        **query("run_id", {"type": "array", "minItems": 1, "maxItems": MAX_RUNS, "items": _TEXT}),
        "required": True,
        "explode": True,
    }
]
PARTS = query("parts", {"type": "integer", "minimum": 1, "maximum": MAX_PARTS})
_DIRECTORY = {"type": "string", "pattern": "^(/[^\\x00]*)?$", "maxLength": 4096}
DIRECTORY = {**query("directory", _DIRECTORY), "description": "Where; else where `sub ui` was started."}
POLICIES = [
    DIRECTORY,
    query("client", {"type": "string", "enum": list(CLIENTS)}),
    query("env", {"type": "string", "enum": list(ENVS)}),
    query("agent_id"),
]
PROMOTE = [
    DIRECTORY,
    {**query("call_id", {"type": "string", "minLength": 1}), "required": True},
    query("run_id"),
    query("shim_id"),
    {**query("scope", {"type": "string", "enum": ["session", "persist"]}), "required": True},
]
_HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
DIFF = [{**query(name, _HASH), "required": True} for name in ("old", "new")]
TOOL = [DIRECTORY, {**query("server_name"), "required": True}, {**query("key"), "required": True}]
