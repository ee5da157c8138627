"""`sub fleet join`, `leave` and `keep`: the side of a machine."""

from __future__ import annotations

import os
import signal
import sys
from threading import Thread
from typing import Any

import click

from subluminal.cli.fleet.options import bytes_of, milliseconds_of
from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import FleetError, LedgerError, UsageError
from subluminal.reports.printable import count, printable


@click.command("join")
@click.argument("url")
@click.option("--root", required=True, metavar="FILE", help="The fleet's root.json, from whoever keeps it.")
@click.option("--tenant", metavar="NAME", help="Obey this tenant's policies as well as those for all.")
@click.option("--collector", metavar="URL", help="Where decisions are shipped to.")
@click.option("--token-env", metavar="NAME", help="The variable that holds the credential for the collector.")
@click.option("--token-file", metavar="FILE", help="The file that holds it.")
@click.option("--client-cert", metavar="FILE", help="A client certificate instead of a token.")
@click.option("--client-key", metavar="FILE", help="Its key, without a passphrase.")
@click.option("--ca", metavar="FILE", help="Trust this authority for the collector's certificate.")
@click.option("--max-disk", metavar="SIZE", help="With --collector: remove what goes first beyond this, by itself.")
@click.option("--max-offline", default="7d", metavar="TIME", help="How long the last good policy holds.  [7d]")
@click.option("--refresh", default="60s", metavar="TIME", help="How often policies are looked for.  [60s]")
@click.option("--stop-poll", default="10s", metavar="TIME", help="How often stops are looked for.  [10s]")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def join_command(
    url: str,
    root: str,
    tenant: str | None,
    collector: str | None,
    token_env: str | None,
    token_file: str | None,
    client_cert: str | None,
    client_key: str | None,
    ca: str | None,
    max_disk: str | None,
    max_offline: str,
    refresh: str,
    stop_poll: str,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Obey a fleet: its policies are in force on this machine like the organisation's, and so are its stops.

    What the origin at URL shows is believed only as far as the root in FILE says. From then on a policy that is missing
    or was altered counts as invalid, never as none. The keeper runs beside ledgerd and refreshes; where the fleet has
    not been heard of for --max-offline, `decision_on_error` and the classes that fail open decide, and every decision
    says so.

    \b
    Examples:
      sub fleet join https://fleet.example.com --root root.json
      sub fleet join https://fleet.example.com --root root.json --tenant payments --max-offline 12h
    """
    from subluminal.fleet.joined import Joined
    from subluminal.fleet.machine.joining import check_url, join
    from subluminal.fleet.shipping.sending import Address
    from subluminal.ledger.daemon.contact import private_home, require_ledgerd

    if (token_env or token_file or client_cert or client_key or ca or max_disk) and not collector:
        raise UsageError("a credential or --max-disk is for a collector: --collector URL is missing")
    if bool(client_cert) != bool(client_key):
        raise UsageError("--client-cert and --client-key go together.")
    if client_cert and (token_env or token_file):
        raise UsageError("a token or a certificate: a collector is shown one of them.")
    joined = Joined(
        url=url.rstrip("/"),
        tenant=tenant,
        collector=collector,
        token_env=token_env,
        token_file=_absolute(token_file),
        client_cert=_absolute(client_cert),
        client_key=_absolute(client_key),
        ca_file=_absolute(ca),
        max_offline_ms=milliseconds_of(max_offline, "--max-offline"),
        refresh_ms=milliseconds_of(refresh, "--refresh"),
        stop_poll_ms=milliseconds_of(stop_poll, "--stop-poll"),
        max_disk_bytes=bytes_of(max_disk, "--max-disk") if max_disk else 0,
    )
    check_url(joined.url)
    if collector:
        Address.of(joined, collector)  # what it cannot be is said now, and not by the keeper
    if dry_run:
        note(f"would join {printable(joined.url)} and put its policies in force here")
        if as_json:
            print_json({"joined": False, "url": joined.url, "tenant": tenant})
        return 0
    home = private_home()
    join(joined, root, home)
    try:
        require_ledgerd()
    except LedgerError as error:
        note(f"sub: {error} The keeper starts with it.")
    _tell_joined(joined, home, as_json)
    return 0


def _absolute(path: str | None) -> str | None:
    return os.path.abspath(path) if path else None


def _tell_joined(joined: Any, home: str, as_json: bool) -> None:
    from subluminal.fleet.status import machine_status

    facts = machine_status(joined, home)
    if as_json:
        names = ("url", "tenant", "version", "policies", "stops")
        print_json({"joined": True, **{name: facts[name] for name in names}})
        return
    number = len(facts["policies"])
    policies = "1 policy" if number == 1 else f"{number} policies"
    stops = count(len(facts["stops"]), "stop")
    print(f"joined {printable(joined.url)}: version {facts['version']}, {policies}, {stops} active")


@click.command("leave")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def leave_command(dry_run: bool, as_json: bool) -> int:
    """Leave the fleet: its policies and stops are no longer in force here, and nothing is shipped.

    \b
    Examples:
      sub fleet leave --dry-run
      sub fleet leave
    """
    from subluminal.fleet.machine.joining import leave, left_behind
    from subluminal.host.home import is_present, joined_file
    from subluminal.ledger.daemon.contact import private_home

    home = private_home()
    removed = [path for path in (joined_file(home), *left_behind(home)) if is_present(path)]
    had = is_present(joined_file(home)) if dry_run else leave(home)
    if as_json:
        print_json({"left": had and not dry_run, "removed": [] if dry_run else removed})
        return 0
    for path in removed:
        print(f"{'would remove' if dry_run else 'removed'} {printable(path)}")
    if not had:
        note("this machine has joined no fleet")
    return 0


@click.command("keep")
@click.option("--once", is_flag=True, help="Every task once, then end. Exit code 1: one went wrong.")
@click.option("--quiet", is_flag=True, help="Write the log to keeper.log only.")
@click.option("--until-eof", is_flag=True, help="End when standard input does.")
@click.option("--json", "as_json", is_flag=True, help="With --once: one JSON object.")
def keep_command(once: bool, quiet: bool, until_eof: bool, as_json: bool) -> int:
    """The keeper: refreshes the fleet's policies, looks for stops, ships decisions. ledgerd starts it and ends it.

    By hand it is for looking (--once), and for whoever runs it without ledgerd.

    \b
    Examples:
      sub fleet keep --once --json
      sub fleet keep
    """
    from subluminal.fleet.joined import require_joined
    from subluminal.fleet.keeper.keeper import AlreadyKept, Keeper
    from subluminal.fleet.keeper.tasks import tasks_of
    from subluminal.host.home import keeper_log
    from subluminal.ledger.daemon.contact import private_home
    from subluminal.ledger.daemon.log import Log

    home = private_home()
    joined = require_joined(home)
    log = Log(keeper_log(home), echo=not quiet and not once)
    try:
        keeper = Keeper(home, joined, tasks_of(joined, home, log), log)
    except AlreadyKept as error:
        note(f"sub: {error}")
        return 0
    except FleetError as error:
        log(str(error))
        raise
    if once:
        return _tell_once(keeper.once(), as_json)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: keeper.end())
    if until_eof:
        Thread(target=_wait_for_eof, args=(keeper,), daemon=True).start()
    code = keeper.run()
    sys.stderr.flush()
    os._exit(code)  # a step that waits for an origin must not keep us


def _wait_for_eof(keeper: Any) -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    keeper.end()


def _tell_once(outcome: dict[str, str | None], as_json: bool) -> int:
    if as_json:
        print_json({"tasks": outcome})
    else:
        for name, error in outcome.items():
            print(f"{name}: {'ok' if error is None else printable(error)}")
    return 1 if any(error is not None for error in outcome.values()) else 0
