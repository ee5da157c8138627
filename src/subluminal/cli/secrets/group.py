"""`sub secrets`: store values, bind them to servers, and move them out of clients' files.

A value comes from a prompt or from stdin, never from the command line, where every process of the machine can read it.
No command prints a value, except `get --reveal` on a terminal.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from subluminal.cli.render.output import note, paint, print_json, table
from subluminal.cli.render.rows import print_json_rows
from subluminal.cli.secrets.adopt import adopt_command
from subluminal.cli.secrets.confirm import confirm_command, own_servers, records, tell_confirmed
from subluminal.clients.configured import Configured
from subluminal.contracts.errors import SecretError, UsageError
from subluminal.contracts.moments import rfc3339
from subluminal.core.redact.spellings import MIN_SECRET_BYTES
from subluminal.host.config import Config, load_config
from subluminal.host.config_edit import read_config_text, with_binding, with_confirmed, write_config_text
from subluminal.host.secrets.bindings import (
    HEADER_PREFIX,
    Binding,
    check_secret_ref,
    env_names,
    is_variable_name,
    parse_bindings,
    resolve,
)
from subluminal.host.secrets.confirmation import confirm_words
from subluminal.host.secrets.keystore import Entry, keychain_available, open_store
from subluminal.reports.printable import printable

STORES = ("keychain", "file")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object.")
_json_lines = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
_dry_run = click.option("--dry-run", is_flag=True, help="Say what would change; write nothing.")
_source = click.option("--source", type=click.Choice(STORES), help="Where it is kept (default: wherever it is found).")


@click.group("secrets")
def secrets_group() -> None:
    """Keep secrets away from the agent.

    A secret is stored under a reference and bound to a server; the shim places it into that server's environment. The
    agent, its configuration, the events and the ledger never hold the value.

    \b
    Examples:
      sub secrets add github_token --bind github:GITHUB_TOKEN
      pass show github | sub secrets add github_token --source file
      sub secrets adopt github GITHUB_TOKEN --client claude
      sub secrets confirm github     this command line may have them
      sub secrets check
    """


@secrets_group.command("add")
@click.argument("secret_ref")
@click.argument("surplus", nargs=-1, type=click.UNPROCESSED, metavar="")
@click.option("--source", type=click.Choice(STORES), help="Where to keep it (default: keychain if there is one).")
@click.option(
    "--bind",
    "binds",
    multiple=True,
    metavar="SERVER:VARIABLE",
    help="Also bind it to a server; SERVER:header:NAME for a header (repeatable).",
)
@click.option("--replace", is_flag=True, help="Put it in place of the value that is there.")
@_dry_run
@_json
def add_command(
    secret_ref: str,
    surplus: tuple[str, ...],
    source: str | None,
    binds: tuple[str, ...],
    replace: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Store a secret: typed at a prompt, or piped to stdin (one trailing newline is dropped).

    A value that is there already stays, unless --replace is given.

    \b
    Examples:
      sub secrets add github_token
      sub secrets add github_token --replace      a new value, for every server that has it
      printf %s "$TOKEN" | sub secrets add github_token --bind github:GITHUB_TOKEN
    """
    if surplus:
        raise UsageError(
            "a value is never taken from the command line: other users and the shell's history could read it",
            hint=f"Run `sub secrets add {printable(secret_ref)}` and type it, or pipe it to stdin.",
        )
    check_secret_ref(secret_ref)
    source = source or ("keychain" if keychain_available() else "file")
    store = open_store(source, os.environ)
    _refuse_replacing(secret_ref, source, replace)
    bindings = [_binding(text, secret_ref, source) for text in binds]
    text = read_config_text(os.environ)
    confirmed: dict[str, list[Configured]] = {}
    for server, binding in bindings:
        text = with_binding(text, server, binding)
        confirmed[server] = own_servers(server)
        text = with_confirmed(text, server, records(confirmed[server]))
    value = _read_value(secret_ref)
    entry = Entry(secret_ref, source, False, None)
    if not dry_run:
        entry = store.put(secret_ref, value)
        if bindings:
            write_config_text(os.environ, text)
    _tell_added(entry, [f"{server}:{binding.inject_as}" for server, binding in bindings], dry_run, as_json)
    for server, found in () if as_json else confirmed.items():
        tell_confirmed(server, found, dry_run)
    return 0


