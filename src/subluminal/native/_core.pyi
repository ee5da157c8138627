"""The functions in C. None: left to the twin."""

from typing import Any

SOURCES: str

def read_call(line: bytes, /) -> tuple[bytes, str, bytes, bytes | None] | None:
    """Id, tool name, arguments and `_meta` of a `tools/call`."""

def read_reply(line: bytes, /) -> tuple[bytes, bytes | None, bytes | None, bool] | None:
    """Id, result and error of a reply, and whether the result is known to end its call well."""

def read_args(raw: bytes, /) -> tuple[Any, bytes] | None:
    """The value and the canonical form."""

def quote(text: str, /) -> str | None: ...
def may_hold_credential(data: bytes, /) -> bool: ...
