"""`sub ledgerd`: start, look at, or stop the ledger daemon."""

from __future__ import annotations

import os
import sys

import click

from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import LedgerError

# Of a daemon that does not run nothing is known.
_FACTS = (
    "pid", "uptime_s", "connections", "followers", "journals", "lag_bytes", "ingested_bytes", "rejected_lines",
    "last_error",
)  # fmt: skip
DEFAULT_HTTP = "127.0.0.1:7411"


@click.command("ledgerd")
@click.option("--foreground", is_flag=True, help="Stay in the foreground.")
@click.option("--status", "want_status", is_flag=True, help="Say whether it runs and what it is doing.")
@click.option("--stop", "want_stop", is_flag=True, help="Stop it. Journals keep what it has not taken in yet.")
@click.option(
    "--http",
    "http",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=DEFAULT_HTTP,
    help=f"With --foreground: also serve HTTP, on a loopback address only; {DEFAULT_HTTP} where none is given.",
)
@click.option("--quiet", is_flag=True, help="With --foreground: write the log to ledgerd.log only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def ledgerd_command(
    foreground: bool, want_status: bool, want_stop: bool, http: str | None, quiet: bool, as_json: bool
) -> int:
    """The ledger daemon: the one process that writes the ledger.

    It starts by itself when a shim first needs it and ends when there has been nothing to do for a while, so this
    command is for looking (--status), stopping (--stop) and for service managers (--foreground).

    \b
    Examples:
      sub ledgerd                     start it in the background, if it does not run
      sub ledgerd --status --json
      sub ledgerd --foreground        stay, and write the log to stderr as well
      sub ledgerd --foreground --http
    """
    if http and not foreground:
        raise click.UsageError("--http needs --foreground")
    if want_status:
        return _status(as_json)
    if want_stop:
        return _stop(as_json)
    if foreground:
        return _foreground(http, quiet)
    from subluminal.ledger.daemon.contact import require_ledgerd

    require_ledgerd()
    return _status(as_json)


def _status(as_json: bool) -> int:
    from subluminal.ledger.daemon.contact import ask

    answer = ask({"control": "status"})
    if as_json:
        print_json({"running": answer is not None, **((answer or {}).get("status") or dict.fromkeys(_FACTS))})
    elif answer is None:
        print("ledgerd is not running; it starts by itself when it is needed")
    else:
        state = answer["status"]
        print(
            f"ledgerd {state['pid']}: up {state['uptime_s']} s, {state['connections']} connections,"
            f" {state['journals']} journals, {state['lag_bytes']} bytes to take in"
        )
        if state["last_error"]:
            note(f"last error: {state['last_error']}")
    return 0 if answer is not None else 1


def _stop(as_json: bool) -> int:
    from subluminal.ledger.daemon.contact import stop

    stopped = stop()
    if as_json:
        print_json({"stopped": stopped})
    else:
        print("ledgerd has ended" if stopped else "ledgerd was not running")
    return 0


def _foreground(http: str | None, quiet: bool) -> int:
    from subluminal.cli.ui.above import HereAbove
    from subluminal.host.config import idle_exit_s
    from subluminal.host.home import is_present, joined_file, ledgerd_log
    from subluminal.ledger.daemon.companion import Companion
    from subluminal.ledger.daemon.contact import private_home
    from subluminal.ledger.daemon.daemon import AlreadyRunning, Daemon
    from subluminal.ledger.daemon.log import Log

    os.umask(0o077)
    home = private_home()
    log = Log(ledgerd_log(home), echo=not quiet)
    try:
        daemon = Daemon(home, idle_exit_s=idle_exit_s(os.environ), log=log)
    except AlreadyRunning as error:
        if not quiet:
            print(error, file=sys.stderr)
        return 0
    except LedgerError as error:
        log(str(error))
        raise
    daemon.ui.above = HereAbove(home)
    # A home that has joined a fleet has a keeper. Where none has, this is a look for a file once a second.
    keep = [sys.executable, "-P", "-m", "subluminal", "fleet", "keep", "--quiet", "--until-eof"]
    daemon.companion = Companion(lambda: is_present(joined_file(home)), keep, {**os.environ, "SUB_HOME": home}, log)
    if http:
        daemon.ui.serve(http)
    daemon.run()
    return 0
