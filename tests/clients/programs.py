"""The real agent CLIs: where they are installed, and how they are called so that they talk to nobody but loopback."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from harness import npm

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
INSTALL_DIR = CHECKOUT / ".venv" / "clients"
ECHO_SERVER = HERE / "echo_server.py"
SERVER_NAME = "box"


def install() -> Path:
    """The directory of `claude` and `codex`, installed from npm at the versions of package.json if need be."""
    npm.install(INSTALL_DIR, (HERE / "package.json").read_text())
    return INSTALL_DIR / "node_modules" / ".bin"


def base_env(home: Path) -> dict[str, str]:
    """A small environment of its own: nothing of the developer's settings, keys or proxies reaches the client."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "LANG": "C.UTF-8"}


def claude_env(model_url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        # Otherwise the first request goes out after 1.6 s without the tools of servers that are not ready by then.
        "MCP_CONNECTION_NONBLOCKING": "0",
        "MCP_CONNECT_TIMEOUT_MS": "30000",
    }


def claude_mcp_args(
    command: list[str] | None = None, *, allow: tuple[str, ...] = ("echo", "fail", "refuse")
) -> list[str]:
    """Options that give Claude Code one MCP server (by default the echo server) and let it use some of its tools."""
    program, *args = command or [sys.executable, str(ECHO_SERVER)]
    config = {"mcpServers": {SERVER_NAME: {"command": program, "args": args}}}
    allowed = [f"mcp__{SERVER_NAME}__{tool}" for tool in allow]
    return ["--strict-mcp-config", "--mcp-config", json.dumps(config), "--allowedTools", *allowed]


def codex_args(model_url: str) -> list[str]:
    """Options that make Codex ask the fake model; the provider's key comes from `codex_env`."""
    provider = {"name": "fake", "base_url": model_url, "wire_api": "responses", "env_key": "FAKE_MODEL_KEY"}
    limits = {"request_max_retries": 1, "stream_max_retries": 1, "stream_idle_timeout_ms": 30_000}
    return [
        "--skip-git-repo-check",
        *_setting("model_provider", '"fake"'),
        *_setting("model", '"gpt-5"'),
        *_setting("model_providers.fake", _toml_table({**provider, **limits})),
        *_setting("features.plugins", "false"),
        *_setting("analytics.enabled", "false"),
        *_setting("check_for_update_on_startup", "false"),
    ]


def codex_env() -> dict[str, str]:
    return {"FAKE_MODEL_KEY": "dummy"}


def codex_mcp_args(command: list[str] | None = None, *, env_vars: tuple[str, ...] = ()) -> list[str]:
    program, *args = command or [sys.executable, str(ECHO_SERVER)]
    server: dict[str, object] = {"command": program, "args": args, "env_vars": list(env_vars)}
    # A required server is waited for.
    server |= {"required": True, "startup_timeout_sec": 30}
    return _setting(f"mcp_servers.{SERVER_NAME}", _toml_table(server))


def _setting(name: str, value: str) -> list[str]:
    return ["-c", f"{name}={value}"]


def _toml_table(values: dict[str, object]) -> str:
    # JSON strings, numbers and arrays of strings are TOML as well.
    return "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items()) + "}"