@secrets_group.command("get")
@click.argument("secret_ref")
@_source
@click.option("--reveal", is_flag=True, help="Print the value. Only on a terminal.")
@_json_lines
def get_command(secret_ref: str, source: str | None, reveal: bool, as_json: bool) -> int:
    """Show what is known of a secret, without its value.

    \b
    Examples:
      sub secrets get github_token
      sub secrets get github_token --reveal
    """
    if reveal and (as_json or not sys.stdout.isatty()):
        hint = "Programs get secrets through bindings."
        raise UsageError("a value is shown only on a terminal, and not as JSON", hint=hint)
    found = _find(secret_ref, source)
    if not found:
        raise SecretError(f"no secret {secret_ref!r} is stored", hint="`sub secrets list` shows what is.")
    if reveal:
        click.echo(open_store(found[0].source, os.environ).get(secret_ref))
        return 0
    rows = [_described(entry, load_config(os.environ)) for entry in found]
    if as_json:
        print_json_rows(rows)
    else:
        _print_rows(rows)
    return 0


@secrets_group.command("list")
@_json_lines
def list_command(as_json: bool) -> int:
    """List stored secrets and who uses them. Values are never shown.

    \b
    Example:
      sub secrets list --json
    """
    config = load_config(os.environ)
    rows = [_described(entry, config) for source in STORES for entry in open_store(source, os.environ).refs()]
    known = {(row["secret_ref"], row["source"]) for row in rows}
    for server in config.server_names():
        for binding in config.server(server).secret_bindings:
            if (binding.secret_ref, binding.source) not in known:
                known.add((binding.secret_ref, binding.source))
                rows.append(_described(Entry(binding.secret_ref, binding.source, False, None), config, stored=False))
    if as_json:
        print_json_rows(rows)
    elif rows:
        _print_rows(rows)
    else:
        note("No secrets. Store one with: sub secrets add NAME")
    return 0


@secrets_group.command("remove")
@click.argument("secret_ref")
@_source
@_dry_run
@_json
def remove_command(secret_ref: str, source: str | None, dry_run: bool, as_json: bool) -> int:
    """Remove a stored secret. Bindings stay, and the servers that have them are named: they go without from now on.

    \b
    Example:
      sub secrets remove github_token
    """
    found = _find(secret_ref, source)
    if not found:
        raise SecretError(f"no secret {secret_ref!r} is stored", hint="`sub secrets list` shows what is.")
    if len(found) > 1:
        hint = "Choose with --source."
        raise UsageError(f"{secret_ref!r} is in {' and in '.join(e.source for e in found)}", hint=hint)
    if not dry_run:
        open_store(found[0].source, os.environ).remove(secret_ref)
    users = _described(found[0], load_config(os.environ))["bound_to"]
    if as_json:
        facts = {"secret_ref": secret_ref, "source": found[0].source, "removed": not dry_run, "dry_run": dry_run}
        print_json({**facts, "bound_to": users})
        return 0
    note(f"{'Would remove' if dry_run else 'Removed'} {secret_ref} from {found[0].source}.")
    for user in users:
        note(f"  {printable(user)} {'would go' if dry_run else 'goes'} without it.")
    if users:
        note(f"  A new value: sub secrets add {secret_ref}")
    return 0


@secrets_group.command("check")
@click.option("--server", "only", metavar="NAME", help="Only this server.")
@_json
def check_command(only: str | None, as_json: bool) -> int:
    """Check that every binding finds its secret. Exit code 1 if a required one does not.

    \b
    Examples:
      sub secrets check
      sub secrets check --server github --json
    """
    config = load_config(os.environ)
    if only is not None and only not in config.server_names() and not config.server(only).secret_bindings:
        hint = "Known: " + (", ".join(config.server_names()) or "none")
        raise UsageError(f"no server {only!r} has settings", hint=hint)
    rows = [
        _checked(server, binding, bool(config.server(server).confirmed))
        for server in ([only] if only is not None else config.server_names())
        for binding in config.server(server).secret_bindings
    ]
    if as_json:
        print_json({"bindings": rows, "warnings": config.warnings})
    else:
        _print_checks(rows, config)
    return 1 if any(row["error"] and row["required"] for row in rows) else 0


secrets_group.add_command(adopt_command)
secrets_group.add_command(confirm_command)


def _refuse_replacing(secret_ref: str, source: str, replace: bool) -> None:
    """Before the value is asked for. Whoever only wants another server to have it binds it."""
    found = _find(secret_ref, source)
    if not found or replace:
        return
    users = _described(found[0], load_config(os.environ))["bound_to"]
    concerned = f"it is bound to {', '.join(map(printable, users))}" if users else "it is bound to no server"
    raise SecretError(
        f"{source} holds {secret_ref!r} already; {concerned}",
        hint=f"A new value for it: sub secrets add {printable(secret_ref)} --replace; or choose another name.",
    )


def _read_value(secret_ref: str) -> str:
    if sys.stdin.isatty():
        value = str(click.prompt(f"Value of {secret_ref}", hide_input=True, confirmation_prompt=True, err=True))
    else:
        value = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
        value = value.removesuffix("\n").removesuffix("\r")
        if not value:
            hint = f'Type it at a terminal, or: printf %s "$TOKEN" | sub secrets add {printable(secret_ref)}'
            raise SecretError("nothing came on standard input, so nothing was stored", hint=hint)
    if len(value.encode("utf-8", "surrogateescape")) < MIN_SECRET_BYTES:
        raise SecretError(
            f"the value is shorter than {MIN_SECRET_BYTES} bytes: too short to be masked safely, so it was not stored",
            hint="Short words occur in ordinary text by chance; masking them would give them away.",
        )
    return value


