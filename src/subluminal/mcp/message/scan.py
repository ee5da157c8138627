"""A streaming look at one JSON message in bounded memory: for messages too large, too deep or too odd to read.

It finds the top-level members and the members of `params` and `result` wherever they stand, keeps the small raw
values that matter (method, id, tool name), hashes the bytes of `params.arguments` as they pass, and reports anything
that two parsers could read differently. After such a report it goes on as a lenient reader would: whoever waits for an
answer is still to be found. Everything deeper is skipped in bulk.

    scan = MessageScan()
    scan.feed(chunk) ...          chunks of the message
    scan.finish()                 then: scan.values, scan.ambiguous

Arrays of objects are followed in two places: messages in a batch (or behind one another on one line), and the tools
in a result. Each element is scanned as an object of its own.
"""

from __future__ import annotations

import codecs
import re

from subluminal.contracts.digest import sha256
from subluminal.mcp.message.elements import Elements, Found
from subluminal.mcp.message.reading import UNREADABLE, string
from subluminal.mcp.message.skip import Skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# A captured value: an id, a method, a tool name. Longer than any of these has reason to be.
MAX_CAPTURE_BYTES = 4096
# A message with more members than this at the levels we follow is not a tool call of any real client.
MAX_FOLLOWED_MEMBERS = 4096
# Messages looked at in a batch that cannot be taken apart, and tools in a list.
MAX_MESSAGES = 1024
MAX_TOOLS = 4096
# Control characters stand nowhere in JSON but for white space outside strings.
_NO_CONTROL = bytes(b for b in range(256) if b >= 0x20 or b == 0x09)
_SCALAR = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null")
# Control characters are white space here: a strict scan has reported them before they are looked at.
_SOLID = re.compile(rb"[^\x00-\x20]")
_SCALAR_END = re.compile(rb"[,}\]\x00-\x20]")
_OPENING = re.compile(rb"[{\[]")
_FOLLOWED = (b"params", b"result")
_ENDS = ("fault", "done")
_ANNOTATIONS = (b"annotations",)


