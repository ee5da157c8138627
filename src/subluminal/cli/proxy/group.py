"""`sub proxy`: doors that listen on an address."""

from __future__ import annotations

import click

from subluminal.cli.lazy import LazyGroup
from subluminal.cli.options import Table

COMMANDS: Table = {
    "http": ("subluminal.cli.proxy.http", "http_command", "A plain HTTP API, its operations governed as tools."),
    "mcp": ("subluminal.cli.proxy.mcp", "mcp_command", "MCP over HTTP: in front of a URL or of a command."),
    "messages": ("subluminal.cli.proxy.messages", "messages_command", "The API of a model: its tool calls are judged."),
}


@click.group("proxy", cls=LazyGroup, table=COMMANDS)
def proxy_group() -> None:
    """Stand between clients and servers on an address of its own.

    \b
    Examples:
      sub proxy mcp --server-name docs --url https://docs.example/mcp
      sub proxy mcp --server-name files -- npx server-filesystem /srv
      sub proxy http --config tracker.yaml
      sub proxy messages --upstream https://api.anthropic.com
    """
