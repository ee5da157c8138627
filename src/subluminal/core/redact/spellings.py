r"""How one secret value can appear in text, and how to find it there.

A value travels raw, JSON-escaped (once, twice, `\/`, `\u0041`), percent-encoded (`%2B`, `%252B`, `+`), HTML-escaped,
as hex, inside base64 at any of three alignments and wrapped into lines, or read as UTF-16. Listing the combinations
does not end, so each form becomes one linear-time pattern: a row of units, one per character, each matching every
spelling of it.

A pattern needs only the head of a form (`HEAD` units) and then takes as much as continues to match. So a value that
was cut off is masked as well, and an 8 KiB value needs no 8 KiB pattern. Backslashes in a value are not matched but
skipped: how many of them stand in the text depends on how often it was escaped.

Anchors are the cheap side: a form's pattern cannot match unless one of its anchors stands in the text, or, for the
plain form, the text holds an escape that could hide a letter or digit.
"""

from __future__ import annotations

# `typing` imports `re`, which the shim must not pay for.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# Below this a value occurs in ordinary text by chance, and masking it would both destroy the text and show the value.
MIN_SECRET_BYTES = 4
# Units that must match before anything is masked; longer than the fixed start of common tokens (`sk-ant-api03-`).
HEAD = 16
# Units per compiled pattern. Long values are followed piece by piece.
PIECE = 48
# A key file is shown line by line by many tools: each line of a value is a form of its own.
MIN_LINE_BYTES = 16
MAX_LINES = 256

_ALNUM = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_META = frozenset(b"\\.+*?()|[]{}^$")
_BACKSLASH = rb"(?:\\|%(?:25)*5[cC]|\\+[ux](?:00)?5[cC]|&(?:amp;)*#(?:0*92|[xX]0*5[cC]);)"
_LINE_BREAK = rb"(?:[\r\n]|\\+[rn]|%0[aAdD])*"
# An escape that the end of the text has cut in two.
_CUT_ESCAPE = (
    rb"(?:\\+(?:[uU][0-9a-fA-F]{0,7}|x[0-9a-fA-F]?)?|%(?:25)*[0-9a-fA-F]?|&(?:amp;)*(?:#?[a-zA-Z0-9]{0,6})"
    rb"|[\xc2-\xf4][\x80-\xbf]{0,2})?"
)
# The backslash that begins an escape, when JSON text was percent-encoded afterwards: `%5Cn`.
_ESC = rb"(?:\\|%(?:25)*5[cC])+"
# Between the characters of a text that is read as UTF-16 or UTF-32 of either end.
_ZERO = rb"\x00|\\+(?:u0000|x00|0+)|%(?:25)*00|&(?:amp;)*#(?:0+|[xX]0+);"
_ZEROS = b"(?:" + _ZERO + b")*"
_ZEROS_AND_BACKSLASHES = b"(?:" + _ZERO + b"|" + _BACKSLASH + b")*"
_NAMED = {
    "\n": _ESC + rb"n|\r\n|" + _ESC + b"r" + _ESC + b"n",
    "\r": _ESC + b"r",
    "\t": _ESC + b"t",
    "\b": _ESC + b"b",
    "\f": _ESC + b"f",
    " ": rb"\+",
}
_ENTITIES = {'"': b"quot", "'": b"apos", "<": b"lt", ">": b"gt", "&": b"amp", "\n": b"NewLine", "\t": b"Tab"}


def compile_pattern(pattern: bytes, *, longest: bool = False) -> Any:
    """RE2 over bytes. Imported here because it costs 3 MB and 10 ms that most shims never need.

    `longest` finds the longest of all readings: `%25` may be one percent sign or three characters of a value.
    """
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 32 << 20
    options.log_errors = False
    options.longest_match = longest
    return re2.compile(pattern, options)


_MAX_COMPILED = 1024
_compiled_symbols: dict[bytes, Any] = {}


def _compiled(unit: bytes) -> Any:
    """Values share their characters, so the patterns of single ones are kept."""
    pattern = _compiled_symbols.get(unit)
    if pattern is None:
        pattern = compile_pattern(unit, longest=True)
        if len(_compiled_symbols) < _MAX_COMPILED:
            _compiled_symbols[unit] = pattern
    return pattern


