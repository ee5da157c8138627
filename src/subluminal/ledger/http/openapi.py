"""The OpenAPI description of the HTTP API, made from the table of its routes."""

from __future__ import annotations

from typing import Any

from subluminal import __version__
from subluminal.ledger.http.routes import ROUTES, Route
from subluminal.ledger.http.schemas import CALL_ROW, CHANGES, ERROR, RUN_ROW, TEXT, WHOLE_CALL

# Named for whoever makes types from the document.
_NAMED = {"CallRow": CALL_ROW, "RunRow": RUN_ROW, "WholeCall": WHOLE_CALL, "Changes": CHANGES}


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Subluminal ledger", "version": __version__},
        "security": [{"token": []}],
        "components": {"securitySchemes": schemes, "schemas": _NAMED},
        "paths": paths,
    }


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_ERRORS = {
    "400": _answer("The question makes no sense; the sentence says why.", ERROR),
    "401": _answer("The bearer token is missing or wrong.", ERROR),
    "403": _answer("Another web page asked, or one of ours what needs the token.", ERROR),
    "404": _answer("There is no such thing in the ledger.", ERROR),
    "421": _answer("The Host header names another server.", ERROR),
}


def _operation(route: Route) -> dict[str, Any]:
    responses = {"200": _answer("Found.", route.schema), **_ERRORS}
    operation = {"summary": route.summary, "parameters": list(route.parameters), "responses": responses}
    if route.is_socket:
        responses["101"] = _answer("The stream follows; each message is such an object.", route.schema)
        responses["426"] = _answer("Not a WebSocket handshake.", ERROR)
        del responses["200"]
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    if route.answer == "metrics":
        responses["200"] = {"description": "Found.", "content": {"text/plain": {"schema": route.schema}}}
    if route.answer == "ingest":
        operation["requestBody"] = {"required": True, "content": {"text/plain": {"schema": TEXT}}}
        responses["422"] = _answer("Some lines are no events; the others are stored.", route.schema)
        responses["413"] = _answer("The body is too large.", ERROR)
    return operation
