"""`sub fleet stop` and `sub fleet resume`: what those on call can do."""

from __future__ import annotations

import getpass
import os

import click

from subluminal.cli.fleet.options import open_repository, repository_options
from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import UsageError
from subluminal.reports.printable import count, printable


@click.command("stop")
@click.option("--tool", metavar="GLOB", help="Tools of these names.")
@click.option("--server", metavar="GLOB", help="Everything of these servers.")
@click.option("--agent", metavar="ID", help="Everything that this agent_id does.")
@click.option("--all", "every", is_flag=True, help="Every call.")
@click.option("--reason", required=True, metavar="TEXT", help="Told with each refusal.")
@click.option("--by", metavar="NAME", help="Who stops it.  [$SUB_PRINCIPAL, or the user]")
@repository_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def stop_command(
    tool: str | None,
    server: str | None,
    agent: str | None,
    every: bool,
    reason: str,
    by: str | None,
    repository: str | None,
    keys: tuple[str, ...],
    passphrase_env: str | None,
    as_json: bool,
) -> int:
    """Forbid calls on every machine of the fleet: those that match all that is named, whatever policies say.

    Needs the key `stop`, which can forbid and lift what was forbidden, and nothing else. Machines look every 10 seconds
    and keep a stop through restarts, and when the origin cannot be reached. `sub fleet resume` lifts it.

    \b
    Examples:
      sub fleet stop --tool 'delete_*' --reason 'incident 4711'
      sub fleet stop --server github --agent nightly --reason 'leaked token'
      sub fleet stop --all --reason 'all hands' --key on-call.pem
    """
    from subluminal.fleet.published import Stop
    from subluminal.host.clock import utc_now

    if every == any(name is not None for name in (tool, server, agent)):
        raise UsageError("name what to stop: --tool, --server, --agent, or --all alone")
    if not reason.strip() or any(name == "" for name in (tool, server, agent)):
        raise UsageError("a stop says what and why: no name and no reason may be empty")
    who = by or os.environ.get("SUB_PRINCIPAL") or getpass.getuser()
    stop_id = f"stop-{os.urandom(4).hex()}"
    stop = Stop(stop_id, printable(reason.strip()), printable(who), utc_now()[:19] + "Z", tool, server, agent)
    open_repository(repository, keys, passphrase_env).stop(stop)
    if as_json:
        print_json(stop)
    else:
        print(stop.stop_id)
        note(f"stopped {printable(stop.what)}; machines obey within about 10 seconds. sub fleet resume {stop.stop_id}")
    return 0


@click.command("resume")
@click.argument("stops", metavar="STOP...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every stop that is active.")
@repository_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each stop that was lifted.")
def resume_command(
    stops: tuple[str, ...],
    every: bool,
    repository: str | None,
    keys: tuple[str, ...],
    passphrase_env: str | None,
    as_json: bool,
) -> int:
    """Lift a stop; policies hold as before. Needs the key that can stop.

    \b
    Examples:
      sub fleet resume stop-1a2b3c4d
      sub fleet resume --all
    """
    if bool(stops) == every:
        raise UsageError("name the stops to lift, or --all", hint="`sub fleet status` lists them.")
    lifted = open_repository(repository, keys, passphrase_env).resume(list(stops))
    for stop in lifted:
        if as_json:
            print_json(stop)
        else:
            print(f"{stop.stop_id}  {printable(stop.what)}: {printable(stop.reason)}")
    note(f"{count(len(lifted), 'stop')} lifted")
    return 0
