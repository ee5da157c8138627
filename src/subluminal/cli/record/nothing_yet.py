"""The one line for whoever looks at a record before there is one: what to do first."""

from __future__ import annotations

from subluminal.cli.render.output import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.cli.record.source import Source

NOTHING_YET = "Nothing has been recorded yet."
FIRST = "route your client's servers with `sub import` and run your agent (`sub help quickstart`)."


def say_nothing_found(ledger: Source, otherwise: str) -> None:
    """To a person, on stderr, whatever the form of the output: an empty one explains nothing."""
    note(otherwise if ledger.runs(limit=1).rows else f"{NOTHING_YET} First {FIRST}")
