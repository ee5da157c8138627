"""Glue for the official SDK, mcp 2.x: server middleware `(ctx, call_next)`.

The SDK calls this signature provisional, so nothing but the translation stands here. Every inbound message passes; only
`tools/call` with a request id is a call (the SDK has no handler for one without). Results come back as they go on the
wire, errors as exceptions, which are recorded with the code that the SDK will give them.
"""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from subluminal.adapters.in_process.calls import Calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any

    from subluminal.adapters.in_process.calls import Call
    from subluminal.mcp.refusal import Refusal

INVALID_PARAMS = -32602


class SubluminalMiddleware:
    """`server_name` is what policies and records call this server. It is not asked of the client."""

    def __init__(
        self,
        server_name: str,
        policy: str | os.PathLike[str] | dict[str, Any] | None = None,
        *,
        events: str | None = None,
        client: str | None = None,
    ) -> None:
        self.calls = Calls(policy, server_name=server_name, events=events, client=client)

    async def __call__(self, ctx: Any, call_next: Any) -> Any:
        if ctx.method != "tools/call" or ctx.request_id is None:
            result = await call_next(ctx)
            if ctx.method == "tools/list" and isinstance(result, dict) and isinstance(result.get("tools"), list):
                hides = self.calls.listed(result)
                left_out = [tool for tool in result["tools"] if isinstance(tool, dict) and hides(str(tool.get("name")))]
                if left_out:
                    return {**result, "tools": [tool for tool in result["tools"] if tool not in left_out]}
            return result
        params = ctx.params
        name = params.get("name") if params is not None else None
        if not isinstance(name, str):
            return await call_next(ctx)  # no tool is named: the SDK refuses it, whatever else it says
        arguments, meta, rest = params.get("arguments"), params.get("_meta"), None
        if len(params) > 2 or arguments is None:
            rest = {key: value for key, value in params.items() if key not in ("name", "arguments")}
        if not isinstance(meta, dict):
            meta = None
        call = await self.calls.begin(name, arguments, ctx.request_id, meta=meta, rest=rest)
        if call.refusal is not None:
            return _refused(call.refusal)
        try:
            result = await call_next(ctx)
        except Exception as error:
            await self._failed(call, error)
            raise
        except BaseException:
            self.calls.cancelled(call)
            raise
        await self.calls.returned(call, result)
        return result

    def close(self) -> None:
        self.calls.close()

    async def _failed(self, call: Call, error: Exception) -> None:
        """As the SDK's dispatcher translates it."""
        if isinstance(error, MCPError):
            await self.calls.failed(call, error.error.message, error.error.code, error.error.data)
        elif isinstance(error, ValidationError):
            await self.calls.failed(call, "Invalid request parameters", INVALID_PARAMS, "")
        else:
            await self.calls.failed(call, str(error), 0)


def _refused(refusal: Refusal) -> dict[str, Any]:
    if not refusal.as_result:
        raise MCPError(refusal.code, refusal.message, refusal.data)
    return refusal.result()