class Form:
    """One spelling family of a secret: `anchors` to suspect it, `find` to locate it.

    `symbols` are what must follow each other; `spell` gives the pattern of one of them. Patterns are made when they are
    needed, piece by piece: most forms are never looked for.
    """

    __slots__ = (
        "_edge", "_head", "_patterns", "_plain", "_spell", "_symbols", "anchors", "escapable", "is_line", "shared",
    )  # fmt: skip

    def __init__(
        self,
        symbols: Sequence[Any],
        spell: Callable[[Any], bytes],
        plain: Callable[[Any], bytes],
        anchors: list[bytes],
        *,
        escapable: bool = False,
        is_line: bool = False,
        shared: bytes = b"",
    ) -> None:
        self._symbols = symbols
        self._spell = spell
        self._plain = plain  # symbols in their commonest spelling
        self.anchors = anchors
        self.escapable = escapable
        self.is_line = is_line
        # Characters beside a base64 run that carry some bits of the value and some of its neighbours.
        self.shared = shared
        self._patterns: dict[Any, Any] = {}  # by symbol
        self._head: Any = None
        self._edge: Any = None

    def find(self, data: bytes) -> list[tuple[int, int]]:
        """Every place where the form's head stands, each as far as the form continues."""
        if self._head is None:
            units = self._units(0, PIECE)
            need = b"".join(units[:HEAD]).removeprefix(_LINE_BREAK)
            self._head = compile_pattern(self.shared + need + _as_far_as_it_goes(units[HEAD:]), longest=True)
        spans: list[tuple[int, int]] = []
        position = 0
        while True:
            match = self._head.search(data, position)
            if match is None:
                return spans
            end = match.end()
            if len(self._symbols) > PIECE and match.end(1) >= 0:
                end = self._follow(data, end)
            if self.shared:
                end = self._take_shared(data, end)
            spans.append((match.start(), end))
            position = max(end, match.start() + 1)

    def find_at_edge(self, data: bytes) -> tuple[int, int] | None:
        """The end of `data`, where it is the beginning of the form and too short for `find`."""
        if self._edge is None:
            pattern = b""
            for unit in reversed(self._units(0, HEAD - 1)):
                pattern = unit + (b"(?:" + pattern + b")?" if pattern else b"")
            self._edge = compile_pattern(pattern.removeprefix(_LINE_BREAK) + _CUT_ESCAPE + rb"\z", longest=True)
        match = self._edge.search(data, max(0, len(data) - 40 * HEAD))
        return None if match is None else (match.start(), match.end())

    def _units(self, start: int, stop: int) -> list[bytes]:
        return [self._spell(symbol) for symbol in self._symbols[start:stop]]

    def _follow(self, data: bytes, end: int) -> int:
        """Symbol by symbol after the first piece: patterns for all of a long value would take megabytes."""
        places = {end}
        index = PIECE
        while index < len(self._symbols):
            part = self._symbols[index : index + PIECE]
            plain = self._plain(part)
            if len(places) == 1 and data.startswith(plain, end := max(places)):
                places = {end + len(plain)}
                index += len(part)
                continue
            following = self._step(data, places, index)
            if not following:
                break
            places = following
            index += 1
        return max(places)

    def _step(self, data: bytes, places: set[int], index: int) -> set[int]:
        """Where the text may stand after one more symbol. Two readings of `%25` are both followed."""
        symbol = self._symbols[index]
        plain = self._plain(self._symbols[index : index + 1])
        following = set()
        for place in places:
            if data.startswith(plain, place):
                following.add(place + len(plain))
                if plain[0] not in b"%&\\+":
                    continue
            pattern = self._patterns.get(symbol)
            if pattern is None:
                pattern = self._patterns[symbol] = _compiled(self._spell(symbol))
            match = pattern.match(data, place)
            if match is not None and match.end() > place:
                following.add(match.end())
        return following

    def _take_shared(self, data: bytes, end: int) -> int:
        for _ in range(2):
            if end < len(data) and (data[end] in _ALNUM or data[end] in b"+/-_"):
                end += 1
        while end < len(data) and data[end] == 0x3D:
            end += 1
        return end


def forms_of(value: bytes) -> list[Form]:
    """All forms of one secret value of at least `MIN_SECRET_BYTES`."""
    forms = [_plain(value)]
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        forms += [_plain(line, is_line=True) for line in lines[:MAX_LINES] if len(line) >= MIN_LINE_BYTES]
    forms += [form for offset in range(3) if (form := _base64(value, offset)) is not None]
    forms.append(_hex(value))
    return forms


def _plain(value: bytes, *, is_line: bool = False) -> Form:
    try:
        text, encoding = value.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = value.decode("latin-1"), "latin-1"
    symbols: Sequence[str] = text if "\\" not in text else _symbols(text)
    return Form(
        symbols,
        lambda symbol: _spell_text(symbol, encoding),
        lambda part: "".join(part).encode(encoding),
        [_longest_run(text)],
        escapable=not is_line,
        is_line=is_line,
    )


def _longest_run(text: str) -> bytes:
    """The longest row of letters and digits among the characters that must match: no encoder changes those."""
    head = text[: _covering(text, HEAD)]
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in head).split()
    return max(words, key=len, default="").encode()


def _covering(text: str, count: int) -> int:
    """How many characters of `text` hold its first `count` that are not backslashes."""
    seen = 0
    for index, c in enumerate(text):
        if c != "\\":
            seen += 1
            if seen == count:
                return index + 1
    return len(text)


def _symbols(text: str) -> list[str]:
    """Characters, each with the backslashes before it; those at the end go to the last one."""
    symbols: list[str] = []
    run = ""
    for c in text:
        if c == "\\":
            run += c
        else:
            symbols.append(run + c)
            run = ""
    if not symbols:
        return list(run)
    symbols[-1] += run
    return symbols


