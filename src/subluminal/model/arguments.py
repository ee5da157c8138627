"""Arguments of a call that a model wrote: whether all clients read the same in them."""

from __future__ import annotations

from subluminal.contracts.canonical import read_args
from subluminal.contracts.errors import CanonicalError

# Faults that leave one reading are the gate's to judge.
_ONE_READING = ("too_deep", "number_out_of_range")


def read_exactly(arguments: bytes) -> tuple[str | None, bytes]:
    """Why two clients could carry out different things, and the form in which equal arguments are equal."""
    try:
        value, canonical = read_args(arguments)
    except CanonicalError as fault:
        return (None if fault.kind in _ONE_READING else f"arguments: {fault.kind}"), arguments
    return (None if isinstance(value, dict) else "arguments: not an object"), canonical
