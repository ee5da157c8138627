"""opencode: `opencode.json` or `.jsonc`; an entry's command is one array that holds the program and its arguments.

Its first version keeps servers in `mcp`, its second one in `mcp.servers`.
"""

from __future__ import annotations

from collections.abc import Iterator

from subluminal.clients.base import Client, ConfigFile, Place, Servers, reach
from subluminal.clients.document import Document
from subluminal.clients.spans import Node

_NAMES = ("opencode.json", "opencode.jsonc")


def _files(place: Place) -> list[ConfigFile]:
    named = place.environ.get("OPENCODE_CONFIG")
    return [
        *(ConfigFile(place.in_config("opencode", name), "user") for name in _NAMES),
        *([ConfigFile(named, "user")] if named else []),
        *(ConfigFile(path, "project") for name in _NAMES for path in place.in_project(name)),
    ]


def _tables(document: Document, scope: str) -> Iterator[Servers]:
    for table in reach(document.root, ("mcp",)):
        inner = [member for member in table.members if member.key == "servers" and _holds_servers(member.node)]
        for member in inner:
            yield Servers(scope, ("mcp", "servers"), member.node)
        others = [m for m in table.members if m not in inner and (not inner or m.node.kind == "table")]
        yield Servers(scope, ("mcp",), Node("table", table.start, table.end, members=others))


def _holds_servers(node: Node) -> bool:
    """A server that is called "servers" has a type, which is text."""
    return node.kind == "table" and all(member.node.kind == "table" for member in node.members)


OPENCODE = Client(
    "opencode",
    "opencode",
    _files,
    (("mcp",),),
    tables=_tables,
    env_key="environment",
    array_command=True,
    stdio="local",
)
