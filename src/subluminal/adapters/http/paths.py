"""Where servers are found at this door, and which headers belong to a message of MCP."""

from __future__ import annotations

from urllib.parse import quote

# Where readers differ in which of two they take, a second one is a fault.
OF_MESSAGE = (b"mcp-session-id", b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"last-event-id")
# Of revision 2026-07-28: arguments that a tool wants to see in headers as well.
PARAMETERS = b"mcp-param-"
# Where the messages of a stream of revision 2024-11-05 go, below a server's path.
MESSAGES = b"/messages/"


def own_path(name: str) -> bytes:
    """Where a server is found, whatever stands before it in the public URL: some who forward requests strip that."""
    return b"/mcp/" + quote(name, safe="").encode()
