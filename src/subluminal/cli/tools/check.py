"""`sub tools check`: whether what servers say is what was pinned. For CI, beside `sub run --headless`."""

from __future__ import annotations

import click

from subluminal.cli.render.output import note, print_json
from subluminal.cli.tools.show import show_lines
from subluminal.cli.tools.survey import chosen, survey
from subluminal.surface.differences import lines
from subluminal.surface.texts import visible


@click.command("check")
@click.argument("what", required=False, metavar="[SERVER[/TOOL]]")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def check_command(what: str | None, as_json: bool) -> int:
    """Fail (exit 1) where what was last seen differs from its pin, with the difference.

    \b
    Examples:
      sub tools check
      sub tools check github --json
    """
    drifted = [row for row in chosen(survey(), what) if row.was is not None and (row.user or row.repository)]
    if as_json:
        found = [{"name": row.name, "why": row.stands.why, "diff": lines(row.was, row.now)} for row in drifted]
        print_json({"drifted": found})
        return 1 if drifted else 0
    for row in drifted:
        click.echo(f"{visible(row.name, '')}: {row.stands.why}")
        show_lines(lines(row.was, row.now))
    if drifted:
        note(f"{len(drifted)} differ from their pins. When you have looked: sub tools approve")
    return 1 if drifted else 0
