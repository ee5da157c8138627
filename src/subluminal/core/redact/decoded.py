r"""Secrets inside encoded rows: base32, base64 of base64, UTF-16 in base64 or hex, hex with separators, lists of bytes.

Spellings of such combinations do not end, so they are found from the other side: a row of text that may be an encoding
is decoded at every alignment, the heads of the values are looked for in what comes out, and that is decoded in turn.
Wherever one is found, the whole row is masked. What `spellings` finds exactly is not looked for here.

Cheap first: a text without a row of the length that the shortest value needs is passed over with two translations.
Everything else is linear as well, and works on bytes: most shims never need RE2.
"""

from __future__ import annotations

from subluminal.core.redact.spellings import HEAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Encodings of encodings that are opened.
DEPTH = 3
_DIGITS = b"0123456789"
_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALNUM = _DIGITS + _UPPER + _UPPER.lower()
_HEX = _DIGITS + b"ABCDEFabcdef"
# A row may go over several lines, and these may be escapes: `\n`.
_WRAPS = b"\r\n\\"
# Around and between the numbers of a row: `aa:bb`, `AA-BB`, `0xaa, 0xbb`, `\xaa`, `97, 98`.
_BETWEEN = b" :,;._-\t\r\n\\xXrnt"
_BASE32 = bytes.maketrans(_UPPER + b"234567", b"0123456789abcdefghijklmnopqrstuv")
_STANDARD = bytes.maketrans(b"-_", b"+/")


def _marks(of: bytes) -> bytes:
    """A table that makes `x` of these and a blank of all others."""
    return bytes(0x78 if byte in of else 0x20 for byte in range(256))


def _others(than: bytes) -> bytes:
    return bytes(byte for byte in range(256) if byte not in than)


_BASE64 = _ALNUM + b"+/-_"
_PLAIN_ROWS = _marks(_ALNUM + _WRAPS)
_BASE64_ROWS = _marks(_BASE64 + _WRAPS + b"%")
_UPPER_ROWS = _marks(_UPPER + b"234567nr" + _WRAPS)
_LOWER_ROWS = _marks(_UPPER.lower() + b"234567" + _WRAPS)
_NUMBER_ROWS = _marks(_HEX + _BETWEEN)
_HEX_MARKS = _marks(_HEX)
_NO_BASE64 = _others(_BASE64)
_NO_HEX = _others(_HEX)
_NO_BASE32 = _others(_UPPER + b"234567")
_NUMBERS = bytes(byte if byte in _DIGITS else 0x20 for byte in range(256))


class Decoder:
    """Of values that are long enough to be found. It keeps no more of them than their heads."""

    __slots__ = ("_heads", "_kinds", "_long", "_numbers", "_rows")

    def __init__(self, values: Iterable[bytes]) -> None:
        known = list(values)
        need = min(HEAD, *map(len, known))
        wide = [head for value in known for head in _wide(value)]
        self._heads = [*(value[:HEAD].replace(b"\0", b"") for value in known), *wide]
        # ASCII text in base64, and that or UTF-16 in base64 again, makes neither `+` nor `/`, but for three characters.
        plain = not wide and not any(set(head) & set(b">?~") for head in self._heads)
        self._rows = _PLAIN_ROWS if plain else _BASE64_ROWS
        self._long = b"x" * -(-need * 8 // 6)
        self._numbers = b"x" * (2 * need)
        base32 = b"x" * -(-need * 8 // 5)
        self._kinds: list[tuple[bytes, bytes, Callable[[bytes], Iterator[bytes]]]] = [
            (_BASE64_ROWS, self._long, _of_base64),
            (_UPPER_ROWS, base32, _of_base32),
            (_LOWER_ROWS, base32, _of_base32),
            (_NUMBER_ROWS, self._numbers, _of_numbers),
        ]

    def suspects(self, data: bytes) -> bool:
        """Whether there is a row long enough to hold a value."""
        if self._long in data.translate(self._rows):
            return True
        return self._numbers in data.translate(_HEX_MARKS, _BETWEEN)

    def find(self, data: bytes, depth: int = DEPTH) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        if self.suspects(data):
            for table, need, views in self._kinds:
                marks = data.translate(table)
                start = marks.find(need)
                while start >= 0:
                    end = marks.find(b" ", start)
                    end = len(data) if end < 0 else end
                    if self._hold(list(views(data[start:end])), depth):
                        found.append((start, end))
                    start = marks.find(need, end)
        return found

    def _hold(self, views: list[bytes], depth: int) -> bool:
        text = b"\xff".join(views).replace(b"\0", b"")  # so that ASCII in UTF-16 and UTF-32 reads as it is
        if any(head in text for head in self._heads):
            return True
        # Of all alignments one is right; the others give bytes at random, which are no row.
        return depth > 1 and bool(self.find(text, depth - 1))


def _wide(value: bytes) -> list[bytes]:
    """The beginning of a value that is not ASCII, in UTF-16."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return []
    return (
        [] if text.isascii() else [text[:HEAD].encode(code).replace(b"\0", b"") for code in ("utf-16-le", "utf-16-be")]
    )


def _unescaped(row: bytes) -> bytes:
    """In one line, and `+` and `/` as they are."""
    while b"\\\\" in row:
        row = row.replace(b"\\\\", b"\\")
    if b"\\" in row:
        row = row.replace(b"\\n", b"").replace(b"\\r", b"").replace(b"\\u002b", b"+").replace(b"\\u002f", b"/")
    if b"%" in row:
        while b"%25" in row:
            row = row.replace(b"%25", b"%")
        for escape, plain in ((b"%2B", b"+"), (b"%2F", b"/"), (b"%0D", b""), (b"%0A", b"")):
            row = row.replace(escape, plain).replace(escape.lower(), plain)
    return row.translate(_STANDARD, _NO_BASE64)


def _of_base64(row: bytes) -> Iterator[bytes]:
    from binascii import a2b_base64

    digits = _unescaped(row)
    for start in range(4):
        part = digits[start:]
        yield a2b_base64(part + b"A" * (-len(part) % 4))


def _of_base32(row: bytes) -> Iterator[bytes]:
    digits = _unescaped(row).upper().translate(_BASE32, _NO_BASE32)
    bits = int(digits or b"0", 32)  # a power of two: linear, and of any length
    for shift in range(8):
        yield (bits >> shift).to_bytes(5 * len(digits) // 8 + 1, "big")


def _of_numbers(row: bytes) -> Iterator[bytes]:
    """Pairs of hex digits, however they are parted; and decimal numbers."""
    texts = [row.replace(b"0x", b" ").replace(b"0X", b" ")]
    if texts[0] != row:
        texts.append(row)  # `20x` may be a pair and an `x`
    for text in texts:
        digits = text.translate(None, _NO_HEX).decode("ascii")
        for start in range(2):
            yield bytes.fromhex(digits[start : len(digits) - (len(digits) - start) % 2])
    if 4 * len(digits) <= 3 * (len(row) + 1):
        yield bytes(int(number[-3:]) & 0xFF for number in row.translate(_NUMBERS).split())
