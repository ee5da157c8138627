"""The OpenAPI description of the HTTP API, written next to it and tested against it; filters come from their table."""

from __future__ import annotations

from typing import Any

from subluminal import __version__
from subluminal.contracts.filters import CALL_FILTERS, EVENT_FILTERS, LISTS, MAX_NUMBER, RUN_FILTERS, TEXT, Filter
from subluminal.ledger.read.ledger import GROUPS

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_WHOLE_OR_NULL = {"type": ["integer", "null"]}
_ROW = {"type": "object"}


def document() -> dict[str, Any]:
    page = _object({"rows": {"type": "array", "items": _ROW}, "next_cursor": _TEXT_OR_NULL})
    call = _object(dict.fromkeys(("call_id", "run_id", "server_name", "tool_name", "args_hash"), _TEXT))
    run = _object({"run_id": _TEXT, "status": _TEXT, "calls_total": {"type": "integer"}, "principal": _TEXT_OR_NULL})
    run["properties"]["usage"] = {"type": ["object", "null"], "description": "What its models used, as it was stated."}
    group = _object({"calls": {"type": "integer"}, "latency_ms_max": _WHOLE_OR_NULL})
    groups = _object({"groups": {"type": "array", "items": group}})
    bad = _object({"line": {"type": "integer"}, "error": _TEXT})
    ingested = _object({"stored": _WHOLE, "known": _WHOLE, "bad": {"type": "array", "items": bad}})
    events = _object({"events": {"type": "array", "items": _ROW}, "after_n": _WHOLE})
    return {
        "openapi": "3.1.0",
        "info": {"title": "Subluminal ledger", "version": __version__},
        "security": [{"token": []}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": {
            "/v1/openapi.json": _get("This document.", [], _ROW),
            "/v1/runs": _get("Runs, latest start first.", _RUN_PARAMETERS, page),
            "/v1/runs/{run_id}": _get("One run and its producers.", [_path("run_id")], run),
            "/v1/runs/{run_id}/events": _get("The events of a run, in chain order.", _EVENT_PARAMETERS, events),
            "/v1/calls": _get("Tool calls, newest first.", [*_FILTERS, _LIMIT, _CURSOR], page),
            "/v1/calls/{call_id}": _get("One call with previews, hint and events.", _CALL_PARAMETERS, call),
            "/v1/groups": _get("Calls per group.", [_BY, *_FILTERS, _LIMIT], groups),
            "/v1/events": {"post": _ingestion(ingested)},
            "/v1/live": {"get": _live()},
        },
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_ERROR = _object({"error": _TEXT})
_ERRORS = {
    "400": _answer("The question makes no sense; the sentence says why.", _ERROR),
    "401": _answer("The bearer token is missing or wrong.", _ERROR),
    "403": _answer("Another web page asked.", _ERROR),
    "404": _answer("There is no such thing in the ledger.", _ERROR),
    "421": _answer("The Host header names another server.", _ERROR),
}


def _operation(summary: str, parameters: list[dict[str, Any]], schema: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "parameters": parameters, "responses": {"200": _answer("Found.", schema), **_ERRORS}}


def _get(summary: str, parameters: list[dict[str, Any]], schema: dict[str, Any]) -> dict[str, Any]:
    return {"get": _operation(summary, parameters, schema)}


def _query(name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema or _TEXT}


def _path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _filter(found: Filter) -> dict[str, Any]:
    one: dict[str, Any] = {"type": "string", "enum": list(found.words)} if found.words else _TEXT
    if found.kind in LISTS:
        return {**_query(found.name, {"type": "array", "items": one}), "description": found.help, "explode": True}
    return {**_query(found.name, one if found.kind == TEXT else _WHOLE), "description": found.help}


def _ingestion(schema: dict[str, Any]) -> dict[str, Any]:
    operation = _operation("Store event lines (JSONL). The same events again add nothing.", [], schema)
    operation["requestBody"] = {"required": True, "content": {"text/plain": {"schema": _TEXT}}}
    operation["responses"]["422"] = _answer("Some lines are no events; the others are stored.", schema)
    operation["responses"]["413"] = _answer("The body is too large.", _ERROR)
    return operation


def _live() -> dict[str, Any]:
    operation = _operation("New events as WebSocket messages.", [*map(_filter, EVENT_FILTERS)], _ROW)
    del operation["responses"]["200"]
    operation["responses"]["101"] = {"description": "The stream follows."}
    operation["responses"]["426"] = _answer("Not a WebSocket handshake.", _ERROR)
    return operation


_LIMIT = _query("limit", {"type": "integer", "minimum": 1, "maximum": 100_000})
_CURSOR = _query("cursor", {"type": "string", "pattern": "^[0-9]{1,18}$"})
_FILTERS = [*map(_filter, CALL_FILTERS)]
_BY = {
    **_query("by", {"type": "array", "minItems": 1, "items": {"type": "string", "enum": list(GROUPS)}}),
    "required": True,
    "explode": True,
}
_EVENT_LIMIT = _query("limit", {"type": "integer", "minimum": 1, "maximum": 10_000})
_EVENT_PARAMETERS = [_path("run_id"), _query("after_n", _WHOLE), _EVENT_LIMIT]
_CALL_PARAMETERS = [_path("call_id"), _query("run_id")]
_RUN_CURSOR = _query("cursor", {"type": "string", "pattern": "^[0-9TZ:.-]{20,30}~[0-9]{1,18}$"})
_RUN_PARAMETERS = [_LIMIT, _RUN_CURSOR, *map(_filter, RUN_FILTERS)]
