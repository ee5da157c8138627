"""A small MCP tool server on stdio for the client tests. Tools: echo, fail (`isError`), refuse (a JSON-RPC
error), die (the server exits in the middle of the call), write (the only one that is not marked read-only)."""

from __future__ import annotations

import json
import sys
from typing import Any

READ_ONLY = {"readOnlyHint": True}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": name, "description": f"The {name} tool.", "inputSchema": SCHEMA, "annotations": READ_ONLY}
    for name in ("echo", "fail", "refuse", "die")
] + [{"name": "write", "description": "Not read-only.", "inputSchema": SCHEMA}]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = str(params.get("arguments", {}).get("text", ""))
        if params["name"] == "refuse":
            raise PermissionError("refused by the server")
        if params["name"] == "die":
            sys.exit(1)
        failed = params["name"] == "fail"
        return {"content": [{"type": "text", "text": f"{params['name']}: {text}"}], "isError": failed}
    return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = answer(message["method"], message.get("params", {}))
        except PermissionError as error:
            reply["error"] = {"code": -32081, "message": str(error), "data": {"why": "policy"}}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
