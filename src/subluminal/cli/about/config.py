"""`sub config`: the settings in force, and where each comes from."""

from __future__ import annotations

import os

import click

from subluminal.cli.render.output import note, print_json, table
from subluminal.host.config_sources import settings_in_force
from subluminal.host.home import config_file
from subluminal.reports.printable import printable


@click.command("config")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def config_command(as_json: bool) -> None:
    """Show the settings in force here, and where each comes from.

    A variable goes before the project's file, that before your own config.toml, and that before the default; a
    project's file can only make things stricter. Secrets are shown by reference. Policies: `sub policy in-force`.

    \b
    Examples:
      sub config
      SUB_TIMEOUT_MS=5000 sub config
      sub config --json | jq -r 'select(.source != "default") | .name'
    """
    settings, warnings = settings_in_force(os.environ, os.getcwd())
    for setting in settings if as_json else ():
        print_json(setting._asdict())
    if not as_json:
        rows = [[printable(setting.name), _shown(setting.value), printable(setting.source)] for setting in settings]
        print(table(rows, ["SETTING", "VALUE", "FROM"]))
        if not os.path.lexists(config_file()):
            note(f"Settings of your own go into {printable(config_file())} (docs/identity.md, docs/ledger.md).")
    for warning in warnings:
        note(f"warning: {printable(warning)}")


def _shown(value: object) -> str:
    return "none" if value is None else printable(str(value))
