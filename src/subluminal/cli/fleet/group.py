"""`sub fleet`: the commands of who publishes, of who is on call, and of a machine."""

from __future__ import annotations

import click

from subluminal.cli.lazy import LazyGroup
from subluminal.cli.options import Table

COMMANDS: Table = {
    "join": ("subluminal.cli.fleet.machine", "join_command", "Obey a fleet: its policies and its stops."),
    "leave": ("subluminal.cli.fleet.machine", "leave_command", "Leave the fleet."),
    "status": ("subluminal.cli.fleet.status", "status_command", "How this machine, or a repository, stands."),
    "keep": ("subluminal.cli.fleet.machine", "keep_command", "The keeper (ledgerd starts it on a joined machine)."),
    "ship": ("subluminal.cli.fleet.ship", "ship_command", "Send what was recorded to a collector."),
    "sidecar": ("subluminal.cli.fleet.sidecar", "sidecar_command", "ledgerd and the keeper as a pod's sidecar."),
    "telemetry": ("subluminal.cli.fleet.telemetry", "telemetry_command", "Send what has ended to OpenTelemetry, once."),
    "init": ("subluminal.cli.fleet.repository", "init_command", "Make a repository: keys, roles, an empty origin."),
    "tenant": ("subluminal.cli.fleet.repository", "tenant_command", "Add a tenant with its author's key."),
    "publish": ("subluminal.cli.fleet.repository", "publish_command", "Sign and publish the policies of a tenant."),
    "renew": ("subluminal.cli.fleet.repository", "renew_command", "Sign snapshot and timestamp anew."),
    "revoke": ("subluminal.cli.fleet.repository", "revoke_command", "Take a key from its role, and put in another."),
    "stop": ("subluminal.cli.fleet.stopping", "stop_command", "Forbid tools, servers or agents on all machines."),
    "resume": ("subluminal.cli.fleet.stopping", "resume_command", "Lift a stop."),
    "key": ("subluminal.cli.fleet.repository", "key_command", "Make an Ed25519 key."),
}


@click.group(
    "fleet",
    cls=LazyGroup,
    table=COMMANDS,
    help="Many machines under one signed policy, and an emergency stop for all of them.",
    epilog="Publish: sub fleet init DIR, sub fleet publish POLICY. A machine: sub fleet join URL --root root.json.",
)
def fleet_group() -> None:
    pass
