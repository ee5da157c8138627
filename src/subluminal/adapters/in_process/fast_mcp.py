"""Glue for fastmcp's own middleware: `server.add_middleware(SubluminalMiddleware(policy="policy.yaml"))`.

Add it first, on the root server: inside retry middleware a refused call would be judged once per attempt, and a mounted
server sees names without their prefix. `protect(server)` avoids both and records replies exactly as they go on the
wire; here a failing tool's reply is not made yet, so its size is not known.

With fastmcp 2.x a refusal raised here reaches the client as a result with `isError` and without code and data; there,
use `protect`.
"""

from __future__ import annotations

import mcp.shared.exceptions
from fastmcp.server.middleware import Middleware, MiddlewareContext

from subluminal.adapters.in_process.calls import Calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any

    from subluminal.mcp.refusal import Refusal


class SubluminalMiddleware(Middleware):
    """Policies and records call the server by its own name unless `server_name` gives another."""

    def __init__(
        self,
        policy: str | os.PathLike[str] | dict[str, Any] | None = None,
        *,
        server_name: str | None = None,
        events: str | None = None,
        client: str | None = None,
    ) -> None:
        self.calls = Calls(policy, server_name=server_name, events=events, client=client)

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        message = context.message
        self.calls.name_server(_server_name(context))
        call = await self.calls.begin(
            message.name, message.arguments, _request_id(context), rest=_continuation(message)
        )
        if call.refusal is not None:
            raise _error(call.refusal)
        try:
            result = await call_next(context)
        except Exception as error:
            await self.calls.failed(call, str(error))
            raise
        except BaseException:
            self.calls.cancelled(call)
            raise
        await self.calls.returned(call, _wire(result))
        return result

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        self.calls.name_server(_server_name(context))
        tools = await call_next(context)
        hides = self.calls.listed({"tools": [_listed(tool) for tool in tools]})
        left = [tool for tool in tools if not hides(tool.name)]
        return tools if len(left) == len(tools) else left

    def close(self) -> None:
        self.calls.close()


def _error(refusal: Refusal) -> Exception:
    if hasattr(mcp.shared.exceptions, "MCPError"):
        error: Exception = mcp.shared.exceptions.MCPError(refusal.code, refusal.message, refusal.data)
        return error
    from fastmcp.exceptions import ToolError

    return ToolError(refusal.message)


def _server_name(context: MiddlewareContext[Any]) -> str | None:
    host = context.fastmcp_context
    return None if host is None else str(host.fastmcp.name)


def _request_id(context: MiddlewareContext[Any]) -> Any:
    """None for a call that the server's own code makes."""
    try:
        return context.fastmcp_context.request_id  # type: ignore[union-attr]  # AttributeError without a context
    except Exception:
        return None


def _continuation(message: Any) -> dict[str, Any] | None:
    state = getattr(message, "request_state", None)
    responses = getattr(message, "input_responses", None)
    if state is None and responses is None:
        return None
    return {"requestState": state, "inputResponses": responses}


def _listed(tool: Any) -> Any:
    """As it goes on the wire, where the host can say so."""
    if hasattr(tool, "to_mcp_tool"):
        return _wire(tool.to_mcp_tool())
    return {
        "name": tool.name,
        "description": getattr(tool, "description", None),
        "annotations": _wire(tool.annotations),
    }


def _wire(result: Any) -> Any:
    """As the client will see it."""
    whole = result.to_mcp_result() if hasattr(result, "to_mcp_result") else result
    if hasattr(whole, "model_dump"):
        return whole.model_dump(by_alias=True, mode="json", exclude_none=True)
    if isinstance(whole, tuple):
        return {"content": [_wire(block) for block in whole[0]], "structuredContent": whole[1]}
    if isinstance(whole, list):
        return {"content": [_wire(block) for block in whole]}
    return whole