class MessageScan:
    """Feed the bytes of one message; afterwards `values` maps `method`, `id`, `params.name`, ... to raw JSON.

    Not `strict`: for messages that pass whatever is in them, and of which we want to know as much as can be read.
    """

    def __init__(self, strict: bool = True, followed: tuple[bytes, ...] = _FOLLOWED) -> None:
        self.values: dict[str, bytes] = {}
        self.nested: set[str] = set()  # names of values that were not read: known only as `{}`, `[]` or `"..."`
        self.keys: list[tuple[str, bytes]] = []  # (container, raw key), in order, duplicates included
        self.ambiguous: str | None = None
        self.is_array = False
        self.found = Found()  # messages of an array, or behind the first one; tools of `result.tools`
        self._followed = followed
        self._lists = not strict  # inside an array of tools nothing is checked
        self._elements: Elements | None = None
        self._strict = strict
        self._utf8: codecs.IncrementalDecoder | None = None
        self._carry = b""  # bytes that the next chunk must be joined with
        self._state = "start"
        self._container = ""  # "" at the top level, else "params" / "result"
        self._key = b""
        self._skip = Skip()
        self._capture: bytearray | None = None
        self._members = 0
        self._args_hash: Any = None
        self._in_args = False

    def feed(self, chunk: bytes) -> None:
        if self._state == "fault":
            return
        if self._strict and chunk.translate(None, _NO_CONTROL):
            self._doubt("a raw control character")
        if self._strict and (self._utf8 is not None or not chunk.isascii()):
            if self._utf8 is None:
                self._utf8 = codecs.getincrementaldecoder("utf-8")()
            try:
                self._utf8.decode(chunk)
            except UnicodeDecodeError:
                self._doubt("invalid UTF-8")
        buf = self._carry + chunk if self._carry else chunk
        self._carry = b""
        # A chunk that ends inside an escape waits for its other half.
        tail = len(buf) - len(buf.rstrip(b"\\"))
        if tail % 2:
            self._carry = buf[-1:]
            buf = buf[:-1]
        # Blank out escapes without moving anything: every quote left delimits a string.
        clean = buf
        if b"\\" in buf and b'"' in buf:
            clean = buf.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        pos = self.run(buf, clean, 0)
        while pos < len(buf) and self._state == "done":
            pos = self._behind(buf, clean, pos)

    def finish(self) -> None:
        if self._elements is not None:
            self._elements.finish()
        if self._strict and self._utf8 is not None:
            try:
                self._utf8.decode(b"", True)
            except UnicodeDecodeError:
                self._doubt("invalid UTF-8")
        if self._carry or self._state != "done":
            self._fault("incomplete JSON")

    @property
    def args_raw_hash(self) -> str | None:
        """SHA-256 of the bytes of `params.arguments`, as they were sent; None where there is no such member."""
        return None if self._args_hash is None else str(self._args_hash.hexdigest())

    @property
    def has_ended(self) -> bool:
        return self._state in _ENDS

    @property
    def is_whole(self) -> bool:
        return self._state == "done"

    # -- the machine ------------------------------------------------------------------------------------------

    def _doubt(self, reason: str) -> None:
        """The first reason stands. What follows is read as leniently as a server might."""
        self.ambiguous = self.ambiguous or reason
        self._strict = False

    def _fault(self, reason: str) -> None:
        """Nothing more can be found."""
        self._doubt(reason)
        self._state = "fault"

    def run(self, buf: bytes, clean: bytes, pos: int) -> int:
        """On from `pos` to the end of the message, or of the piece. `clean` is `buf` with escapes blanked out."""
        end = len(buf)
        while pos < end and self._state not in _ENDS:
            state = self._state
            before = pos
            if state == "skip":
                pos = self._skip.run(clean, pos, self._strict)
                if self._skip.doubt is not None and self._strict:
                    self._doubt(self._skip.doubt)
                if self._skip.ended:
                    self._state = "after_value"
            elif state == "key_string":
                pos = self._string(buf, clean, pos, "colon")
            elif state == "value_string":
                pos = self._string(buf, clean, pos, "after_value")
            elif state == "scalar":
                pos = self._scalar(buf, pos)
            elif state == "elements":
                pos = self._array(buf, clean, pos)
            else:
                solid = _SOLID.search(buf, pos)
                pos = end if solid is None else self._structure(buf, solid.start())
                continue
            if self._in_args:
                self._args_hash.update(memoryview(buf)[before:pos])
                self._in_args = self._state not in ("after_value", *_ENDS)
        return pos

    def _structure(self, buf: bytes, pos: int) -> int:
        """One structural byte, where one is due."""
        byte = buf[pos]
        state = self._state
        if state == "start":
            return self._start(buf, pos)
        if state in ("key_or_end", "key"):
            if byte == 0x22:
                self._capture = bytearray()
                self._state = "key_string"
                return pos + 1
            if byte == 0x7D and state == "key_or_end":
                return self._close(pos)
        elif state == "colon" and byte == 0x3A:
            self._members += 1
            if self._members > MAX_FOLLOWED_MEMBERS:
                self._fault("too many members")
                return pos
            self._key = bytes(self._capture or b"")
            self.keys.append((self._container, self._key))
            self._capture = None
            self._state = "value"
            return pos + 1
        elif state == "value":
            return self._value(byte, pos)
        elif state == "after_value":
            if byte == 0x2C:
                self._state = "key"
                return pos + 1
            if byte == 0x7D:
                return self._close(pos)
        self._fault("invalid JSON")
        return pos

    def _start(self, buf: bytes, pos: int) -> int:
        """Whatever stands before the first bracket (a byte order mark, say) is passed over."""
        opening = _OPENING.search(buf, pos)
        if opening is None or opening.start() != pos:
            self._doubt("not a JSON object")
            return len(buf) if opening is None else opening.start()
        if buf[pos] == 0x7B:
            self._state = "key_or_end"
        else:
            self._doubt("a batch too large to take apart")
            self.is_array = True
            self._follow(MAX_MESSAGES, _FOLLOWED, self.found.keep_message)
        return pos + 1

    def _behind(self, buf: bytes, clean: bytes, pos: int) -> int:
        """What follows a whole message on its line: bytes of no meaning, or further messages."""
        if self._elements is not None and self._elements.ended not in ("", Elements.CLOSED):
            return len(buf)
        if _SOLID.search(buf, pos) is None:
            return len(buf)
        self._doubt("trailing bytes")
        opening = buf.find(b"{", pos)
        if opening < 0:
            return len(buf)
        if not self.found.messages:
            self.found.keep_message(self)
        self._follow(MAX_MESSAGES - len(self.found.messages), _FOLLOWED, self.found.keep_message)
        return self.run(buf, clean, opening)

    # -- arrays of objects ------------------------------------------------------------------------------------

    def _follow(self, bound: int, followed: tuple[bytes, ...], keep: Callable[[MessageScan], None]) -> None:
        self._elements = Elements(bound, lambda: MessageScan(False, followed), keep)
        self._state = "elements"

    def _array(self, buf: bytes, clean: bytes, pos: int) -> int:
        elements = self._elements
        assert elements is not None
        pos = elements.run(buf, clean, pos)
        if elements.ended == elements.LOST:
            self._fault("invalid JSON")
        elif elements.ended and self._container:
            self._state = "after_value"
            if elements.ended == elements.FULL:  # on to the array's end without a look
                self._skip.begin(depth=1)
                self._state = "skip"
        elif elements.ended:
            self._state = "done"
        return pos

    def _value(self, byte: int, pos: int) -> int:
        if self._strict and self._container == "params" and self._key == b"arguments":
            self._args_hash = sha256(b'"' if byte == 0x22 else b"")  # the quote of a string is passed here
            self._in_args = True
        if byte == 0x22:
            self._capture = bytearray(b'"')
            self._state = "value_string"
            return pos + 1
        if byte == 0x5B and self._lists and self._container == "result" and self._key == b"tools":
            self._follow(MAX_TOOLS, _ANNOTATIONS, self.found.keep_tool)
            assert self._elements is not None
            self._elements.raw = self.found.keeping_raw()
            return pos + 1
        if byte == 0x7B and self._container == "" and self._key in self._followed:
            self._container = self._key.decode()
            self._state = "key_or_end"
            return pos + 1
        if byte in b"{[":
            self._skip.begin()
            self._keep(b"{}" if byte == 0x7B else b"[]", nested=True)  # the value's kind, its content was not read
            self._state = "skip"
            return pos
        self._capture = bytearray()
        self._state = "scalar"
        return pos

    def _close(self, pos: int) -> int:
        if self._container:
            self._container = ""
            self._state = "after_value"
        else:
            self._state = "done"
        return pos + 1

    def _keep(self, raw: bytes, nested: bool = False) -> None:
        try:
            key = string(b'"%s"' % self._key) if b"\\" in self._key else self._key.decode("ascii")
        except UNREADABLE:
            return
        name = f"{self._container}.{key}" if self._container else key
        self.values[name] = raw
        if nested:
            self.nested.add(name)

    def _string(self, buf: bytes, clean: bytes, pos: int, after: str) -> int:
        quote = clean.find(b'"', pos)
        stop = quote if quote >= 0 else len(buf)
        if self._strict and buf.find(b"\t", pos, stop) >= 0:
            self._doubt("a raw control character")
        capture = self._capture
        if capture is not None:
            if len(capture) + stop - pos > MAX_CAPTURE_BYTES:
                self._capture = capture = None  # too long to be a name or an id; remembered as such
                if after == "colon":
                    self._capture = bytearray(b"...")
            else:
                capture += buf[pos:stop]
        if quote < 0:
            return len(buf)
        if after == "after_value":
            if capture is None:
                self._keep(b'"..."', nested=True)
                if self._strict and self._key in (b"method", b"name", b"id"):
                    self._doubt(f"{self._key.decode()} too long")
            else:
                self._keep(bytes(capture) + b'"')
            self._capture = None
        self._state = after
        return quote + 1

    def _scalar(self, buf: bytes, pos: int) -> int:
        match = _SCALAR_END.search(buf, pos)
        stop = match.start() if match else len(buf)
        capture = self._capture
        if capture is not None:
            capture += buf[pos:stop]
            if len(capture) > MAX_CAPTURE_BYTES:
                self._fault("a number or word too long")
                return stop
            if match:
                if self._strict and not _SCALAR.fullmatch(capture):
                    self._doubt("invalid JSON")
                self._keep(bytes(capture))
                self._capture = None
        if match:
            self._state = "after_value"
        return stop
