"""The functions in C. None: left to the twin."""

from collections.abc import Callable
from typing import Any

SOURCES: str

def bound(name: str, twin: Callable[..., Any], /, *made_of: Any) -> Callable[..., Any]:
    """The function of that name, which leaves to its twin what it is not sure of."""

def read_call(line: bytes, /) -> tuple[bytes, str, bytes, bytes | None] | None:
    """Id, tool name, arguments and `_meta` of a `tools/call`. Bound to its class, kind and method: a Reading."""

def read_reply(line: bytes, /) -> tuple[bytes, bytes | None, bytes | None, bool] | None:
    """Id, result and error of a reply, and whether the result is known to end its call well. Bound: a Reply."""

def read_args(raw: bytes, /) -> tuple[Any, bytes] | None:
    """The value and the canonical form."""

def quote(text: str, /) -> str | None: ...
def preview(raw: bytes, /) -> tuple[str, bool, tuple[str, ...]] | None:
    """Bound to a limit and a redactor."""

def sha256_hex(data: bytes, /) -> str | None: ...
def filled(*arguments: str | int) -> str | None:
    """Bound to the pieces that stand around them."""

def table_taken(
    raw: bytes, at: int, copy: int, image: bytearray, seldom: bytes, tail: bytearray, tail_crc: int, room: int, /
) -> tuple[int, int, int] | None:
    """Version, calls and `tail_crc` of a copy that differs in its values alone, and they are in `image` and `tail`."""

def table_changed(
    ops: list[tuple[Any, ...]],
    image: bytearray,
    tail: bytearray,
    kept: dict[bytes, int],
    seen: dict[bytes, tuple[int, ...] | None],
    seldom: bytes,
    tail_crc: int,
    version: int,
    calls: int,
    room: int,
    /,
) -> tuple[bytes, int] | None:
    """The copy to be written and its `tail_crc`, with the operations in it. Version 0: nothing is to be written."""

def may_hold_credential(data: bytes, /) -> bool: ...
