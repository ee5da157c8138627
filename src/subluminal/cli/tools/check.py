"""`sub tools check`: whether what servers say is what was pinned. For CI, beside `sub run --headless`."""

from __future__ import annotations

from typing import Any

import click

from subluminal.cli.render.output import note
from subluminal.cli.render.rows import print_json_rows
from subluminal.cli.tools.show import show_lines
from subluminal.cli.tools.survey import Row, chosen, survey
from subluminal.surface.differences import lines
from subluminal.surface.texts import visible


@click.command("check")
@click.argument("what", required=False, metavar="[SERVER[/TOOL]]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line: what differs.")
def check_command(what: str | None, as_json: bool) -> int:
    """Fail (exit 1) where what was last seen differs from its pin, with the difference.

    \b
    Examples:
      sub tools check
      sub tools check github --json
    """
    drifted = [row for row in chosen(survey(), what) if row.was is not None and (row.user or row.repository)]
    if as_json:
        print_json_rows(map(_json, drifted))
        return 1 if drifted else 0
    for row in drifted:
        click.echo(f"{visible(row.name, '')}: {row.stands.why}")
        show_lines(lines(row.was, row.now))
    if drifted:
        note(f"{len(drifted)} differ from their pins. When you have looked: sub tools approve")
    return 1 if drifted else 0


def _json(row: Row) -> dict[str, Any]:
    now, was = row.now, row.was
    return {
        "server_name": row.server.server_name,
        "kind": row.known.kind,
        "name": row.known.name,
        "why": row.stands.why,
        "was": None if was is None else was.fingerprint,
        "fingerprint": now.fingerprint,
        "diff": lines(was, now),
    }
