"""A tool server that has a secret in LEAKY_TOKEN and gives it away in every way a careless one could.

Standard library only, and no import from the harness: it runs as `python leaky_server.py`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import sys
from typing import Any
from urllib.parse import quote, quote_plus


def leaky_server() -> list[str]:
    return [sys.executable, "-S", "-E", __file__]


def spellings(secret: str) -> list[str]:
    """The value as other programs write it."""
    data = secret.encode()
    once = json.dumps(secret)
    units = secret.encode("utf-16-be")
    return [
        secret,
        once,
        json.dumps(once),
        json.dumps(secret, ensure_ascii=False),
        "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)),
        quote(secret, safe=""),
        quote_plus(secret),
        quote(once, safe=""),
        html.escape(secret),
        data.hex(),
        data.hex().upper(),
        *(base64.b64encode(b"x" * offset + data).decode() for offset in range(3)),
        *(base64.urlsafe_b64encode(b"x" * offset + data).decode() for offset in range(3)),
    ]


def outcome(tool: str, secret: str) -> dict[str, Any]:
    everything = " | ".join(spellings(secret))
    if tool == "digest":
        return {"result": text(hashlib.sha256(secret.encode()).hexdigest())}
    if tool == "names":
        return {"result": text(json.dumps(sorted(os.environ)))}
    if tool == "leak":
        return {"result": text(everything)}
    if tool == "leak_structured":
        return {"result": {**text("see structuredContent"), "structuredContent": {secret: [everything]}}}
    if tool == "leak_far":
        return {"result": text("x" * 16_300 + everything)}
    if tool == "leak_large":
        return {"result": text("x" * 2_000_000 + everything)}
    if tool == "fail":
        return {"error": {"code": -32000, "message": f"401 for {secret}", "data": {"header": f"Bearer {secret}"}}}
    if tool == "fail_softly":
        return {"result": {**text(f"bad token {everything}"), "isError": True}}
    return {"result": text("ok")}


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def main() -> None:
    secret = os.environ.get("LEAKY_TOKEN", "")
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            answer: dict[str, Any] = {
                "result": {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "leaky", "version": "1"},
                }
            }
        elif method == "tools/call":
            if message["params"]["name"] == "crash":
                os.abort()
            answer = outcome(message["params"]["name"], secret)
        else:
            answer = {"result": {}}
        if "id" in message:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
