"""The smallest MCP tool server, for `sub doctor --self-test`: one tool, which answers with the server's process id."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOL = "pid"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "subluminal-self-test", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": TOOL, "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": str(os.getpid())}]}
    return {}


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
