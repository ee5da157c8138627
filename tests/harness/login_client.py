"""A client of the public conformance suite that logs in as `sub login` does, and then uses its token.

    conformance client --command "python -m harness.login_client" --scenario auth/metadata-default

The suite comes from npm into .venv/conformance: `python -m harness.login_client install`. It gives the server's URL as
the last argument, and what a user would know (a client id) as JSON in MCP_CONFORMANCE_CONTEXT.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from conformance.suite import INSTALL_DIR, PACKAGE_JSON
from harness import npm
from harness.keychain import NONE

REVISION = "2025-11-25"
MAX_LOGINS = 3


def installed() -> bool:
    return npm.installed(INSTALL_DIR, PACKAGE_JSON)


class Client:
    def __init__(self, url: str, known: dict[str, str]) -> None:
        self.url = url
        self.known = {key: known[key] for key in ("client_id", "client_secret") if key in known}
        self.session = ""
        self.logins = 0
        self.log_in()

    def log_in(self, *scopes: str) -> None:
        from harness.logins import logged_in
        from subluminal.logins.tokens import find

        self.logins += 1
        logged_in(self.url, scopes=scopes, **self.known)
        login = find("guarded", self.url)
        assert login is not None
        self.token = login.access_token(0)

    def post(self, method: str, params: dict[str, Any] | None = None, number: int | None = None) -> str:
        from subluminal.logins.discovery import scopes_wanted

        body = {"jsonrpc": "2.0", "method": method, "params": params or {}, **({"id": number} if number else {})}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self.token}",
            "MCP-Protocol-Version": REVISION,
            **({"Mcp-Session-Id": self.session} if self.session else {}),
        }
        try:
            with urlopen(Request(self.url, json.dumps(body).encode(), headers), timeout=20) as answer:
                self.session = answer.headers.get("Mcp-Session-Id") or self.session
                return str(answer.read().decode())
        except HTTPError as error:
            scopes = scopes_wanted(error.headers.get_all("WWW-Authenticate") or [])
            if scopes is None or self.logins >= MAX_LOGINS:
                raise
            self.log_in(*scopes.split())
            return self.post(method, params, number)


def use(url: str) -> None:
    client = Client(url, json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"))
    hello = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "login", "version": "1"}}
    client.post("initialize", hello, 1)
    client.post("notifications/initialized")
    listed = client.post("tools/list", number=2)
    answer = json.loads(listed[listed.index("{") : listed.rindex("}") + 1])
    for tool in answer["result"]["tools"][:1]:
        client.post("tools/call", {"name": tool["name"], "arguments": {}}, 3)


if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        npm.install(INSTALL_DIR, PACKAGE_JSON)
    else:
        with tempfile.TemporaryDirectory() as home:
            os.environ.update(SUB_HOME=home, PYTHON_KEYRING_BACKEND=NONE)
            use(sys.argv[-1])
