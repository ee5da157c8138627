"""The objects of an array, scanned one by one as their bytes pass: a part of `scan`."""

from __future__ import annotations

import re

from subluminal.contracts.digest import sha256
from subluminal.mcp.message.reading import read_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from subluminal.mcp.message.scan import MessageScan
    from subluminal.surface.items import Gathered, Item

# Nobody names a tool like this; a list of such names must not fill the memory.
MAX_TOOL_NAME_BYTES = 256
# Of one tool; a longer one is known by its hash.
MAX_HELD_BYTES = 256 * 1024
_HINTS = ("readOnlyHint", "destructiveHint", "openWorldHint")
_NEXT = re.compile(rb"[^,\x00-\x20]")


class Elements:
    """`keep` is told of each element; `make` scans the next. Ended in one of these ways:

    CLOSED   the array's bracket, or the end of what is looked at
    FULL     more elements than `bound`, or one that is no object: what follows is not looked at
    LOST     an element whose end cannot be found
    """

    __slots__ = ("_element", "_keep", "_left", "_make", "ended", "raw")
    CLOSED, FULL, LOST = "closed", "full", "lost"

    def __init__(self, bound: int, make: Callable[[], MessageScan], keep: Callable[[MessageScan], None]) -> None:
        self.ended = ""
        self._left = bound
        self._make = make
        self._keep = keep
        self._element: MessageScan | None = None
        self.raw: Passed | None = None  # the bytes of the element that is scanned, where somebody wants them

    def run(self, buf: bytes, clean: bytes, pos: int) -> int:
        """On from `pos` to where they have ended, or to the end of the piece."""
        while pos < len(buf) and not self.ended:
            if self._element is not None:
                start = pos
                pos = self._element.run(buf, clean, pos)
                if self.raw is not None:
                    self.raw.feed(buf[start:pos])
                if self._element.has_ended:
                    self.finish()
                continue
            found = _NEXT.search(buf, pos)
            if found is None:
                return len(buf)
            pos = found.start()
            if buf[pos] == 0x5D:
                self.ended = self.CLOSED
                pos += 1
            elif buf[pos] != 0x7B or not self._left:
                self.ended = self.FULL
            else:
                self._left -= 1
                self._element = self._make()
        return pos

    def finish(self) -> None:
        """An element has ended, or nothing more will come."""
        element, self._element = self._element, None
        if element is not None:
            self._keep(element)
            if not element.is_whole:
                self.ended = self.LOST


class Found:
    """What the elements of followed arrays tell: of `messages` id, method and how they ended; of `tools` name and
    annotations, as JSON."""

    __slots__ = ("_gathered", "_raw", "messages", "tools")

    def __init__(self) -> None:
        self.messages: list[dict[str, bytes]] = []
        self.tools: list[bytes] = []
        self._raw: Passed | None = None
        self._gathered: Gathered | None = None

    @property
    def gathered(self) -> list[Item]:
        """The tools with their fingerprints."""
        return [] if self._gathered is None else self._gathered.items

    def keeping_raw(self) -> Passed:
        """For an array of tools: the bytes of each pass through here."""
        self._raw = Passed()
        return self._raw

    def keep_message(self, scan: MessageScan) -> None:
        values = scan.values
        kept: dict[str, bytes] = {name: b"" for name in ("method", "error") if name in values}
        for name in ("id", "result.isError"):
            if name in values and name not in scan.nested:
                kept[name] = values[name]
        self.messages.append(kept)

    def keep_tool(self, scan: MessageScan) -> None:
        name = scan.values.get("name", b"")
        if name[:1] == b'"' and len(name) <= MAX_TOOL_NAME_BYTES and "name" not in scan.nested:
            notes = (b'"%s":%s' % (hint.encode(), scan.values.get(f"annotations.{hint}", b"null")) for hint in _HINTS)
            self.tools.append(b'{"name":%s,"annotations":{%s}}' % (name, b",".join(notes)))
            self._gather(name)
        if self._raw is not None:
            self._raw.clear()

    def _gather(self, name: bytes) -> None:
        from subluminal.surface.items import TOOL, Gathered, large_item, read_item

        if self._raw is None:
            return
        if self._gathered is None:
            self._gathered = Gathered()
        text, raw = str(read_value(name)), self._raw.text
        held = raw is not None
        self._gathered.add(read_item(TOOL, text, raw or b"") if held else large_item(TOOL, text, self._raw.hexdigest()))


class Passed:
    """The bytes of one element, while they are few enough to be held; their hash in any case."""

    __slots__ = ("_hash", "_pieces", "_size")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._hash: Any = None

    def feed(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._hash is None and self._size > MAX_HELD_BYTES:
            self._hash = sha256(b"".join(self._pieces))
            self._pieces = []
        if self._hash is not None:
            self._hash.update(piece)
        else:
            self._pieces.append(piece)

    @property
    def text(self) -> bytes | None:
        return None if self._hash is not None else b"".join(self._pieces)

    def hexdigest(self) -> str:
        return str(self._hash.hexdigest())
