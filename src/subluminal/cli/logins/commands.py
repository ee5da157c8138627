"""`sub login`, `sub logout`: no command prints a token."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click

from subluminal.cli.logins.browser import has_display, open_browser
from subluminal.cli.render.output import note, print_json, table
from subluminal.cli.render.rows import print_json_rows
from subluminal.contracts.errors import LoginError, UsageError
from subluminal.contracts.moments import rfc3339
from subluminal.host.secrets.keystore import keychain_available
from subluminal.logins.kept import TOKEN, Note, notes, reference
from subluminal.logins.scopes import is_scope
from subluminal.logins.servers import url_of
from subluminal.reports.printable import printable

MAX_NAME_CHARS = 200


@click.command("login")
@click.argument("name", required=False)
@click.option("--url", metavar="URL", help="The server's URL (default: [proxy.servers.NAME] in config.toml).")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPES", help="Ask for these instead of those it names.")
@click.option("--client-id", metavar="ID", help="A client registered by hand, where a server registers none itself.")
@click.option("--client-secret-env", metavar="VARIABLE", help="The variable that holds the secret of that client.")
@click.option("--callback-port", type=click.IntRange(1, 65535), metavar="PORT", help="Where the browser comes back to.")
@click.option("--no-browser", is_flag=True, help="Only print the address; on a terminal, paste where it led to.")
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1, 86400), default=300, metavar="SECONDS", show_default=True
)
@click.option("--token-env", metavar="VARIABLE", help="Keep the token in this variable instead; no browser, no OAuth.")
@click.option("--source", type=click.Choice(["keychain", "file"]), help="Where to keep it (default: keychain if any).")
@click.option("--list", "listing", is_flag=True, help="List logins: whose, until when; never a token.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --list, one per line.")
def login_command(name: str | None, listing: bool, as_json: bool, **options: Any) -> int:
    """Log in at a remote MCP server.

    The token goes into the secret store and from there only to that URL: the agent, its configuration and the ledger
    never hold it. It is renewed when it expires.

    \b
    Examples:
      sub login linear --url https://mcp.linear.app/mcp
      sub login linear --scope "read write"          more than before
      sub login linear --no-browser                  on a machine without one
      sub login ci --url https://tools.example.com/mcp --token-env TOOLS_TOKEN
      sub login --list
    """
    if listing:
        if name is not None or any(v for k, v in options.items() if k != "timeout_s"):
            raise UsageError("--list takes nothing but --json")
        return _list(as_json)
    if name is None:
        raise UsageError("whose login?", hint="For example: sub login linear --url https://mcp.linear.app/mcp")
    made = _log_in(_checked_name(name), options)
    if as_json:
        print_json(_described(made))
    else:
        _tell(made)
    return 0


@click.command("logout")
@click.argument("name")
@click.option("--url", metavar="URL", help="Which one, if there are logins of this name at several URLs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def logout_command(name: str, url: str | None, as_json: bool) -> int:
    """Take back a login at its server, where that can be done, and remove it.

    \b
    Examples:
      sub logout linear
      sub logout linear --url https://mcp.linear.app/mcp --json
    """
    from subluminal.logins.login import log_out

    found = [each for each in notes() if each.name == name]
    if url is not None:
        found = [each for each in found if reference(name, each.url) == reference(name, url)]
    if not found:
        raise LoginError(f"there is no login for {printable(name)}", hint="`sub login --list` shows those there are.")
    if len(found) > 1:
        urls = ", ".join(each.url for each in found)
        raise UsageError(f"there are logins for {printable(name)} at several URLs", hint=f"Choose with --url: {urls}")
    revoked = log_out(found[0])
    if as_json:
        print_json({"name": name, "url": found[0].url, "removed": True, "revoked": revoked})
        return 0
    note(f"Removed the login for {printable(name)} at {found[0].url}.")
    if revoked:
        note("  The server has taken its tokens back.")
    elif found[0].kind == TOKEN:
        note("  The token itself stays good: take it back where you got it.")
    else:
        note("  The server was not or could not be asked to take its tokens back: they end when they expire.")
    return 0


def _log_in(name: str, options: dict[str, Any]) -> Note:
    from subluminal.logins import login

    url = options["url"] or url_of(name)
    if url is None:
        raise UsageError(f"where is {printable(name)}?", hint=f"Say it once: sub login {printable(name)} --url URL")
    source = options["source"] or ("keychain" if keychain_available() else "file")
    if options["token_env"] is not None:
        if any(options[key] for key in ("scopes", "client_id", "client_secret_env", "callback_port", "no_browser")):
            raise UsageError("--token-env is instead of a login in the browser, and takes none of its options")
        return login.keep_token(name, url, _variable(options["token_env"]), source)
    if options["client_secret_env"] is not None and options["client_id"] is None:
        raise UsageError("--client-secret-env goes with --client-id")
    wanted = login.Wanted(
        name,
        url,
        source,
        scopes=_scopes(options["scopes"]),
        client_id=options["client_id"],
        client_secret="" if options["client_secret_env"] is None else _variable(options["client_secret_env"]),
        callback_port=options["callback_port"] or 0,
        timeout_s=float(options["timeout_s"]),
    )
    browser = not options["no_browser"] and has_display()
    pasting = sys.stdin.fileno() if not browser and _is_terminal() else None
    return login.log_in(wanted, lambda page: _show(page, browser, pasting is not None), pasting)


def _show(page: Any, browser: bool, pasting: bool) -> None:
    note(f"Log in at {page.issuer}:\n\n  {page.address}\n")
    if page.origin != page.token_origin:
        note(f"The token will come from {page.token_origin}.")
    if page.scopes:
        note(f"Asked for: {' '.join(page.scopes)}")
    if browser:
        note("Your browser opens it; if it does not, open it yourself. Waiting for it to come back ...")
        open_browser(page.address)
    elif pasting:
        note("Open it. If your browser is on another machine, it ends at an address that it cannot reach:")
        note("paste that address here and press Enter.")
    else:
        note("Open it in a browser on this machine. Waiting for it to come back ...")


def _is_terminal() -> bool:
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):
        return False


def _checked_name(name: str) -> str:
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise UsageError(f"a server's name has 1 to {MAX_NAME_CHARS} characters that can be printed")
    return name


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise UsageError(
            f"the variable {printable(name)} is not set", hint="A value is never taken from the command line."
        )
    return value


def _scopes(texts: tuple[str, ...]) -> tuple[str, ...]:
    words = [word for text in texts for word in text.split()]
    for word in words:
        if not is_scope(word):
            raise UsageError(f"{printable(word)!r} is not a scope")
    return tuple(dict.fromkeys(words))


def _described(made: Note) -> dict[str, Any]:
    moments = {"obtained_at": made.obtained_at, "expires_at": made.expires_at}
    return {
        "name": made.name,
        "url": made.url,
        "kind": made.kind,
        "issuer": made.issuer or None,
        "scopes": made.scopes,
        **{key: None if at is None else rfc3339(int(at * 1000)) for key, at in moments.items()},
        "refreshable": made.refreshable,
        "source": made.source,
        "encrypted": made.encrypted,
    }


def _tell(made: Note) -> None:
    note(f"Logged in: {printable(made.name)} at {made.url}, kept in {made.source}.")
    if made.source == "file" and not made.encrypted:
        note("  It is NOT encrypted (no keychain here): only the file's permissions (0600) protect it.")
    if made.expires_at is not None and not made.refreshable:
        note(f"  The server gave no refresh token: log in again after {rfc3339(int(made.expires_at * 1000))}.")


def _list(as_json: bool) -> int:
    found = notes()
    if as_json:
        print_json_rows([_described(each) for each in found])
    elif not found:
        note("No logins. Log in with: sub login NAME --url URL")
    else:
        now = time.time()
        rows = [
            [printable(each.name), each.url, each.issuer or "-", " ".join(each.scopes) or "-", _good(each, now)]
            for each in found
        ]
        click.echo(table(rows, ["NAME", "URL", "ISSUER", "SCOPES", "GOOD"]))
    return 0


def _good(each: Note, now_s: float) -> str:
    if each.expires_at is None:
        return "until refused"
    if each.refreshable:
        return "renewed when needed"
    until = rfc3339(int(each.expires_at * 1000))
    return f"until {until}" if each.expires_at > now_s else f"expired {until}"
