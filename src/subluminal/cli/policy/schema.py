"""`sub policy schema`."""

from __future__ import annotations

import sys

import click

from subluminal.cli.policy.files import write_file
from subluminal.cli.render.output import note
from subluminal.policy.edit.schema import schema_bytes
from subluminal.reports.printable import printable


@click.command("schema")
@click.option("--snapshot", is_flag=True, help="Of the compiled snapshot instead of the policy that people write.")
@click.option("-o", "--output", metavar="OUT", help="Write to this file instead of standard output.")
@click.option("--json", "_as_json", is_flag=True, help="Accepted for uniformity; the output is always JSON.")
def schema_command(snapshot: bool, output: str | None, _as_json: bool) -> None:
    """Print the JSON Schema (draft 2020-12) of policies, for editors and other programs.

    An editor with a YAML server completes and checks a policy whose first line names the schema, as the one that
    `sub policy init` writes does. The schema stands beside it; after an upgrade, write it anew.

    \b
    Examples:
      sub policy schema -o .subluminal/policy.schema.json
      sub policy schema --snapshot | jq .required
    The first line of a policy beside it:
      # yaml-language-server: $schema=policy.schema.json
    """
    content = schema_bytes(snapshot=snapshot)
    if output is None:
        sys.stdout.write(content.decode())
        return
    write_file(output, content)
    note(printable(f"wrote {output}"))
