"""Lines: how messages are cut out of a stream of bytes, and what a line may hide."""

from __future__ import annotations

from subluminal.mcp.message.reading import ambiguous
from subluminal.mcp.message.wire import read_message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.mcp.message.reading import Reading


# A number: to look for bytes in bytes, Python first makes and drops an exception, a whole microsecond.
CR = 0x0D


def split_lines(data: bytes) -> list[bytes]:
    """As `data.split(b"\\n")`, which does not look with memchr: 0.3 us against 3.3 us for one line of 10 KiB."""
    end = data.find(b"\n")
    if end < 0:
        return [data]
    return [data[:end], b""] if end == len(data) - 1 else data.split(b"\n")


def read_line(line: bytes) -> Reading:
    """`line` comes without its newline; one trailing CR (CRLF) is white space to every parser."""
    if CR in line:
        text = line.removesuffix(b"\r")
        if CR in text:
            # The Python SDK ends a line at a bare CR and would run a call that stands behind it.
            return ambiguous(text, "raw CR inside the line")
        return read_message(text)
    return read_message(line)
