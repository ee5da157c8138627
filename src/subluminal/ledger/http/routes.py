"""The routes: one table. The server and its OpenAPI document are both made from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from subluminal.ledger.http import schemas as of
from subluminal.ledger.http.parameters import (
    BY,
    CALL,
    CALLS,
    DIFF,
    DIRECTORY,
    EACH_RUN,
    EVENTS,
    FILTERS,
    FOLLOW,
    HINTS,
    LIMIT,
    PARTS,
    POLICIES,
    PROMOTE,
    RUN,
    RUNS,
    TOOL,
)


class Route(NamedTuple):
    """`answer` names the method of `Api`, `Machine` or `Governance`. `page`: a session of the page may ask it too;
    `public`: whoever comes."""

    method: str
    path: str
    answer: str
    summary: str
    parameters: tuple[dict[str, Any], ...] = ()
    schema: dict[str, Any] = of.ANYTHING
    body: dict[str, Any] | None = None
    page: bool = True
    public: bool = False
    is_socket: bool = False


def _get(path: str, answer: str, summary: str, parameters: Any, schema: dict[str, Any]) -> Route:
    return Route("GET", path, answer, summary, tuple(parameters), schema)


def _post(path: str, answer: str, summary: str, parameters: Any, schema: dict[str, Any], body: dict[str, Any]) -> Route:
    return Route("POST", path, answer, summary, tuple(parameters), schema, body)


ROUTES = (
    _get("/v1/openapi.json", "openapi", "This document.", (), of.ANYTHING),
    _get("/v1/runs", "runs", "Runs, latest start first.", RUNS, of.RUN_PAGE),
    _get("/v1/runs/{run_id}", "run", "One run and its producers.", [RUN], of.WHOLE_RUN),
    _get("/v1/runs/{run_id}/events", "events", "The events of a run, in chain order.", EVENTS, of.EVENTS),
    _get("/v1/runs/{run_id}/timeline", "timeline", "What happened in a run, in order of time.", [RUN], of.TIMELINE),
    _get("/v1/sparks", "sparks", "When the calls of runs came, in equal parts of each run.", EACH_RUN, of.SPARKS),
    _get("/v1/recovery", "recovery", "How many of its refusals each run corrected.", EACH_RUN, of.RECOVERY),
    _get("/v1/calls", "calls", "Tool calls, newest first.", CALLS, of.CALL_PAGE),
    _get("/v1/calls/{call_id}", "call", "One call: previews, hint, rule, doors and events.", CALL, of.WHOLE_CALL),
    _get("/v1/calls/{call_id}/explanation", "explanation", "Which rules were asked, and why.", CALL, of.EXPLANATION),
    _get("/v1/groups", "groups", "Calls per group.", [BY, *FILTERS, LIMIT], of.GROUPS),
    _get("/v1/hints", "hints", "Rules that refused, and what the agents did next.", HINTS, of.HINTS),
    _get("/v1/over_time", "over_time", "Calls in equal parts of a time.", [PARTS, *FILTERS], of.OVER_TIME),
    _get(
        "/v1/policies", "policies", "What is in force in a directory, and every version known.", POLICIES, of.POLICIES
    ),
    _get("/v1/policies/diff", "policy_diff", "What changed between two versions of a policy.", DIFF, of.POLICY_DIFF),
    _get("/v1/tools", "tools", "What servers say of their tools, and how it stands.", [DIRECTORY], of.TOOLS),
    _get("/v1/tool", "tool", "One tool: what is said of it, and how that changed.", TOOL, of.TOOL),
    _post("/v1/kill", "kill", "Stop a run: every further tool call of it is refused.", (), of.KILLED, of.KILL),
    _get("/v1/promote", "proposal", "What would let a refused call through.", PROMOTE, of.PROPOSAL),
    _post("/v1/promote", "promote", "Let it through, as proposed.", [DIRECTORY], of.PROMOTED, of.PROMOTE),
    _post("/v1/tools/approve", "approve", "Accept what has changed.", [DIRECTORY], of.APPROVED, of.APPROVE),
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
    Route(
        "GET",
        "/metrics",
        "metrics",
        "Figures as Prometheus reads them, counted since the daemon began to serve HTTP.",
        schema=of.TEXT,
        page=False,
    ),
    _get("/v1/session", "session", "What a page needs to know of itself.", (), of.SESSION),
    Route("POST", "/v1/session/end", "end_session", "End the session of a page.", schema=of.ENDED),
)
BY_PATH = {(route.method, route.path): route for route in ROUTES}
