"""A streaming look at one JSON message in bounded memory: for messages too large or too deep to hold.

It finds the top-level members and the members of `params` and `result` wherever they stand, keeps the small raw
values that matter (method, id, tool name), and reports anything that two parsers could read differently. Everything
deeper is skipped in bulk: escapes are blanked out, strings cut away, and only brackets counted, all in C.

    scan = MessageScan()
    scan.feed(chunk) ...          chunks of the message
    scan.finish()                 then: scan.values, scan.ambiguous
"""

from __future__ import annotations

import codecs
import re

# A captured value: an id, a method, a tool name. Longer than any of these has reason to be.
MAX_CAPTURE_BYTES = 4096
# A message with more members than this at the levels we follow is not a tool call of any real client.
MAX_FOLLOWED_MEMBERS = 4096
# Rounds of removing matched bracket pairs before counting one by one.
_COLLAPSE_ROUNDS = 8

_NOT_BRACKETS = bytes(b for b in range(256) if b not in b"{}[]")
# All that JSON has outside strings. Anything else (a comment, a single quote) could make a lenient parser begin or end
# its strings elsewhere than we do.
_OUTSIDE_STRINGS = b" \t{}[],:+-.0123456789eEtrufalsn"
# Control characters stand nowhere in JSON but for white space outside strings.
_NO_CONTROL = bytes(b for b in range(256) if b >= 0x20 or b == 0x09)
_SCALAR = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null")
_SPACE = b" \t"
_SCALAR_END = re.compile(rb"[,}\] \t]")
_TOKEN = re.compile(rb'"[^"]*"?|[{}\[\]]')
_FOLLOWED = (b"params", b"result")


