"""Who may ask. A web page in the user's browser counts as an attacker, one on another port of this machine included.

In this order, for every path, known or not:

1. Host is one of the exact names of this server (a rebound name is not), and the target is a path.
2. The method is one that is served at all.
3. Origin, where there is one, is the constant of this server. It is never compared with Host: rebinding makes these
   equal.
4. Of what is not the page itself: Sec-Fetch-Site, where the browser says it, is `same-origin`. A page on another port
   is `same-site`, and the browser sends it our cookie too.
5. The bearer token of `SUB_HOME/http_token`, or the cookie of a session (`sessions`). With a cookie, only what is meant
   for the page; a WebSocket must say its Origin; what writes must be JSON and carry the token of its session.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any

from aiohttp import web

from subluminal.ledger.http.answers import json_answer
from subluminal.ledger.http.routes import Route
from subluminal.ledger.http.sessions import Sessions

METHODS = ("GET", "HEAD", "POST")
CSRF_HEADER = "X-Subluminal-CSRF"
TOKEN_OR_PAGE = "a bearer token is needed (it is in SUB_HOME/http_token), or the session of a page: run `sub ui`"

# No script but ours, nothing from elsewhere, no frame around it; text never becomes script (Trusted Types).
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """On every answer, refusals included."""
    response.headers.update(HEADERS)


class Guard:
    """`hosts`: the Host headers that mean this server. `origin`: where its page is. `way_in`: what is needed."""

    def __init__(
        self, token: str, hosts: frozenset[str], origin: str, sessions: Sessions, way_in: str = TOKEN_OR_PAGE
    ) -> None:
        self._token = token.encode()
        self._way_in = way_in
        self._hosts = hosts
        self._origin = origin
        self._sessions = sessions
        # Cookies know no ports: without it in the name, two daemons would take each other's place.
        self.cookie_name = f"subluminal_{origin.rpartition(':')[2]}"

    def middleware(self, routes: Mapping[tuple[str, str], Route]) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            method = "GET" if request.method == "HEAD" else request.method
            route = routes.get((method, resource.canonical)) if resource is not None else None
            return self._refusal(request, route) or await handler(request)

        return guard

    def _refusal(self, request: web.Request, route: Route | None) -> web.Response | None:
        hosts, origins = request.headers.getall("Host", []), request.headers.getall("Origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts or not request.raw_path.startswith("/"):
            return json_answer({"error": "this Host is not served here"}, 421)
        if request.method not in METHODS:
            return json_answer({"error": f"only {', '.join(METHODS)} are served"}, 405, Allow=", ".join(METHODS))
        if origins and origins != [self._origin]:
            return json_answer({"error": "requests from other web pages are refused"}, 403)
        if route is not None and route.public:
            return None
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return json_answer({"error": "requests from other web pages are refused"}, 403)
        if hmac.compare_digest(_presented(request).encode("utf-8", "replace"), self._token):
            return None
        cookie = self.cookie(request)
        if not self._sessions.holds(cookie, monotonic()):
            return json_answer({"error": self._way_in}, 401)
        return self._of_page(request, route, cookie)

    def cookie(self, request: web.Request) -> str:
        return request.cookies.get(self.cookie_name, "")

    def _of_page(self, request: web.Request, route: Route | None, cookie: str) -> web.Response | None:
        """What a session may not do, or not this way."""
        if route is not None and not route.page:
            return json_answer({"error": "this needs the bearer token"}, 403)
        is_socket = "Upgrade" in request.headers
        if (is_socket or request.method == "POST") and "Origin" not in request.headers:
            return json_answer({"error": "an Origin is needed"}, 403)
        if request.method == "POST":
            if request.content_type != "application/json":
                return json_answer({"error": "what is written must be application/json"}, 415)
            shown = request.headers.get(CSRF_HEADER, "").encode("utf-8", "replace")
            if not hmac.compare_digest(shown, self._sessions.csrf(cookie).encode()):
                return json_answer({"error": f"{CSRF_HEADER} is missing or wrong"}, 403)
        return None


def _presented(request: web.Request) -> str:
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith("bearer."):
            return protocol.strip()[len("bearer.") :]
    return ""
