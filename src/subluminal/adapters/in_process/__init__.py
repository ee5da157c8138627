"""Middleware for tool servers written in Python: the gate inside the server's own process.

    protect(server, policy="policy.yaml")                      any of the hosts below
    server.add_middleware(SubluminalMiddleware(policy=...))    fastmcp          from ...in_process.fast_mcp
    MCPServer(..., middleware=[SubluminalMiddleware(...)])     mcp 2.x          from ...in_process.mcp_sdk

`calls` knows what a call is and how it ends, without any of the hosts; `mcp_sdk`, `mcp_sdk_1` and `fast_mcp` are thin
glue, each importing its own host only. Hosts are optional extras, so nothing here is imported by the rest.
"""

from __future__ import annotations

from subluminal.adapters.in_process.protect import protect

__all__ = ["protect"]
