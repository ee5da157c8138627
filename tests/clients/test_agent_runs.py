"""The back ends with the real CLIs, live: what the fake model scripts is what the events tell."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from clients.models import ApiError, Die, ModelServer, Stall, Text, ToolCall, Turn
from clients.scenarios import BOX, ECHO, GOODBYE, backend_for, model_for, request_for
from harness.processes import MARKER_VARIABLE, new_marker, processes_with
from subluminal.agents.run import AgentRun
from subluminal.contracts.agent_event import AgentCompletion, AgentEvent

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
CLIENTS = ["claude_code", "codex"]


class Client:
    """One of the CLIs, ready to be run."""

    def __init__(self, kind: str, cli_dir: Path, home: Path) -> None:
        self.kind, self.cli_dir, self.home = kind, cli_dir, home
        self.marker = new_marker()

    def start(self, model: ModelServer, *args: str, timeout_s: float = 60) -> AgentRun:
        request = request_for(self.kind, model, self.cli_dir, self.home, args, timeout_s)
        request.env[MARKER_VARIABLE] = self.marker
        return backend_for(self.kind).run(request)

    def run(self, *turns: Turn, args: tuple[str, ...] = ()) -> tuple[list[AgentEvent], AgentCompletion, ModelServer]:
        async def case() -> tuple[list[AgentEvent], AgentCompletion]:
            run = self.start(model, *args)
            events = [event async for event in run.events]
            return events, await run.completion()

        with model_for(self.kind, turns) as model:
            events, completion = asyncio.run(case())
        return events, completion, model

    def processes(self) -> list[int]:
        return processes_with(self.marker)


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, cli_dir: Path, home: Path) -> Client:
    return Client(request.param, cli_dir, home)


def kinds(events: list[AgentEvent]) -> list[str]:
    """Without what frames the conversation, which differs from version to version."""
    return [event.kind.value for event in events if event.kind not in ("Status", "Unknown", "Error")]


def test_a_plain_answer(client: Client) -> None:
    events, completion, _ = client.run(Text("Hello, é and 💖."))
    assert kinds(events) == ["TextOutput"]
    assert (completion.status, completion.exit_code, completion.final_text) == ("SUCCEEDED", 0, "Hello, é and 💖.")
    assert client.processes() == []


def test_text_tool_call_result_and_answer_come_in_this_order(client: Client) -> None:
    events, completion, model = client.run(ECHO, GOODBYE)
    assert kinds(events) == ["TextOutput", "ToolCall", "ToolResult", "TextOutput"]
    call, result = (event.data for event in events if event.channel == "tool")
    assert (call["server_name"], call["tool_name"], call["phase"]) == (BOX, "echo", "start")
    assert (result["id"], result["phase"]) == (call["id"], "complete")
    assert any("echo: hello" in output for output in model.tool_outputs())
    assert completion.final_text == GOODBYE.text
    assert "hello" not in repr([call, result])


@pytest.mark.parametrize("tool", ["fail", "refuse", "write", "die"])
def test_a_tool_that_fails_is_refused_denied_or_dies_is_a_failed_result(client: Client, tool: str) -> None:
    events, completion, model = client.run(ToolCall(tool, {"text": "x"}, server=BOX), GOODBYE)
    assert kinds(events) == ["ToolCall", "ToolResult", "TextOutput"]
    [result] = [event.data for event in events if event.kind == "ToolResult"]
    assert (result["phase"], result["status"]) == ("fail", "failed")
    assert len(model.tool_outputs()) == 1
    assert completion.status == "SUCCEEDED"


def test_the_model_sees_the_message_of_a_refused_call(client: Client) -> None:
    _, _, model = client.run(ToolCall("refuse", {}, server=BOX), GOODBYE)
    [output] = model.tool_outputs()
    assert "-32081: refused by the server" in output
    assert ("policy" in output) is (client.kind == "codex")


def test_the_client_offers_the_servers_tools_to_the_model(client: Client) -> None:
    _, _, model = client.run(GOODBYE)
    join = "__" if client.kind == "claude_code" else "."
    assert {f"mcp__{BOX}{join}{tool}" for tool in ("echo", "fail", "refuse", "write")} <= set(model.tools_offered())


@pytest.mark.parametrize("turn", [ApiError(400, "invalid_request_error", "too strange"), Die()])
def test_a_model_that_fails_is_an_error_and_a_failed_completion(client: Client, turn: Turn) -> None:
    events, completion, _ = client.run(*[turn] * 8)
    assert events[-1].kind == "Error"
    assert (completion.status, completion.exit_code) == ("FAILED", 1)


def test_partial_messages_tell_each_text_once(cli_dir: Path, home: Path) -> None:
    events, completion, _ = Client("claude_code", cli_dir, home).run(
        ECHO, GOODBYE, args=("--include-partial-messages",)
    )
    texts = [event.text or "" for event in events if event.kind == "TextOutput"]
    assert len(texts) > 2
    assert "".join(texts) == ECHO.before + GOODBYE.text
    assert completion.final_text == GOODBYE.text


@pytest.mark.parametrize("prompt", ["--version", "-h", "doctor", "resume", "help"])
def test_a_prompt_that_looks_like_an_option_or_a_command_reaches_the_model(client: Client, prompt: str) -> None:
    async def case() -> AgentCompletion:
        request = request_for(client.kind, model, client.cli_dir, client.home)
        request.prompt = prompt
        return await backend_for(client.kind).run(request).completion()

    with model_for(client.kind, (GOODBYE,)) as model:
        assert asyncio.run(case()).final_text == GOODBYE.text
    assert f'"{prompt}"' in repr(model.requests[0]).replace("'", '"')


def test_cancel_ends_client_and_server_within_two_seconds(client: Client) -> None:
    async def case() -> None:
        run = client.start(model)
        async for event in run.events:
            if event.kind == "ToolResult":
                break
        await asyncio.to_thread(model.wait_for_requests, 2)
        assert len(client.processes()) >= 2
        start = time.monotonic()
        run.cancel()
        completion = await run.completion()
        assert time.monotonic() - start < 2
        assert completion.status == "CANCELLED"
        assert client.processes() == []

    with model_for(client.kind, (ECHO, Stall())) as model:
        asyncio.run(case())


def test_the_timeout_ends_a_client_whose_model_has_fallen_silent(client: Client) -> None:
    async def case() -> None:
        run = client.start(model, timeout_s=4)
        events = [event async for event in run.events]
        assert (events[-1].kind, events[-1].message) == ("Error", "timed out after 4 s")
        assert (await run.completion()).status == "TIMEOUT"
        assert client.processes() == []

    with model_for(client.kind, (Stall(),)) as model:
        asyncio.run(case())