class MessageScan:
    """Feed the bytes of one message; afterwards `values` maps `method`, `id`, `params.name`, ... to raw JSON.

    Not `strict`: for messages that pass whatever is in them, and of which we want to know as much as can be read.
    """

    def __init__(self, strict: bool = True) -> None:
        self.values: dict[str, bytes] = {}
        self.nested: set[str] = set()  # names of values that are objects or arrays, known only as `{}` or `[]`
        self.keys: list[tuple[str, bytes]] = []  # (container, raw key), in order, duplicates included
        self.ambiguous: str | None = None
        self._strict = strict
        self._utf8: codecs.IncrementalDecoder | None = None
        self._carry = b""  # bytes that the next chunk must be joined with
        self._state = "start"
        self._container = ""  # "" at the top level, else "params" / "result"
        self._key = b""
        self._depth = 0  # brackets open inside the value being skipped
        self._in_string = False
        self._capture: bytearray | None = None
        self._members = 0

    def feed(self, chunk: bytes) -> None:
        if self.ambiguous is not None:
            return
        if self._strict and chunk.translate(None, _NO_CONTROL):
            self._fault("a raw control character")
            return
        if self._strict and (self._utf8 is not None or not chunk.isascii()):
            if self._utf8 is None:
                self._utf8 = codecs.getincrementaldecoder("utf-8")()
            try:
                self._utf8.decode(chunk)
            except UnicodeDecodeError:
                self._fault("invalid UTF-8")
                return
        buf = self._carry + chunk if self._carry else chunk
        self._carry = b""
        # A chunk that ends inside an escape waits for its other half.
        tail = len(buf) - len(buf.rstrip(b"\\"))
        if tail % 2:
            self._carry = buf[-1:]
            buf = buf[:-1]
        # Blank out escapes without moving anything: every quote left delimits a string.
        clean = buf.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in buf else buf
        self._run(buf, clean)

    def finish(self) -> None:
        if self.ambiguous is not None:
            return
        if self._utf8 is not None:
            try:
                self._utf8.decode(b"", True)
            except UnicodeDecodeError:
                self._fault("invalid UTF-8")
                return
        if self._carry or self._state != "done":
            self._fault("incomplete JSON")

    # -- the machine ------------------------------------------------------------------------------------------

    def _fault(self, reason: str) -> None:
        self.ambiguous = reason
        self._state = "fault"

    def _run(self, buf: bytes, clean: bytes) -> None:
        pos = 0
        end = len(buf)
        while pos < end and self._state != "fault":
            state = self._state
            if state == "skip":
                pos = self._skip(buf, clean, pos)
            elif state == "key_string":
                pos = self._string(buf, clean, pos, "colon")
            elif state == "value_string":
                pos = self._string(buf, clean, pos, "after_value")
            elif state == "scalar":
                pos = self._scalar(buf, pos)
            else:
                while pos < end and buf[pos] in _SPACE:
                    pos += 1
                if pos < end:
                    pos = self._structure(buf, pos)

    def _structure(self, buf: bytes, pos: int) -> int:
        """One structural byte, where one is due."""
        byte = buf[pos]
        state = self._state
        if state == "start":
            if byte == 0x7B:
                self._state = "key_or_end"
            else:
                self._fault("a batch too large to take apart" if byte == 0x5B else "not a JSON object")
            return pos + 1
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
        self._fault("trailing bytes" if state == "done" else "invalid JSON")
        return pos

    def _value(self, byte: int, pos: int) -> int:
        if byte == 0x22:
            self._capture = bytearray(b'"')
            self._state = "value_string"
            return pos + 1
        if byte == 0x7B and self._container == "" and self._key in _FOLLOWED:
            self._container = self._key.decode()
            self._state = "key_or_end"
            return pos + 1
        if byte in b"{[":
            self._depth = 0
            self._in_string = False
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
            key = self._key.decode("ascii")
        except UnicodeDecodeError:
            return
        name = f"{self._container}.{key}" if self._container else key
        self.values[name] = raw
        if nested:
            self.nested.add(name)

    def _string(self, buf: bytes, clean: bytes, pos: int, after: str) -> int:
        quote = clean.find(b'"', pos)
        stop = quote if quote >= 0 else len(buf)
        if self._strict and buf.find(b"\t", pos, stop) >= 0:
            self._fault("a raw control character")
            return stop
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
                self._keep(b'"..."')
                if self._strict and self._key in (b"method", b"name", b"id"):
                    self._fault(f"{self._key.decode()} too long")
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
                    self._fault("invalid JSON")
                    return stop
                self._keep(bytes(capture))
                self._capture = None
        if match:
            self._state = "after_value"
        return stop

    # -- bulk skipping ----------------------------------------------------------------------------------------

    def _skip(self, buf: bytes, clean: bytes, pos: int) -> int:
        """Pass over a nested value. Most chunks cannot hold its end, and counting brackets proves it."""
        rest = clean[pos:] if pos else clean
        pieces = rest.split(b'"')
        outside = b"".join(pieces[1::2] if self._in_string else pieces[0::2])
        if self._strict and outside.translate(None, _OUTSIDE_STRINGS):
            self._fault("invalid JSON")
            return pos
        if self._strict and b"\t" in rest and outside.count(b"\t") != rest.count(b"\t"):
            self._fault("a raw control character")
            return pos
        brackets = outside.translate(None, _NOT_BRACKETS)
        for _ in range(_COLLAPSE_ROUNDS):
            fewer = brackets.replace(b"{}", b"").replace(b"[]", b"")
            if len(fewer) == len(brackets):
                break
            brackets = fewer
        closers = brackets.count(b"}") + brackets.count(b"]")
        # With depth 0 the value begins in this chunk, and a collapsed pair could be its beginning and end.
        if closers < self._depth:
            self._depth += len(brackets) - 2 * closers
            if len(pieces) % 2 == 0:
                self._in_string = not self._in_string
            return len(buf)
        return self._skip_exactly(clean, pos)

    def _skip_exactly(self, clean: bytes, pos: int) -> int:
        if self._in_string:
            quote = clean.find(b'"', pos)
            if quote < 0:
                return len(clean)
            self._in_string = False
            pos = quote + 1
        depth = self._depth
        for match in _TOKEN.finditer(clean, pos):
            token = match.group()
            if token[0] == 0x22:
                if len(token) == 1 or token[-1] != 0x22:
                    self._in_string = True
            elif token in (b"{", b"["):
                depth += 1
            else:
                depth -= 1
                if depth == 0:
                    self._depth = 0
                    self._state = "after_value"
                    return match.end()
        self._depth = depth
        return len(clean)
