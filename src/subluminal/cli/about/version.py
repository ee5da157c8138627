"""`sub version`."""

from __future__ import annotations

import platform

import click

from subluminal import __version__
from subluminal.cli.render.output import print_json
from subluminal.contracts.vocabulary import INTERFACE_VERSION


@click.command("version", help="Print the versions of the package, the interface pack and Python.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def version_command(as_json: bool) -> None:
    facts = {"package": __version__, "interface_pack": INTERFACE_VERSION, "python": platform.python_version()}
    if as_json:
        print_json(facts)
    else:
        print(f"subluminal {__version__} (interface pack {INTERFACE_VERSION}, Python {facts['python']})")
