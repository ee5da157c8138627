"""Where a question about the record goes: this machine's ledger, or the collector of a fleet (`--fleet URL`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subluminal.cli.options import Option, Values
from subluminal.ledger.read.ledger import open_or_empty

if TYPE_CHECKING:
    from subluminal.fleet.client import Fleet
    from subluminal.ledger.read.ledger import Ledger

    Source = Ledger | Fleet

FLEET_HELP = "Ask this collector instead of the ledger here."
FLEET_OPTION = Option("--fleet", "fleet", FLEET_HELP, metavar="URL")


def open_source(values: Values) -> Any:
    """A context manager of a `Source`."""
    return open_or_empty() if values["fleet"] is None else open_fleet(values["fleet"])


def open_fleet(url: str) -> Fleet:
    from subluminal.fleet.client import Fleet

    return Fleet(url)
