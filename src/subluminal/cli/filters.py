"""The filters of `contracts.filters` on the command line: their options, and what the given values ask for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from subluminal.cli.options import Option, Values
from subluminal.cli.render.moments import moment_ms
from subluminal.contracts.filters import LISTS, MOMENT, NUMBER

if TYPE_CHECKING:
    from subluminal.cli.record.source import Source
    from subluminal.contracts.filters import Filter


def filter_options(table: tuple[Filter, ...]) -> list[Option]:
    return [
        Option(
            "/".join(found.flags),
            found.name,
            found.help,
            metavar=found.metavar,
            multiple=found.kind in LISTS,
            kind=int if found.kind == NUMBER else str,
            choices=found.words,
        )
        for found in table
    ]


def conditions(table: tuple[Filter, ...], values: Values, ledger: Source) -> dict[str, Any]:
    """For `Filters` of this table. A run goes by whatever `Ledger.resolve_run` knows it by."""
    now = time.time_ns() // 1_000_000
    asked = {found.name: values[found.name] for found in table}
    for found in table:
        if found.kind == MOMENT and values[found.name] is not None:
            asked[found.name] = moment_ms(values[found.name], now)
    if "run_id" in asked:
        asked["run_id"] = [ledger.resolve_run(name) for name in values["run_id"]]
    return asked
