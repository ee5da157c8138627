"""`sub collector token`."""

from __future__ import annotations

import click

from subluminal.cli.render.output import note, print_json


@click.command("token")
@click.option("--tokens", metavar="FILE", required=True, help="The tokens file; made where there is none.")
@click.option("--tenant", metavar="NAME", required=True, help="Whose decisions it sends or reads.")
@click.option("--machine", metavar="NAME", required=True, help="The machine, or the person or service that reads.")
@click.option("--read", "may_read", is_flag=True, help="May ask what its tenant has, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def token_command(tokens: str, tenant: str, machine: str, may_read: bool, as_json: bool) -> None:
    """Make a token. It is printed once; the file has its hash, and a collector that is running takes it at once.

    \b
    Examples:
      sub collector token --tokens tokens.json --tenant acme --machine build-7
      sub collector token --tokens tokens.json --tenant acme --machine ann --read
    """
    from subluminal.fleet.collector.tokens import add_token

    token = add_token(tokens, tenant, machine, may_read=may_read)
    if as_json:
        print_json({"token": token, "tenant": tenant, "machine": machine, "may": ["read"] if may_read else ["ship"]})
    else:
        print(token)
        note(f"for {machine} of {tenant}; {tokens} has its hash")