def _spell_text(symbol: str, encoding: str) -> bytes:
    c = symbol.strip("\\")
    if not c:
        return _ZEROS + _BACKSLASH
    plain = symbol[0] != "\\" and c.isascii() and c.isalnum()
    unit = (_ZEROS if plain else _ZEROS_AND_BACKSLASHES) + _unit(c, encoding)
    return unit + _ZEROS_AND_BACKSLASHES if symbol[-1] == "\\" else unit


def _unit(c: str, encoding: str) -> bytes:
    """Every spelling of one character."""
    code = ord(c)
    encoded = c.encode(encoding)
    spellings = [_quote(encoded), b"".join(b"%%(?:25)*%b" % _hex_digits(b"%02x" % byte) for byte in encoded)]
    if code < 0x10000:
        spellings.append(_ESC + b"u" + _hex_digits(b"%04x" % code))
    else:
        high, low = divmod(code - 0x10000, 0x400)
        pair = (_hex_digits(b"%04x" % (0xD800 + high)), _hex_digits(b"%04x" % (0xDC00 + low)))
        spellings += [b"%bu%b%bu%b" % (_ESC, pair[0], _ESC, pair[1]), _ESC + b"U" + _hex_digits(b"%08x" % code)]
    if code < 0x100:
        spellings.append(_ESC + b"x" + _hex_digits(b"%02x" % code))
    spellings.append(b"&(?:amp;)*#(?:0*%d|[xX]0*%b);?" % (code, _hex_digits(b"%x" % code)))
    if code > 0x7F and encoding == "utf-8":
        for wide in ("utf-16-le", "utf-16-be"):
            spellings.append(b"".join(_unit(chr(byte), "latin-1") for byte in c.encode(wide)))
    if c in _ENTITIES:
        spellings.append(b"&(?:amp;)*%b;" % _ENTITIES[c])
    if c in _NAMED:
        spellings.append(_NAMED[c])
    return b"(?:" + b"|".join(spellings) + b")"


def _base64(value: bytes, offset: int) -> Form | None:
    """The characters that depend on the value alone when `offset` bytes stand before it in a group of three."""
    inner = _base64_inner(value, offset)
    if len(inner) < 4:
        return None
    return Form(inner, _spell_base64, bytes, _half_runs(inner), shared=rb"[A-Za-z0-9+/_-]{0,2}")


def _spell_base64(byte: int) -> bytes:
    if byte in _ALNUM:
        return _LINE_BREAK + b"%c" % byte
    if byte == 0x2B:
        return _LINE_BREAK + rb"(?:[+-]|%(?:25)*2[bB]|\\+u002[bB])"
    return _LINE_BREAK + rb"(?:\\*[/_]|%(?:25)*2[fF]|\\+u002[fF])"


def _base64_inner(value: bytes, offset: int) -> bytes:
    bits = int.from_bytes(value, "big")
    total = 8 * len(value)
    skipped = -(8 * offset) % 6
    count = (total - skipped) // 6
    # Rows of 6 bits, cut from the front without building strings of digits: values may be 8 KiB long.
    bits = (bits & ((1 << (total - skipped)) - 1)) >> ((total - skipped) % 6)
    packed = (bits << (-6 * count % 8)).to_bytes((6 * count + 7) // 8, "big")
    return _sextets(packed, count)


def _sextets(packed: bytes, count: int) -> bytes:
    from binascii import b2a_base64

    return b2a_base64(packed, newline=False)[:count]


def _hex(value: bytes) -> Form:
    return Form(value, lambda byte: _LINE_BREAK + _hex_digits(b"%02x" % byte), lambda part: part.hex().encode(), [])


def hex_anchors(value: bytes) -> list[bytes]:
    """Lower case: to be looked for in lowered text. Two halves, because a line break may split one of them."""
    digits = value[:HEAD].hex().encode()
    half = len(digits) // 2
    return [digits[:half], digits[half:]]


def _half_runs(inner: bytes) -> list[bytes]:
    """A line break may split one half; it cannot split both."""
    head = inner[:HEAD]
    middle = len(head) // 2
    return [_alnum_run(part) for part in (head[:middle], head[middle:])]


def _alnum_run(data: bytes) -> bytes:
    words = bytes(byte if byte in _ALNUM else 0x20 for byte in data).split()
    return max(words, key=len, default=b"")


def _as_far_as_it_goes(units: list[bytes]) -> bytes:
    """`a(?:b(?:c()?)?)?`: group 1 tells whether the last unit was reached."""
    pattern = b"()"
    for unit in reversed(units):
        pattern = b"(?:" + unit + pattern + b")?"
    return pattern


def _hex_digits(digits: bytes) -> bytes:
    return b"".join(b"[%c%c]" % (d, d - 32) if d > 0x60 else b"%c" % d for d in digits)


def _quote(data: bytes) -> bytes:
    return b"".join(
        b"\\%c" % byte if byte in _META else b"\\x%02x" % byte if byte > 0x7E or byte < 0x20 else b"%c" % byte
        for byte in data
    )
