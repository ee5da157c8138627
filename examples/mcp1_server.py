"""A tool server on mcp 1.x, protected in-process. fastmcp 2.x and 3.x: the same call, `protect(server)`, at the end.

python examples/mcp1_server.py         speaks MCP on stdin and stdout; calls appear in `sub tail`
"""

from __future__ import annotations

import os

from mcp.server.fastmcp import FastMCP
from notes import TOOLS

from subluminal.adapters.in_process import protect

POLICY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "policy.yaml")


def make_server() -> FastMCP:
    server = FastMCP("notes")
    for tool in TOOLS:
        server.add_tool(tool)
    protect(server, policy=POLICY)  # after the tools are registered
    return server


if __name__ == "__main__":
    make_server().run("stdio")
