"""Tools of a request that the provider would run itself, and the request without some of them.

Tools that a client carries out are of no concern here: their calls are judged when the model makes them.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from subluminal.contracts.canonical import parse
from subluminal.contracts.errors import CanonicalError
from subluminal.contracts.members import MAX_TOOLS, Edit, Span, elements_at, members_at, taken_out, text_of
from subluminal.model.texts import texts_in
from subluminal.model.words import ModelFault, Offered

_CLIENT_RUN = frozenset(
    ("function", "custom", "local_shell", "apply_patch", "computer", "computer_use", "computer_use_preview")
)
_IN_NAMESPACES = frozenset(("function", "custom"))
_MCP = "mcp"
_UNTYPED = "(untyped)"
_READ = frozenset(("type", "name", "server_label", "server_url", "connector_id", "tools", "environment", "execution"))
# Of a connector's definition. In whatever else it has there may be a key.
_OPEN_WORDS = frozenset((
    "type", "server_label", "server_url", "server_description", "connector_id", "tunnel_id",
    "require_approval", "allowed_tools", "allowed_callers", "defer_loading",
))  # fmt: skip


class Tools(Struct, eq=False):
    """One array of definitions inside a request: those of the provider, with their places among all."""

    spans: list[Span]
    offered: list[tuple[int, Offered]]

    def without(self, refused: list[Offered]) -> list[Edit]:
        known = set(map(id, refused))
        taken = {i for i, offered in self.offered if id(offered) in known}
        return taken_out(self.spans, taken)


def read_tools(body: bytes, span: Span) -> Tools:
    spans = elements_at(body, span, MAX_TOOLS)
    offered = []
    for i, definition in enumerate(spans):
        found = _read(body, definition)
        if found is not None:
            offered.append((i, found))
    return Tools(spans, offered)


def _read(body: bytes, span: Span) -> Offered | None:
    at = members_at(body, span, _READ)
    kind = _said(body, at, "type") or _UNTYPED
    if kind in _CLIENT_RUN:
        return None
    text = span.of(body)
    try:
        definition = parse(text)
    except CanonicalError as fault:
        raise ModelFault(f"a tool's definition: {fault.kind}") from None
    if _is_clients(kind, definition):
        return None
    server = _said(body, at, "server_label") if kind == _MCP else ""
    return Offered(kind, "" if server else kind, text, server, _secrets(kind, definition))


def _said(body: bytes, at: dict[str, Span], key: str) -> str:
    span = at.get(key)
    return (text_of(span.of(body)) or "") if span else ""


def _is_clients(kind: str, definition: dict[str, Any]) -> bool:
    if kind == "namespace":
        inner = definition.get("tools")
        return isinstance(inner, list) and all(
            isinstance(tool, dict) and tool.get("type") in _IN_NAMESPACES for tool in inner
        )
    if kind == "shell":  # the provider has containers for it, too
        environment = definition.get("environment")
        return environment is None or (isinstance(environment, dict) and environment.get("type") == "local")
    if kind == "tool_search":
        return definition.get("execution") == "client"
    return False


def _secrets(kind: str, definition: dict[str, Any]) -> list[str]:
    """What a definition hands to the provider so that it can log in elsewhere."""
    if kind == _MCP:
        return [text for key, value in definition.items() if key not in _OPEN_WORDS for text in texts_in(value)]
    found: list[str] = []
    left: list[Any] = [definition]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            for key, inner in value.items():
                if key in ("authorization", "headers"):
                    found += texts_in(inner)
                elif key == "domain_secrets" and isinstance(inner, list):
                    found += [text for each in inner if isinstance(each, dict) for text in texts_in(each.get("value"))]
                else:
                    left.append(inner)
    return found


def chosen_again(body: bytes, choice: Span, refused: list[Offered]) -> list[Edit]:
    """A request that demands a tool which is taken out would be refused by the provider: the model chooses instead."""
    raw = choice.of(body)
    if raw[:1] != b"{":
        return []
    at = members_at(body, choice, _READ)
    kind, server = _said(body, at, "type"), _said(body, at, "server_label")
    if any(offered.kind == kind and (kind != _MCP or offered.server == server) for offered in refused):
        return [Edit(choice.start, choice.end, b'"auto"')]
    return []
