"""Whose call it is: what one producer tells can never change what another told. Pure, and light enough for `sub tail`.

A call is one producer's: it is known by `source.shim_id` and `call_id` together, so that an event can only ever speak
of a call of its own producer. An id of our own form, `<shim_id>-<n>`, says by itself whose it is: an event of another
producer that uses it is a claim on a foreign call. It stays in the chain, counts nowhere, and is named as a fault.

Trap: whether an id is foreign must not depend on which producers are known. Whoever may add a producer to a run could
else choose its name so that the calls of another look foreign. Only ids that no one picks by accident are of our form.
"""

from __future__ import annotations

from typing import Any

# `host.identity.make_source`: a letter, twelve digits of time and sixteen of chance.
_SHIM_ID_CHARS = 29
_HEX = frozenset("0123456789abcdef")


def owner_of(call_id: str) -> str | None:
    """The shim whose call this is by the form of its id; None for an id of any other form."""
    if call_id[_SHIM_ID_CHARS : _SHIM_ID_CHARS + 1] != "-" or call_id[0] != "s":
        return None
    shim_id, number = call_id[:_SHIM_ID_CHARS], call_id[_SHIM_ID_CHARS + 1 :]
    if not _HEX.issuperset(shim_id[1:]):
        return None
    return shim_id if number.isascii() and number.isdigit() else None


def claimed_call(event: Any) -> str | None:
    """The call of another producer that an event speaks of, if it does. Of a newer type nothing but the envelope is
    known."""
    call_id = getattr(getattr(event, "call", None), "call_id", None)
    return call_id if call_id is not None and is_foreign(call_id, event.source.shim_id) else None


def is_foreign(call_id: str, shim_id: str) -> bool:
    """Whether this producer speaks of a call of another."""
    return call_id[:_SHIM_ID_CHARS] != shim_id and owner_of(call_id) is not None
