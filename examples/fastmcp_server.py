"""A tool server on fastmcp 4.x, protected in-process by fastmcp's own middleware.

python examples/fastmcp_server.py      speaks MCP on stdin and stdout; calls appear in `sub tail`
"""

from __future__ import annotations

import os

from fastmcp import FastMCP
from notes import TOOLS

from subluminal.adapters.in_process.fast_mcp import SubluminalMiddleware

POLICY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "policy.yaml")


def make_server() -> FastMCP:
    server: FastMCP = FastMCP("notes")
    for tool in TOOLS:
        server.tool(tool)
    server.add_middleware(SubluminalMiddleware(policy=POLICY))
    return server


if __name__ == "__main__":
    make_server().run(show_banner=False)
