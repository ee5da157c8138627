"""A small ticket tracker as an MCP server over stdio, with nothing but the standard library."""

from __future__ import annotations

import json
import sys
from typing import Any

TICKETS = [{"id": 1, "title": "Search is slow", "priority": "normal"}]


def call(name: str, arguments: dict[str, Any]) -> str:
    if name == "list_tickets":
        return json.dumps(TICKETS)
    if name == "create_ticket":
        ticket = {"id": len(TICKETS) + 1, **arguments}
        TICKETS.append(ticket)
        return f"created ticket {ticket['id']}"
    if name == "delete_project":
        return "everything is gone"
    raise KeyError(name)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        server = {"name": "tickets", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        names = ("list_tickets", "create_ticket", "delete_project")
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    if method == "tools/call":
        text = call(params["name"], params.get("arguments", {}))
        return {"content": [{"type": "text", "text": text}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
