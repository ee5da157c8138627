"""`sub collector`: the service that takes decisions of many machines, and its tokens."""

from __future__ import annotations

import click

from subluminal.cli.lazy import LazyGroup
from subluminal.cli.options import Table

COMMANDS: Table = {
    "serve": ("subluminal.cli.collector.serve", "serve_command", "Take segments and answer questions, until ended."),
    "token": ("subluminal.cli.collector.token", "token_command", "Make a token for a machine, or for who reads."),
}


@click.group("collector", cls=LazyGroup, table=COMMANDS)
def collector_group() -> None:
    """Take the decisions of many machines into ClickHouse or Postgres. Needs the extra `fleet`.

    \b
    Examples:
      sub collector token --tokens tokens.json --tenant acme --machine build-7
      sub collector serve --store clickhouse://ch.example:8123/sub --tokens tokens.json
    """
