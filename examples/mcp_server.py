"""A tool server on the official SDK (mcp 2.x), protected in-process.

python examples/mcp_server.py          speaks MCP on stdin and stdout; calls appear in `sub tail`
"""

from __future__ import annotations

import os

from mcp.server.mcpserver import MCPServer
from notes import TOOLS

from subluminal.adapters.in_process import protect

POLICY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "policy.yaml")


def make_server() -> MCPServer:
    server = MCPServer("notes")
    for tool in TOOLS:
        server.add_tool(tool)
    protect(server, policy=POLICY)
    return server


if __name__ == "__main__":
    make_server().run("stdio")
