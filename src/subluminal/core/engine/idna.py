"""Names with other letters than ASCII, as resolvers are asked for them.

Two standards are in use: IDNA 2003 (Python's own) and UTS 46 (browsers, Node, newer libraries). They agree but for four
letters, which the one maps (ß to ss) and the other keeps. Both readings are given where they differ.
"""

from __future__ import annotations

from stringprep import in_table_b1
from unicodedata import normalize

# What UTS 46 takes for a dot: ideographic, full-width and half-width full stops.
_DOTS = {0x3002: ".", 0xFF0E: ".", 0xFF61: "."}
# ß, final sigma, and the two joiners.
_KEPT_BY_ONE = frozenset("ßς\u200c\u200d")
MAX_LABEL_CHARS = 63


def ascii_names(host: str) -> tuple[list[str], bool]:
    """The host's readings in ASCII, and whether these are all: not where a label can be no name."""
    found: dict[str, None] = {}
    sure = True
    for keeping in (False, True) if any(char in _KEPT_BY_ONE for char in host) else (False,):
        labels = [_ascii(label) for label in _mapped(host, keeping).split(".")]
        if all(label is not None for label in labels):
            found[".".join(label or "" for label in labels)] = None
        else:
            sure = False
    return list(found), sure


def _mapped(host: str, keeping: bool) -> str:
    """Lower case, compatible forms as plain letters, and without what is not to be seen."""
    seen = "".join(
        char
        for char in host.translate(_DOTS)
        if char.isascii() or (keeping and char in _KEPT_BY_ONE) or not in_table_b1(char)
    )
    folded = seen if keeping else seen.replace("ς", "σ")
    folded = "".join(
        char if keeping and char in _KEPT_BY_ONE else char.casefold() for char in normalize("NFKC", folded)
    )
    return normalize("NFKC", folded).translate(_DOTS)


def _ascii(label: str) -> str | None:
    if label.isascii():
        return label
    try:
        coded = "xn--" + label.encode("punycode").decode("ascii")
    except UnicodeError:
        return None
    return coded if len(coded) <= MAX_LABEL_CHARS else None
