"""Where in a text parsers find the authority of a URL, `user@host:port`.

RFC 3986, the URL standard of browsers and Node, Python's urllib, curl, git, and those who cut texts themselves do not
agree. What any of them could take for the authority is given.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANKS = "".join(map(chr, range(33)))
_NO_BREAKS = {ord(char): None for char in "\t\n\r"}
_SCHEME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.")
_HEX_AND_COLONS = frozenset("0123456789abcdefABCDEF:.")
# To the URL standard any number of slashes, none included, and of either kind, stand before their host.
_SPECIAL = frozenset(("http", "https", "ws", "wss", "ftp"))
# `view-source:blob:https://...` and the like; deeper than this is made for it.
MAX_NESTED = 3


def authorities(text: str) -> list[str]:
    """Every part of the text that could be one; without repeats, and none where the text has no host."""
    found: dict[str, None] = {}
    for spelled in _spelled(text):
        for authority in _of_url(spelled, MAX_NESTED):
            if authority:
                found[authority] = None
    return list(found)


def _spelled(text: str) -> Iterator[str]:
    """Without breaks as browsers read it; up to the first blank, as others do; out of its wrapping."""
    trimmed = text.strip().strip(_BLANKS)
    joined = trimmed.translate(_NO_BREAKS)
    yield joined
    if any(char in trimmed for char in "\t\n\r "):
        yield trimmed.split(None, 1)[0]
    if joined[:1] in "<\"'`(" or joined[:4].lower() == "url:":
        bare = joined.strip("<>\"'`() ")
        yield bare[4:] if bare[:4].lower() == "url:" else bare


def _of_url(text: str, nested: int) -> Iterator[str]:
    scheme, rest = _scheme(text)
    turned = rest.replace("\\", "/") if "\\" in rest else rest
    if turned.startswith("//"):
        yield from _ends(rest.lstrip("/\\") if scheme is None or scheme in _SPECIAL else rest[2:])
        return
    if scheme is None:
        if not turned.startswith(("/", "?", "#")):
            yield from _ends(text)
        return
    if scheme in _SPECIAL:
        yield from _ends(rest.lstrip("/\\"))
        return
    if scheme == "file":
        return
    # `localhost:8080/x`, `user:password@host/x`, and `host:directory` as git and scp have it.
    yield from _ends(text)
    if "://" in rest and nested:
        yield from _of_url(rest, nested - 1)


def _scheme(text: str) -> tuple[str | None, str]:
    name, colon, rest = text.partition(":")
    if colon and name[:1].isascii() and name[:1].isalpha() and _SCHEME.issuperset(name):
        return name.lower(), rest
    return None, text


def _ends(text: str) -> Iterator[str]:
    """Up to the path, for those to whom a backslash begins one and for those to whom it does not."""
    end = min((at for char in "/?#" if (at := text.find(char)) >= 0), default=len(text))
    yield text[:end]
    if (turned := text.find("\\", 0, end)) >= 0:
        yield text[:turned]


def split_authority(authority: str) -> list[str]:
    """The hosts in it: after the last @, and after the first; before the last colon, and before the first."""
    found: dict[str, None] = {}
    last = authority.rpartition("@")[2]
    for part in (last, authority.partition("@")[2]) if authority.count("@") > 1 else (last,):
        if part.startswith("["):
            found[part[: part.find("]") + 1] or part] = None
        elif part.count(":") > 1:
            found[part] = None  # an IPv6 address without its brackets, or nonsense
            if _HEX_AND_COLONS.issuperset(part.partition("%")[0]):
                continue
            found[part.partition(":")[0]] = None
            found[part.rpartition(":")[0]] = None
        else:
            found[part.partition(":")[0]] = None
    return [host for host in found if host]
