"""`sub fleet ship`: the shipper by hand; the keeper of a joined machine runs the same task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import FleetError, UsageError
from subluminal.reports.printable import printable

if TYPE_CHECKING:
    from subluminal.fleet.shipping.sending import Address


@click.command("ship")
@click.option("--url", metavar="URL", help="The collector; by default that of the fleet this machine has joined.")
@click.option("--token-file", metavar="FILE", help="Holds this machine's token.")
@click.option("--token-env", metavar="VARIABLE", help="Names a variable that holds it.")
@click.option("--ca", metavar="FILE", help="Trust this authority for the collector's certificate.")
@click.option("--client-cert", metavar="FILE", help="A client certificate instead of a token.")
@click.option("--client-key", metavar="FILE", help="Its key.")
@click.option("--once", is_flag=True, help="Send what is there, and end.")
@click.option(
    "--from-start", is_flag=True, help="Begin again; what the collector has already is asked for and left out."
)
@click.option("--status", "only_status", is_flag=True, help="Only say how far it has come.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end.")
def ship_command(
    url: str | None,
    token_file: str | None,
    token_env: str | None,
    ca: str | None,
    client_cert: str | None,
    client_key: str | None,
    once: bool,
    from_start: bool,
    only_status: bool,
    as_json: bool,
) -> int:
    """Send what this machine has recorded to a collector: exact lines, each acknowledged after its commit.

    What was acknowledged stands in fleet/shipped.db; the ledger is only read. Killed at any moment, it goes on where
    the last acknowledgement left it. With --once it ends with 1 if something could not be sent.

    \b
    Examples:
      sub fleet ship --status
      sub fleet ship --once
      sub fleet ship --url https://collector.example --token-file /run/token
    """
    if only_status:
        return _tell(as_json)
    from subluminal.fleet.extras import require_extra

    require_extra("zstandard")
    from subluminal.fleet.shipping.progress import Progress
    from subluminal.fleet.shipping.task import ShipTask

    address = _address(url, token_file, token_env, ca, client_cert, client_key)
    if from_start:
        progress = Progress()
        progress.forget()
        progress.close()
    task = ShipTask(address)
    try:
        while True:
            wait_s = task.step()
            if task.last_wait is not None:
                note(f"sub fleet ship: {task.last_wait} Again in {wait_s:.0f} s.")
            if once and (wait_s or task.last_wait is not None):
                break
            time.sleep(wait_s)
    finally:
        task.close()
    return max(_tell(as_json), int(task.last_wait is not None))


def _address(
    url: str | None,
    token_file: str | None,
    token_env: str | None,
    ca: str | None,
    client_cert: str | None,
    client_key: str | None,
) -> Address:
    from subluminal.fleet.joined import read_joined
    from subluminal.fleet.shipping.sending import Address

    joined = read_joined()
    if url is None:
        url = joined.collector if joined is not None else None
        if url is None or joined is None:
            hint = "Give --url, or join a fleet that has a collector."
            raise FleetError("There is no collector to send to.", hint=hint)
        if not (token_file or token_env or client_cert or client_key):
            token_file, token_env = joined.token_file, joined.token_env
            client_cert, client_key = joined.client_cert, joined.client_key
        ca = ca or joined.ca_file
    if (client_cert is None) != (client_key is None):
        raise UsageError("--client-cert and --client-key go together.")
    certificate = None if client_cert is None or client_key is None else (client_cert, client_key)
    return Address(url, token_file=token_file, token_env=token_env, ca_file=ca, certificate=certificate)


def _tell(as_json: bool) -> int:
    from subluminal.fleet.keeper.state import read_state
    from subluminal.fleet.shipping.progress import Standing, standing

    found = standing()
    task = read_state().tasks.get("ship")
    why = None if task is None else task.last_error or task.facts.get("last_wait")
    told: dict[str, Any] = dict.fromkeys(Standing._fields) if found is None else found._asdict()
    told["last_error"] = why
    if as_json:
        print_json(told)
    elif found is None:
        print("Nothing was shipped from here yet.")
    else:
        print(f"{found.events} events acknowledged; {found.unacked_events} wait ({found.unacked_bytes:,} bytes)")
        if found.refused:
            note(f"{found.refused} events were refused by the collector; they are kept, and tried again each hour")
    if why and not as_json:
        note(f"the keeper says: {printable(why)}")
    return 0
