"""What happens to the real clients: the situations in which streams are recorded and the live tests are run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from clients import programs
from clients.models import ApiError, Die, MessagesServer, ModelServer, ResponsesServer, Stall, Text, ToolCall, Turn
from harness.processes import MARKER_VARIABLE
from subluminal.agents.base import Backend, RunRequest
from subluminal.agents.claude_code import ClaudeCode
from subluminal.agents.codex import Codex

BOX = programs.SERVER_NAME
ECHO = ToolCall("echo", {"text": "hello"}, server=BOX, before="I will ask the box.")
GOODBYE = Text("The box has answered. Goodbye.")


@dataclass(frozen=True)
class Scenario:
    name: str
    turns: tuple[Turn, ...]
    args: tuple[str, ...] = ()
    interrupt: bool = False  # end the client from outside while the model is silent
    clients: tuple[str, ...] = field(default=("claude_code", "codex"))


SCENARIOS = (
    Scenario("normal", (Text("Hello from the model, with é and 💖."),)),
    Scenario("tool_call", (ECHO, GOODBYE)),
    Scenario("denied_tool", (ToolCall("write", {"text": "x"}, server=BOX), GOODBYE)),
    Scenario("tool_error", (ToolCall("fail", {"text": "x"}, server=BOX), GOODBYE)),
    Scenario("refused_call", (ToolCall("refuse", {"text": "x"}, server=BOX), GOODBYE)),
    Scenario("server_died", (ToolCall("die", {}, server=BOX), GOODBYE)),
    Scenario("api_error", (ApiError(400, "invalid_request_error", "the prompt is too strange"),) * 3),
    Scenario("model_died", (Die(), Die(), Die(), Die(), Die(), Die())),
    Scenario("interrupted", (ECHO, Stall()), interrupt=True),
    Scenario("partial_messages", (ECHO, GOODBYE), args=("--include-partial-messages",), clients=("claude_code",)),
    Scenario("builtin_tool", (ToolCall("Bash", {"command": "echo hi; exit 3"}), GOODBYE), clients=("claude_code",)),
    Scenario("builtin_tool", (ToolCall("exec_command", {"cmd": "echo hi; exit 3"}), GOODBYE), clients=("codex",)),
)


def model_for(kind: str, turns: tuple[Turn, ...]) -> ModelServer:
    return MessagesServer(list(turns)) if kind == "claude_code" else ResponsesServer(list(turns))


def backend_for(kind: str) -> Backend:
    return ClaudeCode() if kind == "claude_code" else Codex()


def request_for(
    kind: str, model: ModelServer, cli_dir: Path, home: Path, args: tuple[str, ...] = (), timeout_s: float = 60
) -> RunRequest:
    """A run of the client in `home` with the echo server, answered by `model`."""
    if kind == "claude_code":
        env = programs.claude_env(model.url)
        options = [*programs.claude_mcp_args(allow=("echo", "fail", "refuse", "die")), *args]
    else:
        env = programs.codex_env()
        options = [*programs.codex_args(model.url), *programs.codex_mcp_args(env_vars=(MARKER_VARIABLE,)), *args]
    return RunRequest(
        "Ask the box.",
        program=str(cli_dir / backend_for(kind).program),
        args=options,
        env={**programs.base_env(home), **env},
        cwd=str(home / "project"),
        timeout_s=timeout_s,
    )
