"""A scripted agent: it makes the mistakes real ones make, and reads what it is told about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

PAUSE_S = 0.7


class Tools:
    """One MCP server, started the way an agent client starts it."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.last_id = 0
        hello = {"name": "demo-agent", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": hello})

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.last_id += 1
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def say(text: str) -> None:
    print(text, flush=True)
    time.sleep(PAUSE_S)  # so that a person can follow


def attempt(tools: Tools, name: str, /, **arguments: Any) -> dict[str, Any] | None:
    """Call a tool; on refusal return what the refusal said, for the agent to act on."""
    reply = tools.request("tools/call", {"name": name, "arguments": arguments})
    error: dict[str, Any] | None = reply.get("error")
    say(f"  {name} -> {error['message'] if error else reply['result']['content'][0]['text']}")
    return error


def own_tool(line: str) -> None:
    """Bash, a tool of the agent's own: no server sees it. As Claude Code does, it asks its hook first."""
    call = {"tool_name": "Bash", "tool_input": {"command": line}, "tool_use_id": "toolu_demo", "cwd": os.getcwd()}
    asked = subprocess.run(
        ["/bin/sh", "-c", os.environ["DEMO_HOOK"]],
        input=json.dumps({"hook_event_name": "PreToolUse", **call}, separators=(",", ":")),
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode == 0 and not asked.stdout:
        say(f"  Bash -> {subprocess.run(line, shell=True, capture_output=True, text=True, check=False).stdout.strip()}")
        return
    output = json.loads(asked.stdout)["hookSpecificOutput"] if asked.stdout else {}
    say(f"  Bash -> {output.get('permissionDecisionReason', asked.stderr)}")


def main() -> None:
    tools = Tools(sys.argv[1:])
    say("I read the open tickets.")
    attempt(tools, "list_tickets")
    say("I file what I found, as urgent.")
    refused = attempt(tools, "create_ticket", title="Index is missing", priority="urgent")
    if refused:
        hint = refused["data"]["subluminal"]["hint"]
        say("Refused with a hint: I use the arguments it suggests.")
        attempt(tools, "create_ticket", **hint["suggested_args"])
    say("I clear the build directory with my own Bash, which no server sees.")
    own_tool("rm -rf build")
    say("I tidy up by deleting the old project.")
    attempt(tools, "delete_project", name="legacy")
    say("I check again. And again. And again...")
    for _ in range(5):
        if attempt(tools, "list_tickets", page=2):
            say("The run was stopped: I report what I have.")
            break
    tools.close()


main()
