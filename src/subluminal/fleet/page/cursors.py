"""Cursors of calls as the page orders them: a number, milliseconds and a tie-break, as on one machine; then, after a
point, the collector's own cursor."""

from __future__ import annotations

from subluminal.contracts.errors import UsageError
from subluminal.fleet.stores.cursors import cursor_key, cursor_text
from subluminal.ledger.store.lines import TIE_BITS


def shown(cursor: str) -> str:
    return f"{max(0, cursor_key(cursor, 4)[0]) << TIE_BITS}.{cursor}"


def asked(cursor: str | None) -> str | None:
    """As the collector takes it. A number alone is a moment that somebody went back to."""
    if cursor is None:
        return None
    number, point, own = cursor.partition(".")
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise UsageError(f"{cursor[:40]!r} is no cursor.", hint="Use the next_cursor of the page before.")
    return own if point else cursor_text([-(-int(number) >> TIE_BITS), "", "", ""])
