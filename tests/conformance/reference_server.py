"""A server with everything that the scenarios of the conformance suite name, on the Python SDK, in every revision.

python -m conformance.reference_server            over HTTP; its URL is printed
python -m conformance.reference_server --stdio
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged
from mcp_types.methods import CACHEABLE_METHODS

Context = ServerRequestContext[Any, Any]
Result = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="  # one pixel
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="  # no sample
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
STATELESS = "2026-07-28"
RETRY_MS = 50


def text(words: str) -> Result:
    return {"type": "text", "text": words}


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}


def resource(uri: str, mime_type: str, words: str) -> Result:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


def form(**properties: Any) -> Result:
    return {"type": "object", "properties": properties, "required": list(properties)}


def says(*content: Result) -> Callable[[Context, Result], Awaitable[Result]]:
    async def tool(_context: Context, _arguments: Result) -> Result:
        return {"content": list(content)}

    return tool


# -- what a tool says or asks on its way -----------------------------------------------------------------------------


async def with_logging(context: Context, _arguments: Result) -> Result:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", words, related_request_id=context.request_id)
    return {"content": [text("logged")]}


async def with_progress(context: Context, _arguments: Result) -> Result:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
    return {"content": [text("progressed")]}


async def fails(_context: Context, _arguments: Result) -> Result:
    return {"isError": True, "content": [text("This tool intentionally returns an error for testing")]}


async def samples(context: Context, arguments: Result) -> Result:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=arguments["prompt"]))
    answer = await context.session.create_message([message], max_tokens=100, related_request_id=context.request_id)
    return {"content": [text(f"LLM response: {getattr(answer.content, 'text', '')}")]}


async def elicits(context: Context, message: str, schema: Result) -> types.ElicitResult:
    return await context.session.send_request(
        types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema)),
        types.ElicitResult,
        metadata=ServerMessageMetadata(related_request_id=context.request_id),
    )


async def elicits_user(context: Context, arguments: Result) -> Result:
    schema = form(
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    answer = await elicits(context, arguments["message"], schema)
    return {"content": [text(f"User response: action: {answer.action}, content: {json.dumps(answer.content)}")]}


def elicits_form(schema: Result) -> Callable[[Context, Result], Awaitable[Result]]:
    async def tool(context: Context, _arguments: Result) -> Result:
        answer = await elicits(context, "Please fill in the form", schema)
        return {"content": [text(f"Elicitation completed: action={answer.action}, content={answer.content}")]}

    return tool


DEFAULTS = form(
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
TITLED = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)]
OPTIONS = ["option1", "option2", "option3"]
ENUMS = form(
    untitledSingle={"type": "string", "enum": OPTIONS},
    titledSingle={"type": "string", "oneOf": TITLED},
    legacyEnum={
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti={"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    titledMulti={"type": "array", "items": {"anyOf": TITLED}},
)


async def reconnects(context: Context, _arguments: Result) -> Result:
    """Ends the stream of its own call: the reply is to be had on another."""
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    return {"content": [text("Reconnection test completed")]}


def changes(event: Any) -> Callable[[Context, Result], Awaitable[Result]]:
    async def tool(_context: Context, _arguments: Result) -> Result:
        await bus.publish(event)
        return {"content": [text("changed")]}

    return tool


# -- revision 2026-07-28: what a tool needs is its result ------------------------------------------------------------


def elicitation(message: str, name: str, kind: str = "string") -> Result:
    params = {"mode": "form", "message": message, "requestedSchema": form(**{name: {"type": kind}})}
    return {"method": "elicitation/create", "params": params}


def sampling(words: str, max_tokens: int) -> Result:
    params = {"messages": [{"role": "user", "content": text(words)}], "maxTokens": max_tokens}
    return {"method": "sampling/createMessage", "params": params}


ROOTS: Result = {"method": "roots/list", "params": {}}
NAME = elicitation("What is your name?", "name")
CAPITAL = sampling("What is the capital of France?", 100)


def responses(context: Context) -> Result:
    found = (context.params or {}).get("inputResponses")
    return found if isinstance(found, dict) else {}


def state(context: Context) -> str | None:
    found = (context.params or {}).get("requestState")
    return found if isinstance(found, str) else None


def needs(requests: Result, state: str | None = None) -> Result:
    return {"resultType": "input_required", "inputRequests": requests, **({"requestState": state} if state else {})}


def accepted(answer: Any, *names: str) -> bool:
    content = answer.get("content") if isinstance(answer, dict) else None
    return isinstance(content, dict) and answer.get("action") == "accept" and all(name in content for name in names)


def needs_all(requests: Result, done: str, state_made: str | None = None) -> Callable[..., Awaitable[Result]]:
    """Until every request in it is answered; what is elicited is looked at."""

    async def tool(context: Context, _arguments: Result) -> Result:
        given = responses(context)
        for key, request in requests.items():
            if key not in given:
                return needs(requests, state_made)
            if request["method"] == "elicitation/create":
                wanted = request["params"]["requestedSchema"]["required"]
                if not accepted(given[key], *wanted):
                    return needs(requests, state_made)
        if state_made is not None and state(context) != state_made:
            raise MCPError(types.INVALID_PARAMS, "the requestState is not the one that was given")
        name = given.get("user_name", {}).get("content", {}).get("name", "")
        return {"content": [text(done.format(name=name, given=json.dumps(given)))]}

    return tool


async def multi_round(context: Context, _arguments: Result) -> Result:
    given, round_state = responses(context), state(context)
    if round_state == "round-2" and "step2" in given:
        return {"content": [text("both steps are done")]}
    if round_state == "round-1" and "step1" in given:
        return needs({"step2": elicitation("Step 2: What is your favorite color?", "color")}, "round-2")
    return needs({"step1": elicitation("Step 1: What is your name?", "name")}, "round-1")


def declared(context: Context) -> Result:
    found = ((context.params or {}).get("_meta") or {}).get(CAPABILITIES)
    return found if isinstance(found, dict) else {}


async def by_capabilities(context: Context, _arguments: Result) -> Result:
    offers = {"elicitation": {"name": NAME}, "sampling": {"capital": CAPITAL}, "roots": {"roots": ROOTS}}
    requests = {k: v for capability in declared(context) for k, v in offers.get(capability, {}).items()}
    return needs(requests) if requests else {"content": [text("nothing to ask for")]}


async def needs_sampling(context: Context, _arguments: Result) -> Result:
    if "sampling" not in declared(context):
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", data)
    return {"content": [text("there is sampling")]}


async def progress_then_name(context: Context, arguments: Result) -> Result:
    await with_progress(context, arguments)
    return needs({"user_name": NAME})


# -- what there is ---------------------------------------------------------------------------------------------------

ADDRESS = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
SCHEMAS = {
    "json_schema_2020_12_tool": SCHEMA_2020_12,
    "test_sampling": form(prompt={"type": "string"}),
    "test_elicitation": form(message={"type": "string"}),
    "test_routed": form(region={"type": "string", "x-mcp-header": "Region"}),
}
MIXED = resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
EMBEDDED = resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
PREFIX = "test_input_required_result_"
TOOLS: dict[str, Callable[[Context, Result], Awaitable[Result]]] = {
    "test_simple_text": says(text("This is a simple text response for testing.")),
    "test_image_content": says(IMAGE),
    "test_audio_content": says({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    "test_embedded_resource": says(EMBEDDED),
    "test_multiple_content_types": says(text("Multiple content types test:"), IMAGE, MIXED),
    "test_tool_with_logging": with_logging,
    "test_tool_with_progress": with_progress,
    "test_error_handling": fails,
    "test_sampling": samples,
    "test_elicitation": elicits_user,
    "test_elicitation_sep1034_defaults": elicits_form(DEFAULTS),
    "test_elicitation_sep1330_enums": elicits_form(ENUMS),
    "test_reconnection": reconnects,
    "json_schema_2020_12_tool": says(text("valid")),
    "test_routed": says(text("routed")),
    "test_logging_tool": with_logging,
    "test_streaming_elicitation": progress_then_name,
    "test_missing_capability": needs_sampling,
    "test_trigger_tool_change": changes(ToolsListChanged()),
    "test_trigger_prompt_change": changes(PromptsListChanged()),
    f"{PREFIX}elicitation": needs_all({"user_name": NAME}, "Hello, {name}!"),
    f"{PREFIX}sampling": needs_all({"capital_question": CAPITAL}, "{given}"),
    f"{PREFIX}list_roots": needs_all({"client_roots": ROOTS}, "{given}"),
    f"{PREFIX}request_state": needs_all({"confirm": elicitation("Please confirm", "ok", "boolean")}, "state-ok", "s"),
    f"{PREFIX}multiple_inputs": needs_all(
        {"user_name": NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ROOTS}, "{given}", "m"
    ),
    f"{PREFIX}multi_round": multi_round,
    f"{PREFIX}tampered_state": needs_all({"confirm": elicitation("Please confirm", "ok", "boolean")}, "done", "t"),
    f"{PREFIX}capabilities": by_capabilities,
}
RESOURCES = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched."},
}
TEMPLATE = ("test://template/", "/data")
ARGUMENTS = {
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
}
PROMPTS: dict[str, Callable[[Result], list[Result]]] = {
    "test_simple_prompt": lambda a: [text("This is a simple prompt for testing.")],
    "test_prompt_with_arguments": lambda a: [
        text(f"Prompt with arguments: arg1='{a.get('arg1')}', arg2='{a.get('arg2')}'")
    ],
    "test_prompt_with_embedded_resource": lambda a: [
        resource(a.get("resourceUri", ""), "text/plain", "Embedded resource content for testing."),
        text("Please process the embedded resource above."),
    ],
    "test_prompt_with_image": lambda a: [IMAGE, text("Please analyze the image above.")],
    f"{PREFIX}prompt": lambda a: [text("A prompt with its context.")],
}
bus = InMemorySubscriptionBus()


async def list_tools(_context: Context, _params: Any) -> Result:
    empty = {"type": "object", "properties": {}}
    return {"tools": [{"name": n, "description": n, "inputSchema": SCHEMAS.get(n, empty)} for n in TOOLS]}


async def call_tool(context: Context, params: types.CallToolRequestParams) -> Result:
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name}")
    return await tool(context, params.arguments or {})


async def list_resources(_context: Context, _params: Any) -> Result:
    return {
        "resources": [
            {"uri": uri, "name": uri, "description": uri, "mimeType": found["mimeType"]}
            for uri, found in RESOURCES.items()
        ]
    }


async def list_templates(_context: Context, _params: Any) -> Result:
    template = {"uriTemplate": "{id}".join(TEMPLATE), "name": "template", "description": "By its id."}
    return {"resourceTemplates": [template]}


async def read_resource(_context: Context, params: types.ReadResourceRequestParams) -> Result:
    uri = str(params.uri)
    begin, end = TEMPLATE
    if uri.startswith(begin) and uri.endswith(end):
        number = uri[len(begin) : -len(end)]
        value = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(value)}]}
    if uri not in RESOURCES:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, **RESOURCES[uri]}]}


async def list_prompts(_context: Context, _params: Any) -> Result:
    def arguments(name: str) -> list[Result]:
        return [{"name": each, "description": each, "required": True} for each in ARGUMENTS.get(name, [])]

    return {"prompts": [{"name": name, "description": name, "arguments": arguments(name)} for name in PROMPTS]}


async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> Result:
    if params.name not in PROMPTS:
        raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name}")
    if params.name == f"{PREFIX}prompt" and "user_context" not in responses(context):
        return needs({"user_context": elicitation("What context should the prompt use?", "context")})
    return {"messages": [{"role": "user", "content": each} for each in PROMPTS[params.name](params.arguments or {})]}


async def completes(_context: Context, _params: Any) -> Result:
    return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}


async def nothing(_context: Context, _params: Any) -> Result:
    return {}


def complete(handler: Callable[[Context, Any], Awaitable[Result]]) -> Callable[[Context, Any], Awaitable[Any]]:
    """With what revision 2026-07-28 wants in a result, and older ones do not know."""

    async def handle(context: Context, params: Any) -> Result:
        result = await handler(context, params)
        if context.protocol_version < STATELESS:
            return result
        hints = {"ttlMs": 0, "cacheScope": "private"} if context.method in CACHEABLE_METHODS else {}
        return {"resultType": "complete", **hints, **result}

    return handle


def make_server() -> Server[Any]:
    server: Server[Any] = Server(
        "reference",
        version="1",
        get_tool_input_schema=lambda name: SCHEMAS.get(name),
        on_list_tools=complete(list_tools),
        on_call_tool=complete(call_tool),
        on_list_resources=complete(list_resources),
        on_list_resource_templates=complete(list_templates),
        on_read_resource=complete(read_resource),
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_subscriptions_listen=ListenHandler(bus),
        on_list_prompts=complete(list_prompts),
        on_get_prompt=complete(get_prompt),
        on_completion=complete(completes),
        on_set_logging_level=nothing,
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="reference"))
    return server


async def serve_stdio() -> None:
    server = make_server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_http() -> None:
    import uvicorn

    from harness.sdk_http_server import Kept

    app = make_server().streamable_http_app(event_store=Kept(), retry_interval=RETRY_MS)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0)).run([listener])


if __name__ == "__main__":
    if "--stdio" in sys.argv:
        asyncio.run(serve_stdio())
    else:
        serve_http()
