"""A real MCP server behind a real OAuth authorization server: the Python SDK's own, on one port of this machine.

    with oauth_server(lifetime_s=60, rotation=False) as server:
        server.url                     of the MCP server
        server.browse(address)         what a user's browser does with the address of a login: it says yes
        server.requests("POST /token") how many of these it has answered

Options (all have defaults)
    lifetime_s        what tokens live for, as told and as kept; 0 tells nothing, and they never expire
    strict_audience   a token is good only if it was asked for with the right `resource`
    registration      clients may register; without it there is one, CLIENT_ID with CLIENT_SECRET
    callback_port     the port of that client's redirect address
    rotation          a refresh token is good once
    refresh           there are refresh tokens at all
    revocation        tokens can be taken back
    scopes            required of every token
    iss               what redirects carry as `iss` (RFC 9207); none without it
"""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.request import urlopen

from harness.places import ROOT

CLIENT_ID, CLIENT_SECRET = "registered-by-hand", "secret-of-the-registered-client"
COUNTERS = "/harness/requests"
FORGET = "/harness/forget"
OPTIONS: dict[str, Any] = {
    "lifetime_s": 3600,
    "strict_audience": True,
    "registration": True,
    "callback_port": 0,
    "rotation": True,
    "refresh": True,
    "revocation": True,
    "scopes": ["read"],
    "iss": None,
}


class OAuthServer(NamedTuple):
    origin: str
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def browse(self, address: str) -> str:
        """The page at the end of the redirects."""
        with urlopen(address, timeout=30) as page:
            return str(page.read().decode())

    def requests(self, line: str) -> int:
        with urlopen(self.origin + COUNTERS, timeout=30) as answer:
            return int(json.load(answer).get(line, 0))

    def forget_tokens(self, kind: str) -> None:
        """`access` or `refresh`: those given so far are good no more."""
        with urlopen(f"{self.origin}{FORGET}?kind={kind}", timeout=30):
            pass


@contextmanager
def oauth_server(**options: Any) -> Iterator[OAuthServer]:
    assert options.keys() <= OPTIONS.keys(), options
    command = [sys.executable, "-m", "harness.oauth_server", json.dumps(options)]
    process = subprocess.Popen(command, cwd=ROOT / "tests", stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        origin = process.stdout.readline().decode().strip()
        assert origin.startswith("http://127.0.0.1:"), "the server did not start"
        yield OAuthServer(origin, process)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


# -- the process ------------------------------------------------------------------------------------------------------


class Counting:
    """ASGI: counts what is answered."""

    def __init__(self, app: Any, counts: Counter[str]) -> None:
        self.app = app
        self.counts = counts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.counts[f"{scope['method']} {scope['path']}"] += 1
        await self.app(scope, receive, send)


def provider(options: dict[str, Any]) -> Any:
    from mcp.server.auth.provider import (
        AccessToken,
        AuthorizationCode,
        OAuthAuthorizationServerProvider,
        RefreshToken,
        construct_redirect_uri,
    )
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

    class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
        def __init__(self) -> None:
            self.clients: dict[str, Any] = {}
            self.codes: dict[str, Any] = {}
            self.access: dict[str, Any] = {}
            self.refreshing: dict[str, Any] = {}
            if not options["registration"]:
                self.clients[CLIENT_ID] = OAuthClientInformationFull.model_validate({
                    "client_id": CLIENT_ID,
                    "client_secret": CLIENT_SECRET,
                    "token_endpoint_auth_method": "client_secret_post",
                    "redirect_uris": [f"http://127.0.0.1:{options['callback_port']}/callback"],
                    "grant_types": ["authorization_code", "refresh_token"],
                    "scope": " ".join(options["scopes"]),
                })  # fmt: skip

        async def get_client(self, client_id: str) -> Any:
            return self.clients.get(client_id)

        async def register_client(self, client_info: Any) -> None:
            self.clients[client_info.client_id] = client_info

        async def authorize(self, client: Any, params: Any) -> str:
            code = secrets.token_urlsafe(24)
            self.codes[code] = AuthorizationCode(
                code=code,
                client_id=client.client_id,
                scopes=params.scopes or [],
                expires_at=time.time() + 300,
                code_challenge=params.code_challenge,
                redirect_uri=params.redirect_uri,
                redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
                resource=params.resource,
            )
            more = {} if options["iss"] is None else {"iss": options["iss"]}
            return str(construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state, **more))

        async def load_authorization_code(self, client: Any, authorization_code: str) -> Any:
            return self.codes.get(authorization_code)

        async def exchange_authorization_code(self, client: Any, authorization_code: Any) -> Any:
            del self.codes[authorization_code.code]
            return self.issue(client.client_id, authorization_code.scopes, authorization_code.resource)

        async def load_refresh_token(self, client: Any, refresh_token: str) -> Any:
            return self.refreshing.get(refresh_token)

        async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> Any:
            if options["rotation"]:
                del self.refreshing[refresh_token.token]
            return self.issue(client.client_id, scopes, refresh_token.resource)

        def issue(self, client_id: str, scopes: list[str], resource: str | None) -> Any:
            lifetime = options["lifetime_s"]
            members = {"client_id": client_id, "scopes": scopes, "resource": resource}
            access, renewing = f"access-{secrets.token_urlsafe(24)}", f"refresh-{secrets.token_urlsafe(24)}"
            expires_at = int(time.time()) + lifetime if lifetime else None
            self.access[access] = AccessToken(token=access, expires_at=expires_at, **members)
            self.refreshing[renewing] = RefreshToken(token=renewing, **members)
            return OAuthToken(
                access_token=access,
                token_type="Bearer",
                expires_in=lifetime or None,
                scope=" ".join(scopes),
                refresh_token=renewing if options["refresh"] else None,
            )

        async def load_access_token(self, token: str) -> Any:
            return self.access.get(token)

        async def revoke_token(self, token: Any) -> None:
            self.access = {k: v for k, v in self.access.items() if v.client_id != token.client_id}
            self.refreshing = {k: v for k, v in self.refreshing.items() if v.client_id != token.client_id}

    return Provider()


def serve(options: dict[str, Any]) -> None:
    import uvicorn
    from mcp.server.auth.middleware.auth_context import get_access_token
    from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
    from mcp.server.mcpserver import MCPServer
    from starlette.responses import JSONResponse

    listening = socket.create_server(("127.0.0.1", 0))
    origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
    counts: Counter[str] = Counter()
    tokens = provider(options)
    settings = AuthSettings.model_validate({
        "issuer_url": origin,
        "resource_server_url": f"{origin}/mcp",
        "validate_token_resource": options["strict_audience"],
        "required_scopes": options["scopes"],
        "client_registration_options": ClientRegistrationOptions(enabled=options["registration"]),
        "revocation_options": RevocationOptions(enabled=options["revocation"]),
    })  # fmt: skip
    server = MCPServer("guarded", auth_server_provider=tokens, auth=settings, log_level="ERROR")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def token_shown() -> str:
        """A server that tells everybody what it was shown."""
        shown = get_access_token()
        return "" if shown is None else shown.token

    @server.custom_route(COUNTERS, methods=["GET"])
    async def told(request: Any) -> Any:
        return JSONResponse(dict(counts))

    @server.custom_route(FORGET, methods=["GET"])
    async def forget(request: Any) -> Any:
        (tokens.access if request.query_params["kind"] == "access" else tokens.refreshing).clear()
        return JSONResponse({})

    app = Counting(server.streamable_http_app(json_response=True), counts)
    print(origin, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    serve({**OPTIONS, **json.loads(sys.argv[1])})
