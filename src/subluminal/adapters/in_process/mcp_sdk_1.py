"""Glue for mcp 1.x, and for fastmcp 2.x above it: the server's own handler of `tools/call`, wrapped.

mcp 1.x has no middleware. fastmcp 2.x has, but a refusal there loses its code and data, and calls that ask to run as a
task go round it; the handler below sees every call of the wire under the name the client used.
"""

from __future__ import annotations

from mcp.shared.exceptions import McpError  # type: ignore[attr-defined]  # its name before 2.0
from mcp.types import CallToolRequest, ErrorData, ListToolsRequest

from subluminal.adapters.in_process.calls import Calls
from subluminal.contracts.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def wrap_handlers(low_level: Any, calls: Calls) -> None:
    """`low_level` is the SDK's `Server`. Its tools must be registered: a handler set later would not be wrapped."""
    handlers = low_level.request_handlers
    inner = handlers.get(CallToolRequest)
    if inner is None:
        raise UsageError(
            "The server has no handler for tools/call yet, so there is nothing to protect.",
            hint="Call protect(server) after its tools are registered.",
        )
    handlers[CallToolRequest] = _judged(inner, low_level, calls)
    if ListToolsRequest in handlers:
        handlers[ListToolsRequest] = _learned(handlers[ListToolsRequest], calls)


def _judged(inner: Any, low_level: Any, calls: Calls) -> Any:
    async def handler(request: Any) -> Any:
        params = request.params
        meta = params.meta.model_dump(by_alias=True, exclude_none=True) if params.meta is not None else None
        call = await calls.begin(
            params.name,
            params.arguments,
            low_level.request_context.request_id,
            meta=meta,
            rest=None if meta is None else {"_meta": meta},
        )
        refusal = call.refusal
        if refusal is not None:
            raise McpError(ErrorData(code=refusal.code, message=refusal.message, data=refusal.data))
        try:
            result = await inner(request)
        except McpError as error:
            await calls.failed(call, error.error.message, error.error.code, error.error.data)
            raise
        except Exception as error:
            await calls.failed(call, str(error), 0)
            raise
        except BaseException:
            calls.cancelled(call)
            raise
        await calls.returned(call, result.model_dump(by_alias=True, mode="json", exclude_none=True))
        return result

    return handler


def _learned(inner: Any, calls: Calls) -> Any:
    async def handler(request: Any) -> Any:
        result = await inner(request)
        hides = calls.listed(result.model_dump(by_alias=True, mode="json", exclude_none=True))
        listed = getattr(result, "root", result)
        if any(hides(tool.name) for tool in listed.tools):
            listed.tools = [tool for tool in listed.tools if not hides(tool.name)]
        return result

    return handler
