"""A client of the Python SDK, for the client scenarios of the conformance suite: it lists the tools and calls each.

    conformance client --command "python -m conformance.reference_client" --scenario auth/metadata-default
    conformance client --command "python -m conformance.reference_client --proxy" ...

With `--proxy` it talks to the test server through `sub proxy mcp --url`, and logs in through it too. The suite gives
the URL as the last argument, and what a user would know in MCP_CONFORMANCE_CONTEXT.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

STATELESS = "2026-07-28"
REDIRECT = "http://localhost:3030/callback"
# What the suite's authorization servers take for the document of a client.
CLIENT_ID_URL = "https://conformance-test.local/client-metadata.json"
MADE_UP: dict[str, Any] = {"number": 5, "integer": 5, "string": "x", "boolean": True, "array": [], "object": {}}


class Kept:
    """Tokens and the client's registration, in memory."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        if "client_id" in known:
            self.client = OAuthClientInformationFull(
                client_id=known["client_id"], client_secret=known.get("client_secret"), redirect_uris=[AnyUrl(REDIRECT)]
            )

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class User:
    """Who agrees to everything: the test servers redirect at once."""

    def __init__(self) -> None:
        self.address: dict[str, list[str]] = {}

    async def sent_to(self, url: str) -> None:
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(url)
        self.address = parse_qs(urlsplit(answer.headers["location"]).query)

    async def comes_back(self) -> AuthorizationCodeResult:
        found = {name: values[0] for name, values in self.address.items()}
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))


async def fill_in(_context: Any, params: Any) -> types.ElicitResult:
    """What the form has as defaults."""
    properties = params.requested_schema.get("properties", {})
    content = {name: field["default"] for name, field in properties.items() if "default" in field}
    return types.ElicitResult(action="accept", content=content)


def arguments_for(tool: types.Tool) -> dict[str, Any]:
    properties = tool.input_schema.get("properties", {})
    return {name: MADE_UP.get(field.get("type"), "x") for name, field in properties.items() if isinstance(field, dict)}


async def use(url: str) -> None:
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
    user = User()
    login = OAuthClientProvider(
        url,
        OAuthClientMetadata(client_name="reference", redirect_uris=[AnyUrl(REDIRECT)]),
        Kept(known),
        user.sent_to,
        user.comes_back,
        client_metadata_url=CLIENT_ID_URL,
    )
    async with create_mcp_http_client(auth=login) as http:
        transport = streamable_http_client(url, http_client=http)
        mode = STATELESS if version >= STATELESS else "legacy"
        async with Client(transport, mode=mode, elicitation_callback=fill_in) as client:
            tools = (await client.list_tools()).tools
            calls = known.get("toolCalls") or [{"name": t.name, "arguments": arguments_for(t)} for t in tools]
            for call in calls:
                await client.call_tool(call["name"], call.get("arguments") or {})


def main() -> None:
    url = sys.argv[-1]
    if "--proxy" not in sys.argv:
        asyncio.run(use(url))
        return
    from conformance.ways import proxied

    with tempfile.TemporaryDirectory() as place, proxied(["--url", url], Path(place)) as public_url:
        asyncio.run(use(public_url))


if __name__ == "__main__":
    main()
