"""`sub ui`."""

from __future__ import annotations

import os
from urllib.parse import urlencode

import click

from subluminal.cli.record.source import FLEET_HELP
from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import LedgerError, UsageError

# A browser that is there takes the address within a moment; one that stays in the foreground is not waited for.
OPENING_S = 3.0


@click.command("ui")
@click.option(
    "--run", "run", metavar="RUN", help="Begin with this run: its id, a beginning or end of it, last, last~1."
)
@click.option("--no-open", is_flag=True, help="Open no browser; print a link that opens the page once.")
@click.option("--port", type=click.IntRange(1, 65535), help="Serve on this port.  [default: 7411, or a free one]")
@click.option("--fleet", "fleet", metavar="URL", help=FLEET_HELP)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: address and link. Opens no browser.")
def ui_command(run: str | None, no_open: bool, port: int | None, fleet: str | None, as_json: bool) -> int:
    """Watch agents work, go back in time, and see why a call was refused: a page on this machine.

    The ledger daemon serves it on a loopback address, and starts if it does not run. The browser is let in by a link
    that works once and for a minute; nothing leaves this machine.

    With --fleet it shows what a collector has of a tenant, and is served by this command until Ctrl-C. The token that
    may read (SUB_FLEET_TOKEN, or the file that SUB_FLEET_TOKEN_FILE names) says which tenant, and stays here: the
    browser never has it.

    \b
    Examples:
      sub ui
      sub ui --run last
      sub ui --no-open        for a browser elsewhere: forward the port over ssh, and open the link there
      sub ui --fleet https://collector.example
    """
    if fleet is not None:
        from subluminal.cli.ui.over_fleet import serve_over_fleet

        return serve_over_fleet(fleet, run, no_open=no_open, port=port, as_json=as_json)
    address, link = _ask_daemon(port, _path(run))
    if as_json:
        print_json({"address": address, "link": link})
        return 0
    print(address)
    if no_open or not _opened(link):
        note(f"Open this within a minute; it works once:\n{link}")
    return 0


def _ask_daemon(port: int | None, path: str) -> tuple[str, str]:
    from subluminal.ledger.daemon.contact import ask, require_ledgerd

    require_ledgerd()
    answer = ask({"control": "ui", "port": port, "path": path, "directory": _here()}) or {}
    if "ui" not in answer:
        raise _refused(answer)
    return answer["ui"]["address"], answer["ui"]["link"]


def _here() -> str:
    """For the policies and pins that are in force here; a directory that was removed is none."""
    try:
        return os.getcwd().encode("utf-8", "replace").decode()
    except OSError:
        return ""


def _refused(answer: dict[str, str]) -> Exception:
    sentence = answer.get("error") or "The ledger daemon has ended."
    if "hint" in answer:
        return UsageError(sentence, hint=answer["hint"])
    if sentence.startswith("unknown control"):
        return LedgerError("The ledger daemon that runs is an older one.", hint="Stop it first: sub ledgerd --stop.")
    return LedgerError(f"The page cannot be served: {sentence.rstrip('.')}.")


def _path(run: str | None) -> str:
    if run is None:
        return "/"
    from subluminal.cli.record.query import bring_up_to_date
    from subluminal.ledger.read.ledger import open_ledger

    bring_up_to_date(False)
    with open_ledger() as ledger:
        return "/run?" + urlencode({"run": ledger.resolve_run(run)})


def _opened(link: str) -> bool:
    from subluminal.cli.logins.browser import has_display, open_browser

    if not has_display():
        return False
    open_browser(link).join(OPENING_S)
    return True
