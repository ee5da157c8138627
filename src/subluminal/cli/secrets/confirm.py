"""`sub secrets confirm`: say which command line may have a server's secrets."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from subluminal.cli.render.output import note, print_json
from subluminal.clients.base import Place
from subluminal.clients.configured import PROJECT, Configured
from subluminal.clients.literals import looks_secret
from subluminal.clients.registry import client_named
from subluminal.clients.survey import configured_servers
from subluminal.contracts.errors import SecretError, UsageError
from subluminal.host.config import load_config
from subluminal.host.config_edit import read_config_text, with_confirmed, write_config_text
from subluminal.host.secrets.addresses import address_of
from subluminal.host.secrets.bindings import is_variable_name
from subluminal.host.secrets.confirmation import Reached, Started, confirm_words, reaching
from subluminal.reports.printable import printable


@click.command("confirm")
@click.argument("server")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND ARGS...]")
@click.option("--client", metavar="CLIENT", help="Only as this client is configured.")
@click.option(
    "--scope",
    type=click.Choice(("user", "local", "managed", "project")),
    help="Only of this scope (default: all but project).",
)
@click.option("--url", metavar="URL", help="A server behind this URL, in place of a command.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", help="With COMMAND or --url: a variable of its entry."
)
@click.option("--dry-run", is_flag=True, help="Show what would be confirmed; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def confirm_command(
    server: str,
    command: tuple[str, ...],
    client: str | None,
    scope: str | None,
    url: str | None,
    variables: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Confirm the command line, or the URL, that may have a server's secrets.

    Anybody who writes a client's configuration can call a server as you call yours. So the shim gives a server its
    secrets only if it is started by a command line, or reached at an address, that you have confirmed. Binding a secret
    confirms the servers of that name in your own configuration; a repository's has to be asked for. Look before you
    confirm: --dry-run.

    \b
    Examples:
      sub secrets confirm github --dry-run           what would be confirmed
      sub secrets confirm github                     as your clients are configured to start it
      sub secrets confirm github --scope project     as this repository starts it
      sub secrets confirm github -- npx -y gh        a server that no client here knows of
      sub secrets confirm docs --url https://mcp.example/mcp
    """
    if (command or url is not None) and (client is not None or scope is not None or (command and url is not None)):
        raise UsageError("name a command or a URL, or choose by --client and --scope; not both")
    if url is not None:
        found = [_reached(server, url, variables)]
    elif command:
        found = [Configured("", "", "", list(command), _started(server, list(command), variables))]
    elif variables:
        raise UsageError("--env belongs to a command", hint=f"For example: {confirm_words(server, '--', 'npx', 'gh')}")
    else:
        found = _chosen(server, client, scope)
    text = with_confirmed(read_config_text(os.environ), server, records(found))
    if not dry_run:
        write_config_text(os.environ, text)
    if as_json:
        rows = [{**row._asdict(), "started": row.started.record()} for row in found]
        print_json({"server_name": server, "confirmed": rows, "dry_run": dry_run})
        return 0
    tell_confirmed(server, found, dry_run)
    if not load_config(os.environ).server(server).secret_bindings:
        note(f"  No secret is bound to it yet: sub secrets add NAME --bind {printable(shlex.quote(server))}:VARIABLE")
    elif not dry_run:
        note("  Restart the client to use it.")
    return 0


def own_servers(server: str) -> list[Configured]:
    """What the user's own configuration starts under this name. A repository's is never taken for it."""
    return [found for found in all_servers(server) if found.scope != PROJECT]


def records(found: list[Configured]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for server in found:
        if (record := server.started.record()) not in kept:
            kept.append(record)
    return kept


def tell_confirmed(server: str, found: list[Configured], dry_run: bool) -> None:
    if not found:
        note(f"  No client of yours starts {printable(server)} yet. It gets its secrets once you have confirmed it:")
        note(f"    {printable(confirm_words(server))}")
    for one in found:
        words = _shown(one.command)
        note(f"  {'Would confirm' if dry_run else 'Confirmed'} {printable(server)} as: {printable(words)}")
        if one.path:
            note(f"    from {printable(one.path)} ({one.scope})")
        if one.started.directory is not None:
            note(f"    in {printable(one.started.directory)} only: it names a file by a relative path")
        if one.started.command != one.command:
            note(f"    which is {printable(one.started.command[0])} here")
        if variables := one.started.own_variables({}):
            note(f"    with these variables as they are: {printable(', '.join(variables))}")


def _shown(command: list[str]) -> str:
    return shlex.join("********" if looks_secret("", word) else word for word in command)


def all_servers(server: str) -> list[Configured]:
    return list(configured_servers(server, load_config(os.environ), Place()))


def _chosen(server: str, client: str | None, scope: str | None) -> list[Configured]:
    wanted = None if client is None else client_named(client).name
    known = [found for found in all_servers(server) if wanted in (None, found.client)]
    chosen = [found for found in known if (found.scope != PROJECT if scope is None else found.scope == scope)]
    if chosen:
        return chosen
    if known and scope is None:
        raise SecretError(
            f"{server} is started by this repository only: {known[0].path}: {_shown(known[0].command)}",
            hint=f"If you trust that command with your secrets: {confirm_words(server, '--scope', PROJECT)}",
        )
    raise SecretError(
        f"no client here starts a server called {server!r}" + (f" in scope {scope}" if scope else ""),
        hint=f"Give the command itself: {confirm_words(server, '--')} COMMAND ARGS..., or its address: --url URL",
    )


def _reached(server: str, url: str, variables: tuple[str, ...]) -> Configured:
    entry = _variables(variables)
    config = load_config(os.environ)
    seen = reaching({**os.environ, **entry}, config.server(server), config)
    started = Reached(address_of(os.environ, url, None), seen, entry)
    return Configured("", "", "", started.command, started)


def _started(server: str, command: list[str], variables: tuple[str, ...]) -> Started:
    entry = _variables(variables)
    config = load_config(os.environ)
    return Started(command, reaching({**os.environ, **entry}, config.server(server), config), os.getcwd(), entry)


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    entry = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not is_variable_name(name):
            raise UsageError(f"--env {name!r} is not NAME=VALUE")
        entry[name] = value
    return entry
