"""`sub shim --url` before a server of the TypeScript SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from harness.driver import Agent
from harness.http_servers import typescript_server
from harness.shim import Shim


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    with typescript_server() as origin:
        yield origin


def begin(agent: Agent, revision: str) -> dict[str, Any]:
    capabilities = {"elicitation": {}}
    params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
    result: dict[str, Any] = agent.request("initialize", params)["result"]
    agent.notify("notifications/initialized")
    return result


@pytest.mark.parametrize("path", ["/mcp", "/mcp?json", "/sse"])
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_every_revision_in_every_form(tmp_path: Path, origin: str, path: str, revision: str) -> None:
    with Shim(tmp_path, "ts", ["--url", origin + path]).start() as agent:
        assert begin(agent, revision)["protocolVersion"] == revision
        assert agent.call_text("echo", {"text": "zażółć"}) == "zażółć"
        headers = json.loads(agent.call_text("headers"))
        assert agent.finish() == 0
    assert ("mcp-session-id" in headers) == (path != "/sse")
    stated = revision if revision >= "2025-06-18" and path != "/sse" else None
    assert headers.get("mcp-protocol-version") == stated


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
def test_it_may_ask_the_client(tmp_path: Path, origin: str, path: str) -> None:
    with Shim(tmp_path, "ts", ["--url", origin + path]).start() as agent:
        begin(agent, "2025-06-18")
        id = agent.start_call("ask")
        asked = agent.receive(lambda message: message.get("method") == "elicitation/create")
        result = {"action": "accept", "content": {"colour": "green"}}
        agent.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        assert agent.reply(id)["result"]["content"][0]["text"] == "green"


def test_a_stream_that_it_cuts_is_gone_on_with(tmp_path: Path, origin: str) -> None:
    with Shim(tmp_path, "ts", ["--url", origin + "/mcp"]).start() as agent:
        begin(agent, "2025-11-25")
        assert agent.call_text("cut") == "after the cut"


def test_a_session_that_it_has_forgotten_is_begun_again(tmp_path: Path, origin: str) -> None:
    with Shim(tmp_path, "ts", ["--url", origin + "/mcp"]).start() as agent:
        begin(agent, "2025-11-25")
        with urlopen(Request(origin + "/forget", method="POST"), timeout=30):
            pass
        assert agent.call_text("echo", {"text": "again"}) == "again"
        assert json.loads(agent.call_text("what_ran")).count("again") == 1


def test_a_client_that_asks_for_the_stateless_revision_gets_this_servers_own_error(tmp_path: Path, origin: str) -> None:
    version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    with Shim(tmp_path, "ts", ["--url", origin + "/mcp"]).start() as agent:
        reply = agent.request("server/discover", {"_meta": version})
        assert reply["error"] == {"code": -32000, "message": "Session not found"}
        begin(agent, "2025-11-25")
        assert agent.call_text("echo", {"text": "found"}) == "found"