def _binding(text: str, secret_ref: str, source: str) -> tuple[str, Binding]:
    server, header, name = text.partition(f":{HEADER_PREFIX}")
    if header:
        # Other schemes are written into config.toml.
        prefix = {"prefix": "Bearer "} if name.lower() == "authorization" else {}
        item = {"inject_as": HEADER_PREFIX + name, "secret_ref": secret_ref, "source": source, **prefix}
        return server, parse_bindings([item], f"--bind {text!r}")[0]
    server, colon, variable = text.rpartition(":")
    if not colon or not server or not is_variable_name(variable):
        raise UsageError(f"--bind {text!r} is not SERVER:VARIABLE", hint="For example: --bind github:GITHUB_TOKEN")
    return server, Binding(variable, secret_ref, source)


def _find(secret_ref: str, source: str | None) -> list[Entry]:
    check_secret_ref(secret_ref)
    stores = [open_store(name, os.environ) for name in ([source] if source else STORES)]
    return [entry for store in stores for entry in store.refs() if entry.secret_ref == secret_ref]


def _described(entry: Entry, config: Config, *, stored: bool = True) -> dict[str, Any]:
    users = [
        f"{server}:{binding.inject_as}"
        for server in config.server_names()
        for binding in config.server(server).secret_bindings
        if (binding.secret_ref, binding.source) == (entry.secret_ref, entry.source)
    ]
    modified = entry.modified_ms
    return {
        "secret_ref": entry.secret_ref,
        "source": entry.source,
        "stored": stored,
        "encrypted": entry.encrypted if stored else None,
        "modified_at": None if modified is None else rfc3339(modified),
        "bound_to": users,
    }


def _print_rows(rows: list[dict[str, Any]]) -> None:
    def protection(row: dict[str, Any]) -> str:
        if row["source"] == "env":
            return "in " + env_names(row["secret_ref"])[0]
        return "not stored" if not row["stored"] else "encrypted" if row["encrypted"] else "plain file"

    cells = [
        [printable(row["secret_ref"]), row["source"], protection(row), printable(", ".join(row["bound_to"]) or "-")]
        for row in rows
    ]
    click.echo(table(cells, ["SECRET_REF", "SOURCE", "KEPT", "BOUND TO"]))


def _tell_added(entry: Entry, bound: list[str], dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "secret_ref": entry.secret_ref,
                "source": entry.source,
                "stored": not dry_run,
                "encrypted": None if dry_run else entry.encrypted,
                "bound_to": bound,
                "dry_run": dry_run,
            }
        )
        return
    note(f"{'Would store' if dry_run else 'Stored'} {entry.secret_ref} in {entry.source}.")
    if not dry_run and not entry.encrypted:
        note("  It is NOT encrypted (no keychain here): only the file's permissions (0600) protect it.")
    for user in bound:
        note(f"  {'Would bind' if dry_run else 'Bound'} it to {printable(user)}; restart the client to use it.")


def _checked(server: str, binding: Binding, confirmed: bool) -> dict[str, Any]:
    resolved = resolve(
        [Binding(binding.inject_as, binding.secret_ref, binding.source, redact=binding.redact)], os.environ
    )
    error = resolved.errors[0] if resolved.errors else None
    return {
        "server_name": server,
        "inject_as": binding.inject_as,
        "secret_ref": binding.secret_ref,
        "source": binding.source,
        "required": binding.required,
        "confirmed": confirmed,
        "success": error is None,
        "error": None if error is None else str(error),
        "hint": None if error is None else error.hint,
    }


def _print_checks(rows: list[dict[str, Any]], config: Config) -> None:
    for warning in config.warnings:
        note(f"warning: {printable(warning)}")
    if not rows:
        note("No bindings. Add one with: sub secrets add NAME --bind SERVER:VARIABLE")
    for row in rows:
        word, colour = (
            ("ok", "green") if row["success"] else ("MISSING", "red") if row["required"] else ("absent", "yellow")
        )
        name = printable(f"{row['server_name']}: {row['inject_as']} from {row['source']} {row['secret_ref']}")
        click.echo(f"{paint(word.ljust(7), colour)}  {name}")
        if row["error"]:
            note(f"         {printable(row['error'])}\n         {printable(row['hint'] or '')}".rstrip())
    for server in dict.fromkeys(row["server_name"] for row in rows if not row["confirmed"]):
        note(f"{printable(server)} gets none of them before its command line is confirmed:")
        note(f"  {printable(confirm_words(server))}")
