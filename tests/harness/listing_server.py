"""A tool server over stdio that says what a file tells it to say: for what servers say of their tools.

    server = ListingServer(tmp_path, [tool("read", "Reads.")])     one list, for ever
    server.says([...], [...])          the first list, the second, ...; the last stands
    server.argv                        how it is started

The file is JSON, read at each request: lists, by_client {client name: list}, after_calls [n, list], pages (one tool a
page, and the last page's cursor leads to the first), instructions, version, prompts, templates, spaced (white space as
Python's `json.dumps` writes it), pad_bytes (so many of them in the description of the first tool), many (so many tools
like the first).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def tool(name: str, description: str = "Does it.", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


class ListingServer:
    def __init__(self, directory: Path, *lists: list[dict[str, Any]], name: str = "listing", **more: Any) -> None:
        self.path = directory / f"{name}.json"
        self.says(*lists, **more)

    def says(self, *lists: list[dict[str, Any]], **more: Any) -> None:
        self.path.write_text(json.dumps({"lists": lists, **more}), encoding="utf-8")

    @property
    def argv(self) -> list[str]:
        return [sys.executable, str(Path(__file__).resolve()), str(self.path)]


class _Serving:
    def __init__(self, path: str) -> None:
        self.path = path
        self.lists = self.calls = 0
        self.client = ""

    def answer(self, message: dict[str, Any]) -> Any:
        with open(self.path, encoding="utf-8") as file:
            script = json.load(file)
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            self.client = params.get("clientInfo", {}).get("name", "")
            result = {
                "protocolVersion": params.get("protocolVersion", "2025-06-18"),
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "listing", "version": script.get("version", "1")},
            }
            return {**result, **({"instructions": script["instructions"]} if "instructions" in script else {})}
        if method == "tools/list":
            return self._list(script, params.get("cursor"))
        if method == "prompts/list":
            return {"prompts": script.get("prompts", [])}
        if method == "resources/templates/list":
            return {"resourceTemplates": script.get("templates", [])}
        if method == "tools/call":
            self.calls += 1
            return {"content": [{"type": "text", "text": f"did {params['name']}"}]}
        return {}

    def _list(self, script: dict[str, Any], cursor: str | None) -> dict[str, Any]:
        lists = script["lists"]
        tools = script.get("by_client", {}).get(self.client) or lists[min(self.lists, len(lists) - 1)]
        if self.calls >= script.get("after_calls", [1 << 30, []])[0]:
            tools = script["after_calls"][1]
        if script.get("pad_bytes"):
            tools = [{**tools[0], "description": "x" * script["pad_bytes"]}, *tools[1:]]
        if script.get("many"):
            tools = [{**tools[0], "name": f"{tools[0]['name']}{number}"} for number in range(script["many"])]
        if script.get("pages"):
            number = int(cursor or 0)
            return {"tools": [tools[number]], "nextCursor": str((number + 1) % len(tools))}
        self.lists += 1
        return {"tools": tools}

    def run(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "id" not in message:
                continue
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": self.answer(message)}
            with open(self.path, encoding="utf-8") as file:
                spaced = json.load(file).get("spaced")
            print(json.dumps(reply, separators=None if spaced else (",", ":")), flush=True)


if __name__ == "__main__":
    _Serving(sys.argv[1]).run()
