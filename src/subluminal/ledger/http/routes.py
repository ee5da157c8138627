"""The routes: one table. The server and its OpenAPI document are both made from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from subluminal.ledger.http import schemas as of
from subluminal.ledger.http.parameters import BY, CALL, CALLS, EVENTS, FILTERS, FOLLOW, LIMIT, RUN, RUNS, SPARKS


class Route(NamedTuple):
    """`answer` names the method of `Api`. `page`: a session of the page may ask it too; `public`: whoever comes."""

    method: str
    path: str
    answer: str
    summary: str
    parameters: tuple[dict[str, Any], ...] = ()
    schema: dict[str, Any] = of.ANYTHING
    page: bool = True
    public: bool = False
    is_socket: bool = False


def _get(path: str, answer: str, summary: str, parameters: Any, schema: dict[str, Any]) -> Route:
    return Route("GET", path, answer, summary, tuple(parameters), schema)


ROUTES = (
    _get("/v1/openapi.json", "openapi", "This document.", (), of.ANYTHING),
    _get("/v1/runs", "runs", "Runs, latest start first.", RUNS, of.RUN_PAGE),
    _get("/v1/runs/{run_id}", "run", "One run and its producers.", [RUN], of.WHOLE_RUN),
    _get("/v1/runs/{run_id}/events", "events", "The events of a run, in chain order.", EVENTS, of.EVENTS),
    _get("/v1/runs/{run_id}/timeline", "timeline", "What happened in a run, in order of time.", [RUN], of.TIMELINE),
    _get("/v1/sparks", "sparks", "When the calls of runs came, in equal parts of each run.", SPARKS, of.SPARKS),
    _get("/v1/calls", "calls", "Tool calls, newest first.", CALLS, of.CALL_PAGE),
    _get("/v1/calls/{call_id}", "call", "One call: previews, hint, rule, doors and events.", CALL, of.WHOLE_CALL),
    _get("/v1/calls/{call_id}/explanation", "explanation", "Which rules were asked, and why.", CALL, of.EXPLANATION),
    _get("/v1/groups", "groups", "Calls per group.", [BY, *FILTERS, LIMIT], of.GROUPS),
    Route(
        "POST",
        "/v1/events",
        "ingest",
        "Store event lines (JSONL). The same events again add nothing.",
        schema=of.INGESTED,
        page=False,
    ),
    Route("GET", "/v1/live", "live", "New events as WebSocket messages.", tuple(FOLLOW), page=False, is_socket=True),
    Route(
        "GET",
        "/v1/live/calls",
        "live_calls",
        "Calls as they begin and change, as WebSocket messages.",
        (*FILTERS, of.AFTER),
        of.CHANGES,
        is_socket=True,
    ),
    _get("/v1/session", "session", "What a page needs to know of itself.", (), of.SESSION),
    Route("POST", "/v1/session/end", "end_session", "End the session of a page.", schema=of.ENDED),
)
BY_PATH = {(route.method, route.path): route for route in ROUTES}
