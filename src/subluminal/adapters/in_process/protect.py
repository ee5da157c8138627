"""`protect(server, policy="policy.yaml")`: one line for any server, whichever host it is written for.

It goes as close to the wire as the host lets it: what is judged and recorded is what the client sent and will get,
under the names the client uses, outside the host's own middleware.
"""

from __future__ import annotations

from subluminal.contracts.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any

    from subluminal.adapters.in_process.calls import Calls


def protect(
    server: Any,
    policy: str | os.PathLike[str] | dict[str, Any] | None = None,
    *,
    server_name: str | None = None,
    events: str | None = None,
    client: str | None = None,
) -> Calls:
    """Judge every tool call of this server. Returns its calls; `close()` ends the run before the process does.

    `server` is a `Server` or `MCPServer` of mcp 2.x, a `Server` or `FastMCP` of mcp 1.x, or a `FastMCP` of fastmcp.
    `policy`: a path, a compiled snapshot, or None for the policies that a shim would find here.
    """
    low_level = _low_level(server)
    name = server_name or getattr(server, "name", None) or getattr(low_level, "name", None)
    if not isinstance(name, str):
        raise UsageError("The server has no name.", hint='Say protect(server, server_name="...").')
    if isinstance(getattr(low_level, "middleware", None), list):
        from subluminal.adapters.in_process.mcp_sdk import SubluminalMiddleware

        middleware = SubluminalMiddleware(name, policy, events=events, client=client)
        low_level.middleware.append(middleware)
        return middleware.calls
    if isinstance(getattr(low_level, "request_handlers", None), dict):
        from subluminal.adapters.in_process.calls import Calls
        from subluminal.adapters.in_process.mcp_sdk_1 import wrap_handlers

        calls = Calls(policy, server_name=name, events=events, client=client)
        wrap_handlers(low_level, calls)
        return calls
    raise UsageError(
        f"A {type(server).__name__} is not a server that can be protected in-process.",
        hint="Servers of mcp and fastmcp can; put any other behind `sub shim`.",
    )


def _low_level(server: Any) -> Any:
    """The SDK's own server inside those of MCPServer (mcp 2.x) and FastMCP (mcp 1.x, fastmcp)."""
    for name in ("_lowlevel_server", "_mcp_server"):
        inner = getattr(server, name, None)
        if inner is not None:
            return inner
    return server
