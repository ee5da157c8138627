"""`sub version`."""

from __future__ import annotations

import platform

import click

from subluminal import __version__
from subluminal.cli.render.output import print_json
from subluminal.contracts.policy import SNAPSHOT_FORMAT
from subluminal.contracts.vocabulary import INTERFACE_VERSION
from subluminal.native.chosen import NAME

# Additions to the contracts since then change no meaning: events, policies and snapshots of it are read as they stand.
OLDEST_READ = "0.1.0"


@click.command("version")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def version_command(as_json: bool) -> None:
    """Print the version of the package, and those of the contracts that it writes and reads.

    Events and errors carry the version that is written (`v`). Policies carry none: what a version adds to the language
    is in docs/contracts/. The core is `c` where the C part was built and `py` elsewhere: same answers, other speed.
    SUB_CORE=c and SUB_CORE=py insist on one.

    \b
    Examples:
      sub version
      sub version --json | jq -r .contracts.written
    """
    contracts = {"written": INTERFACE_VERSION, "read_from": OLDEST_READ, "snapshot_format": SNAPSHOT_FORMAT}
    python = platform.python_version()
    if as_json:
        print_json(
            {
                "package": __version__,
                "interface_pack": INTERFACE_VERSION,
                "contracts": contracts,
                "python": python,
                "core": NAME,
            }
        )
        return
    read = "" if INTERFACE_VERSION == OLDEST_READ else f" (reads {OLDEST_READ} and later)"
    print(f"subluminal {__version__}")
    print(f"contracts  {INTERFACE_VERSION}{read}, snapshot format {SNAPSHOT_FORMAT}")
    print(f"Python     {python}")
    print(f"core       {NAME}")
