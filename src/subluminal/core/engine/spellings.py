"""The texts that servers may read in a path before they open it.

Some expand variables, some take URLs, decode percent signs, turn backslashes, trim, or normalise; most do none of it.
So a text with such a character has several readings, and all of them count. A plain path has one and costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Variable = Callable[[str], str | None]

# The longest path that Linux opens. One that is longer may be shortened by the server first.
MAX_CHARS = 4_096
# A text that can be read in more ways is made for it.
MAX_SPELLINGS = 64
ANOTHER_HOST = "the path is a file URL of another host"
TOO_MANY = "the path can be read in too many ways"

_HEX = frozenset("0123456789abcdefABCDEF")
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_SCHEME = _WORD | frozenset("+-.")
_CONTROLS_AND_BLANK = "".join(map(chr, range(33)))
_ENDS = frozenset("?#;")
_SPECIAL = _ENDS | frozenset("%\\$:\"'`<>" + _CONTROLS_AND_BLANK[:-1])
_LOCAL = frozenset(("", "localhost", "127.0.0.1", "[::1]"))


def spellings(text: str, variable: Variable) -> tuple[list[str], str]:
    """The readings of a path as text, itself first; and what makes them doubtful, if anything does."""
    found = [text]
    if text.isascii() and _SPECIAL.isdisjoint(text) and text == text.strip() and not text.startswith("//"):
        return found, ""
    known = {text}
    doubt = ""
    for one in found:  # grows as it is read: a reading may have readings of its own
        for other in _readings(one, variable):
            if other is None:
                doubt = doubt or ANOTHER_HOST
            elif other not in known:
                known.add(other)
                found.append(other)
        if len(found) > MAX_SPELLINGS or len(found[-1]) > MAX_CHARS:
            return found, TOO_MANY
    return found, doubt


def _readings(text: str, variable: Variable) -> Iterator[str | None]:
    """None: a reading that leads to no path of this machine."""
    yield text.strip().strip("\ufeff").strip()
    yield text.strip(_CONTROLS_AND_BLANK)
    if text[:1] in "\"'`<" or text[-1:] in "\"'`>":
        yield text.strip("\"'`<>")
    if "%" in text:
        yield percent_decoded(text)
    if "\\" in text:
        yield text.replace("\\", "/")
    if "$" in text:
        yield _expanded(text, variable)
        yield _expanded(text, lambda name: variable(name) or "")
    if not text.isascii():
        from unicodedata import normalize  # few paths need it

        yield normalize("NFC", text)
        yield normalize("NFD", text)
    yield from _as_url(text)
    if "\0" in text:
        yield text.partition("\0")[0]


_NO_BREAKS = {ord(char): None for char in "\t\n\r"}


def _as_url(text: str) -> Iterator[str | None]:
    """The path of a URL, absolute or not: to parsers line breaks are not there, and `?`, `#` or `;` ends it."""
    joined = text.translate(_NO_BREAKS)
    yield joined
    scheme, colon, rest = joined.strip(_CONTROLS_AND_BLANK).partition(":")
    if colon and _SCHEME.issuperset(scheme):
        yield from _url_path(rest, True, scheme.lower() == "file")
    elif joined.startswith("//") or not _ENDS.isdisjoint(joined):
        yield from _url_path(joined, False, False)


def _url_path(rest: str, is_url: bool, is_file: bool) -> Iterator[str | None]:
    """What parsers, and those who only cut off the scheme, make of a URL. Percent signs are read elsewhere."""
    cut = rest.partition("#")[0].partition("?")[0]
    for path in (rest, cut, _without_parameters(cut)):
        turned = path.replace("\\", "/")
        if not turned.startswith("//"):
            yield path
            if is_url:
                yield "/" + turned.lstrip("/")
            continue
        host, slash, below = turned[2:].partition("/")
        yield path[2:]
        yield slash + below
        if is_file and percent_decoded(host).lower() not in _LOCAL:
            yield None


def _without_parameters(path: str) -> str:
    """What Python's `urlparse` takes off the last name of a path."""
    parent, slash, name = path.rpartition("/")
    return parent + slash + name.partition(";")[0]


def percent_decoded(text: str) -> str:
    """Once. What is no escape stays; bytes that are no UTF-8 are kept as Python keeps them in names of files."""
    first, *pieces = text.split("%")
    out = [first.encode("utf-8", "surrogatepass")]
    for piece in pieces:
        digits = piece[:2]
        if len(digits) == 2 and _HEX.issuperset(digits):
            out += (bytes.fromhex(digits), piece[2:].encode("utf-8", "surrogatepass"))
        else:
            out += (b"%", piece.encode("utf-8", "surrogatepass"))
    return b"".join(out).decode("utf-8", "surrogateescape")


def printable(text: str) -> str:
    """Fit to be shown: names come from agents and file systems."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _expanded(text: str, variable: Variable) -> str:
    """`$NAME` and `${NAME}`. One that is not set stays, as Python leaves it; to Go and to shells it is empty."""
    first, *pieces = text.split("$")
    out = [first]
    for piece in pieces:
        if piece.startswith("{") and "}" in piece:
            name, _, rest = piece[1:].partition("}")
        else:
            end = next((at for at, char in enumerate(piece) if char not in _WORD), len(piece))
            name, rest = piece[:end], piece[end:]
        value = variable(name) if name else None
        out += ("$", piece) if value is None else (value, rest)
    return "".join(out)
