"""An agent client that is scripted: `claude` and `codex` on the machine of a reader.

It starts the MCP servers of its configuration with their environments, as the real programs do, makes a few calls,
obeys a hint, and says what it did. With the flags of `sub agent run` it speaks as those programs do to a machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

CALLS = [
    ("git", "git_status", {"repo_path": "."}),
    ("tickets", "list_tickets", {}),
    ("tickets", "create_ticket", {"title": "Index is missing", "priority": "urgent"}),
    ("github", "create_issue", {"title": "Index is missing"}),
]


class Server:
    def __init__(self, entry: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [entry["command"], *entry.get("args", [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **entry.get("env", {})},
        )
        self._number = 0
        self.request(
            "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "x", "version": "1"}
        )
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.request("tools/list")

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        assert self._process.stdout is not None
        self._number += 1
        self._write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while True:
            reply: dict[str, Any] = json.loads(self._process.stdout.readline())
            if reply.get("id") == self._number:
                return reply

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(20)


def entries(name: str) -> dict[str, dict[str, Any]]:
    home, given = Path.home(), sys.argv[2:]
    if "--mcp-config" in given:
        return dict(json.loads(given[given.index("--mcp-config") + 1])["mcpServers"])
    tables = [word for flag, word in pairwise(given) if flag == "-c" and word.endswith("}")]
    if tables:
        return dict(tomllib.loads("\n".join(tables))["mcp_servers"])
    if name == "claude":
        return dict(json.loads((home / ".claude.json").read_text())["mcpServers"])
    return dict(tomllib.loads((home / ".codex" / "config.toml").read_text())["mcp_servers"])


def work(name: str, say: Any) -> None:
    servers = {server: Server(entry) for server, entry in entries(name).items()}
    for server, tool, arguments in CALLS:
        if server not in servers:
            continue
        reply = servers[server].request("tools/call", name=tool, arguments=arguments)
        refused = reply.get("error")
        say(f"{server}/{tool}: {refused['message'] if refused else 'done'}")
        hint = ((refused or {}).get("data") or {}).get("subluminal", {}).get("hint") or {}
        if hint.get("suggested_args"):
            servers[server].request("tools/call", name=tool, arguments=hint["suggested_args"])
            say(f"{server}/{tool}: done as the hint says")
    if "--wait" in sys.argv:
        signal.pause()
    for each in servers.values():
        each.close()


def main(name: str, arguments: list[str]) -> int:
    if "--version" in arguments:
        print("2.1.0 (Claude Code)" if name == "claude" else "codex-cli 0.50.0")
        return 0
    if arguments[:2] == ["mcp", "add"]:
        return 0
    if "stream-json" in arguments:
        print(json.dumps({"type": "system", "subtype": "init", "session_id": "s"}), flush=True)
        content = [{"type": "text", "text": "It is done."}]
        print(json.dumps({"type": "assistant", "message": {"content": content}}), flush=True)
        print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "It is done."}))
        return 0
    if name == "codex" and "--json" in arguments:
        print(json.dumps({"type": "thread.started", "thread_id": "t"}), flush=True)
        item = {"id": "item_0", "type": "agent_message", "text": "It is done."}
        print(json.dumps({"type": "item.completed", "item": item}), flush=True)
        print(json.dumps({"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}}))
        return 0
    work(name, print)
    return 0


sys.exit(main(sys.argv[1], sys.argv[2:]))
