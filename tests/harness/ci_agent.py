"""An agent for headless runs, as a process of its own: starts its servers, makes its calls, says so, and ends.

    python ci_agent.py '{"servers": {"fs": [...]}, "calls": [["fs", "read", {}], ...], ...}'

    servers   name -> command (usually a shim around a fake server)
    calls     [server, tool, arguments] one after another; each answer becomes a line on stdout
    say       a line for stdout before anything else
    exit      exit code at the end, whatever was refused
    hold      path: create it when all calls are made, then wait for a signal
    after     path: append one line to it for each answer received (what the agent can rely on having been decided)

Standard library only; signals keep their default action.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any


def ci_agent(**spec: Any) -> list[str]:
    return [sys.executable, "-S", "-E", __file__, json.dumps(spec)]


def main(spec: dict[str, Any]) -> int:
    if "say" in spec:
        print(spec["say"], flush=True)
    servers = {
        name: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name, command in spec.get("servers", {}).items()
    }
    after = open(spec["after"], "a", encoding="utf-8") if "after" in spec else None
    for number, (server, tool, arguments) in enumerate(spec.get("calls", ()), 1):
        answer = ask(servers[server], number, tool, arguments)
        print(json.dumps({"tool": tool, "code": answer.get("error", {}).get("code")}), flush=True)
        if after is not None:
            after.write(f"{server} {tool} {number}\n")
            after.flush()
    if "hold" in spec:
        open(spec["hold"], "w").close()
        signal.pause()
    for process in servers.values():
        assert process.stdin is not None
        process.stdin.close()
    for process in servers.values():
        process.wait()
    return int(spec.get("exit", 0))


def ask(process: subprocess.Popen[bytes], number: int, tool: str, arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
