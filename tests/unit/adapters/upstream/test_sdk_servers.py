"""`sub shim --url` before servers of the Python SDK, in every revision and both forms of reply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.driver import Agent
from harness.http_servers import SdkServer, sdk_server
from harness.shim import Shim

SESSION_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
DENY_ECHO = {
    "policy_id": "p", "version": "1", "mode": "guardrails", "defaults": {"decision_on_error": "BLOCK"}, "selectors": {},
    "rules": [
        {"rule_id": "no", "kind": "deny", "match": {"args": {"key_contains": {"text": "secret plan"}}},
         "effect": {"action": "BLOCK"}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module", params=["json", "stream"])
def server(request: pytest.FixtureRequest) -> Iterator[SdkServer]:
    with sdk_server(json=request.param == "json") as server:
        yield server


@pytest.fixture(scope="module")
def streaming() -> Iterator[SdkServer]:
    with sdk_server(events=True) as server:
        yield server


@pytest.fixture(scope="module")
def old() -> Iterator[SdkServer]:
    with sdk_server(sse=True) as server:
        yield server


def shim(tmp_path: Path, url: str, *words: str, **more: Any) -> Shim:
    return Shim(tmp_path, "s", ["--url", url, *words], **more)


def begin(agent: Agent, revision: str = "2025-11-25") -> dict[str, Any]:
    params = {"protocolVersion": revision, "capabilities": CAPABILITIES, "clientInfo": {"name": "t", "version": "1"}}
    result: dict[str, Any] = agent.request("initialize", params)["result"]
    agent.notify("notifications/initialized")
    return result


def modern(method: str, **params: Any) -> dict[str, Any]:
    meta = {"io.modelcontextprotocol/protocolVersion": STATELESS, "io.modelcontextprotocol/clientCapabilities": {}}
    return {"method": method, "params": {**params, "_meta": meta}}


def answer(agent: Agent, method: str, result: dict[str, Any]) -> None:
    """What the server asks for, once it does."""
    asked = agent.receive(lambda message: message.get("method") == method)
    agent.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})


@pytest.mark.parametrize("revision", SESSION_REVISIONS)
def test_a_session_in_every_revision_that_has_them(tmp_path: Path, server: SdkServer, revision: str) -> None:
    setup = shim(tmp_path, server.url)
    with setup.start() as agent:
        assert begin(agent, revision)["protocolVersion"] == revision
        assert {tool["name"] for tool in agent.request("tools/list")["result"]["tools"]} >= {"echo", "ask"}
        headers = json.loads(agent.call_text("headers"))
        assert agent.call_text("echo", {"text": "zażółć\u2028"}) == "zażółć\u2028"
        assert agent.finish() == 0
    assert headers["mcp-session-id"] and headers["accept"] == "application/json, text/event-stream"
    assert headers.get("mcp-protocol-version") == (revision if revision >= "2025-06-18" else None)
    start, decision, end = setup.events.events_of("tool_call_start", "tool_call_decision", "tool_call_end")[-3:]
    assert (start["call"]["transport"], start["call"]["tool_name"]) == ("mcp_stdio", "echo")
    assert decision["decision"]["action"] == "ALLOW" and end["status"] == "OK"
    assert setup.events.events_of("run_end")[0]["run"]["status"] == "SUCCEEDED"


def test_the_stateless_revision_has_headers_that_say_what_the_body_says(tmp_path: Path, server: SdkServer) -> None:
    with shim(tmp_path, server.url).start() as agent:
        found = agent.request(**modern("server/discover"))["result"]
        assert STATELESS in found["supportedVersions"]
        agent.request(**modern("tools/list"))
        called = agent.request(**modern("tools/call", name="headers", arguments={}))["result"]
        headers = json.loads(called["content"][0]["text"])
        # The SDK refuses a header that does not repeat the body, and one that is not there.
        for region in ("eu-west", "łódź", " edge ", "=?base64?eA==?="):
            arguments = {"region": region, "count": 3}
            routed = agent.request(**modern("tools/call", name="routed", arguments=arguments))
            assert routed["result"]["content"][0]["text"] == f"{region} 3"
        unknown = agent.request(**modern("tools/call", name="żaden", arguments={}))["result"]
        assert unknown["content"][0]["text"] == "Unknown tool: żaden"
        assert agent.finish() == 0
    assert (headers["mcp-protocol-version"], headers["mcp-method"]) == (STATELESS, "tools/call")
    assert headers["mcp-name"] == "headers" and "mcp-session-id" not in headers


def test_an_unknown_method_of_the_stateless_revision_is_the_servers_own_error(
    tmp_path: Path, server: SdkServer
) -> None:
    with shim(tmp_path, server.url).start() as agent:
        assert agent.request(**modern("no/such"))["error"]["code"] == -32601
        assert agent.request(**modern("tools/list"))["result"]["tools"]


def test_a_server_may_ask_the_client(tmp_path: Path, streaming: SdkServer) -> None:
    with shim(tmp_path, streaming.url).start() as agent:
        begin(agent)
        asked = agent.start_call("ask")
        answer(agent, "elicitation/create", {"action": "accept", "content": {"colour": "green"}})
        thought = agent.start_call("think")
        content = {"type": "text", "text": "yes"}
        answer(agent, "sampling/createMessage", {"role": "assistant", "content": content, "model": "m"})
        rooted = agent.start_call("where")
        answer(agent, "roots/list", {"roots": [{"uri": "file:///here"}]})
        texts = [reply["result"]["content"][0]["text"] for reply in agent.replies([asked, thought, rooted])]
    assert texts == ["green", "yes", "file:///here"]


def test_progress_comes_before_the_reply(tmp_path: Path, streaming: SdkServer) -> None:
    with shim(tmp_path, streaming.url).start() as agent:
        begin(agent)
        agent.call("progress", {"steps": 20}, _meta={"progressToken": "p"})
        said = [m for m in agent.messages if m.get("method") == "notifications/progress" or m.get("id") == 2]
    assert [m["params"]["progress"] for m in said[:-1]] == list(range(1, 21)) and said[-1]["id"] == 2


def test_a_stream_that_its_server_cuts_is_gone_on_with(tmp_path: Path, streaming: SdkServer) -> None:
    with shim(tmp_path, streaming.url).start() as agent:
        begin(agent)
        assert agent.call_text("cut") == "after the cut"


def test_a_server_without_sessions(tmp_path: Path) -> None:
    with sdk_server(stateless=True) as server, shim(tmp_path, server.url).start() as agent:
        begin(agent)
        assert "mcp-session-id" not in json.loads(agent.call_text("headers"))
        assert agent.finish() == 0


@pytest.mark.parametrize("words", [(), ("--transport", "sse")], ids=["found", "given"])
def test_the_transport_of_2024_11_05(tmp_path: Path, old: SdkServer, words: tuple[str, ...]) -> None:
    with shim(tmp_path, old.url, *words).start() as agent:
        begin(agent, "2024-11-05")
        assert agent.call_text("echo", {"text": "old"}) == "old"
        asked = agent.start_call("ask")
        answer(agent, "elicitation/create", {"action": "accept", "content": {"colour": "grey"}})
        assert agent.reply(asked)["result"]["content"][0]["text"] == "grey"
        assert agent.finish() == 0


def test_a_client_that_asks_for_the_stateless_revision_first_finds_the_old_server(
    tmp_path: Path, old: SdkServer
) -> None:
    with shim(tmp_path, old.url).start() as agent:
        assert agent.request(**modern("server/discover"))["error"]["code"] == -32601
        begin(agent, "2024-11-05")
        assert agent.call_text("echo", {"text": "found"}) == "found"


@pytest.mark.parametrize("options", [{}, {"json": True}, {"sse": True}], ids=["stream", "json", "2024-11-05"])
def test_a_server_that_was_restarted_is_spoken_to_as_if_nothing_had_happened(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with sdk_server(**options) as server, shim(tmp_path, server.url).start() as agent:
        begin(agent)
        agent.call_text("echo", {"text": "before"})
        server.restart()
        texts = [agent.start_call("echo", {"text": f"after {number}"}) for number in range(5)]
        assert [reply["result"]["content"][0]["text"] for reply in agent.replies(texts)] == [
            f"after {number}" for number in range(5)
        ]
        ran = json.loads(agent.call_text("what_ran"))
        assert agent.finish() == 0
        initialized = [message for message in agent.messages if message.get("id") == 1]
    assert sorted(ran) == [f"after {number}" for number in range(5)], "each once"
    assert len(initialized) == 1


def test_a_refused_call_never_reaches_the_server(tmp_path: Path, server: SdkServer) -> None:
    with shim(tmp_path, server.url, policy=DENY_ECHO).start() as agent:
        begin(agent)
        assert agent.call("echo", {"text": "the secret plan"})["error"]["code"] == -32081
        assert agent.call_text("echo", {"text": "the lunch plan"}) == "the lunch plan"
        ran = json.loads(agent.call_text("what_ran"))
    assert "the secret plan" not in ran and "the lunch plan" in ran


def test_many_calls_at_once(tmp_path: Path, server: SdkServer) -> None:
    with shim(tmp_path, server.url).start() as agent:
        begin(agent)
        ids = [agent.start_call("echo", {"text": str(number)}, wait=False) for number in range(150)]
        texts = [reply["result"]["content"][0]["text"] for reply in agent.replies(ids)]
    assert texts == [str(number) for number in range(150)]
