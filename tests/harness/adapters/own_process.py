"""Servers that protect themselves, each as a process of its own on real pipes: the client's very bytes reach the host.

Run as a script it is such a server. It can run in another environment, with other versions of the hosts.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.adapters.interface import Adapter, Session, Setting
from harness.places import ROOT
from harness.shim import isolated_env, write_policy
from harness.sink import EventFile

# An environment of its own with mcp 1.x and fastmcp 2.x, where somebody has made one.
COMPAT_PYTHON = ROOT / ".venv" / "compat-mcp1" / "bin" / "python"


class OwnProcess(Adapter):
    transport = "in_process"

    def __init__(self, name: str, kind: str, python: str = sys.executable) -> None:
        self.name = name
        self._kind = kind
        self._python = python

    @contextmanager
    def start(self, setting: Setting) -> Iterator[Session]:
        from harness.adapters.stdio import agent_session, executed_file
        from harness.driver import Agent

        executed = executed_file(setting)
        events = EventFile(setting.place / "events.jsonl")
        spec = {
            "kind": self._kind,
            "name": setting.server_name,
            "policy": str(write_policy(setting.place, setting.policy)),
            "tools": setting.all_tools,
            "arguments": sorted(setting.arguments),
            "executed": str(executed),
        }
        surroundings = isolated_env(setting.place, SUB_EVENTS=events.argument, **setting.env)
        surroundings["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
        command = [self._python, "-W", "ignore", "-m", "harness.adapters.own_process", json.dumps(spec)]
        with agent_session(Agent(command, env=surroundings, cwd=setting.place), events, executed) as session:
            yield session


class WrittenList:
    """What was executed, for another process to read."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)

    def append(self, tool: str) -> None:
        os.write(self._fd, json.dumps({"tool": tool}).encode() + b"\n")


def fastmcp_of_mcp_1(name: str, tools: list[Callable[..., Any]]) -> Any:
    from mcp.server.fastmcp import FastMCP

    server = FastMCP(name, log_level="CRITICAL")
    for tool in tools:
        server.add_tool(tool)
    return server


def main(spec: dict[str, Any]) -> None:
    logging.disable(logging.CRITICAL)
    from harness.adapters.in_process import fastmcp_server, make_tool, mcp_server
    from subluminal.adapters.in_process import protect

    done: Any = WrittenList(spec["executed"])
    tools = [make_tool(tool, spec["arguments"], failure, done) for tool, failure in spec["tools"].items()]
    make = {"mcp": mcp_server, "fastmcp": fastmcp_server, "mcp 1.x": fastmcp_of_mcp_1}[spec["kind"]]
    server = make(spec["name"], tools)
    protect(server, policy=spec["policy"])
    server.run("stdio", **({"show_banner": False} if spec["kind"] == "fastmcp" else {}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
