"""`sub secrets adopt`: a literal secret moves from a client's file into a store.

Order matters: first the store, then the binding, and the client's file last. Whatever fails in between, the server
still gets its value, from one place or from both.
"""

from __future__ import annotations

import os
from typing import Any

import click

from subluminal.cli.render.output import note, print_json
from subluminal.cli.secrets.confirm import all_servers, records, tell_confirmed
from subluminal.clients.literals import looks_secret
from subluminal.clients.registry import CLIENTS, client_named
from subluminal.clients.server_env import ServerEnv, find_server_env, set_server_env
from subluminal.contracts.errors import ClientConfigError, SecretError, UsageError
from subluminal.core.redact.spellings import MIN_SECRET_BYTES
from subluminal.host.config_edit import read_config_text, with_binding, with_confirmed, write_config_text
from subluminal.host.files import read_private
from subluminal.host.home import backup_dir
from subluminal.host.secrets.bindings import PLACEHOLDER, Binding, check_secret_ref, placeholder
from subluminal.host.secrets.keystore import keychain_available, open_store
from subluminal.reports.printable import printable


@click.command("adopt")
@click.argument("server")
@click.argument("variable", metavar="ENVVAR")
@click.option("--client", metavar="CLIENT", help="Whose configuration (default: the one that sets it).")
@click.option("--scope", type=click.Choice(("user", "local", "project")), help="Only of this scope.")
@click.option("--ref", "secret_ref", metavar="NAME", help="Reference to store it under (default: the variable's name).")
@click.option("--source", type=click.Choice(("keychain", "file")), help="Where to keep it.")
@click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def adopt_command(
    server: str,
    variable: str,
    client: str | None,
    scope: str | None,
    secret_ref: str | None,
    source: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Move a literal secret out of a client's configuration.

    The value goes into a store, a binding into config.toml, and a harmless placeholder into the client's file. The
    server must be routed through Subluminal (`sub import`), or it will see the placeholder.

    \b
    Examples:
      sub secrets adopt github GITHUB_TOKEN --dry-run
      sub secrets adopt github GITHUB_TOKEN --client claude
    """
    client, found = _locate(client, server, variable, scope)
    value = _one_value(found, server, variable)
    ref = check_secret_ref(secret_ref or variable.lower())
    source = source or ("keychain" if keychain_available() else "file")
    store = open_store(source, os.environ)
    if store.get(ref) not in (None, value):
        hint = "Choose another reference with --ref NAME."
        raise SecretError(f"{source} already holds another value as {ref!r}", hint=hint)
    text = with_binding(read_config_text(os.environ), server, Binding(variable, ref, source))
    # The entries that hold the value now are those that shall go on getting it.
    holders = {place.path for place in found}
    confirmed = [known for known in all_servers(server) if known.path in holders and scope in (None, known.scope)]
    for known in confirmed:
        known.started.env.pop(variable, None)  # it is about to become a secret: not even its digest is kept
    text = with_confirmed(text, server, records(confirmed))
    report: dict[str, Any] = {
        "client": client,
        "server_name": server,
        "inject_as": variable,
        "secret_ref": ref,
        "source": source,
        "encrypted": None,
        "files": sorted({place.path for place in found}),
        "old_copies": copies_in_backups(value),
        "dry_run": dry_run,
    }
    if not dry_run:
        report["encrypted"] = store.put(ref, value).encrypted
        write_config_text(os.environ, text)
        report["files"] = set_server_env(client, server, variable, placeholder(ref), scope=scope, expected=value)
    if as_json:
        print_json(report)
    else:
        _tell(report)
        tell_confirmed(server, confirmed, dry_run)
        if not looks_secret(variable, value):
            note("  It does not look like a secret; that is for you to judge.")
    return 0


def copies_in_backups(value: str) -> list[str]:
    """Backups taken before the adoption still hold the literal; whoever adopts a secret should know."""
    needle = value.encode("utf-8", "surrogateescape")
    found = []
    for directory, _, names in os.walk(backup_dir()):
        for name in names:
            path = os.path.join(directory, name)
            try:
                if needle in read_private(path):
                    found.append(path)
            except OSError:
                continue
    return sorted(found)


def _locate(client: str | None, server: str, variable: str, scope: str | None) -> tuple[str, list[ServerEnv]]:
    names = [client_named(client).name] if client is not None else list(CLIENTS)
    found = {name: places for name in names if (places := find_server_env(name, server, variable, scope=scope))}
    if not found:
        where = CLIENTS[client].title if client is not None else "No client"
        raise ClientConfigError(
            f"{where} sets {'no ' if client is not None else ''}{variable} for a server called {server!r}",
            hint="`sub import` (without arguments) lists the servers that each client knows.",
        )
    if len(found) > 1:
        raise UsageError(f"{variable} of {server!r} is set by {', '.join(found)}", hint="Choose with --client.")
    return next(iter(found.items()))


def _one_value(found: list[ServerEnv], server: str, variable: str) -> str:
    values = {place.value for place in found if not place.value.startswith(PLACEHOLDER)}
    if not values:
        raise SecretError(f"{variable} of {server!r} was adopted before", hint="`sub secrets check` tests its binding.")
    if len(values) > 1:
        scopes = ", ".join(sorted({place.scope for place in found}))
        raise UsageError(f"{variable} of {server!r} has several values ({scopes})", hint="Choose one with --scope.")
    value = values.pop()
    if "${" in value or value.startswith("$"):
        hint = 'Bind the variable itself: source = "env" in config.toml (docs/secrets.md).'
        raise SecretError(f"{variable} of {server!r} refers to a variable; it is no literal secret", hint=hint)
    if len(value.encode("utf-8", "surrogateescape")) < MIN_SECRET_BYTES:
        raise SecretError(
            f"{variable} of {server!r} is shorter than {MIN_SECRET_BYTES} bytes: too short to be masked safely"
        )
    return value


def _tell(report: dict[str, Any]) -> None:
    would = "Would move" if report["dry_run"] else "Moved"
    origin = f"{report['inject_as']} of {printable(report['server_name'])}"
    note(f"{would} {origin} into {report['source']} as {report['secret_ref']}.")
    if report["encrypted"] is False:
        note("  It is NOT encrypted (no keychain here): only the file's permissions (0600) protect it.")
    for path in report["files"]:
        note(f"  {'Would leave' if report['dry_run'] else 'Left'} a placeholder in {printable(path)}")
    for path in report["old_copies"]:
        note(f"  An older backup still holds the value: {printable(path)}")
    if not report["dry_run"]:
        note("  Restart the client. If the value was ever shared or committed, replace it at its issuer.")
