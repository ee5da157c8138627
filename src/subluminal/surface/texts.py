"""What a person would not see in a text that a model reads, and what in it reads like an order to the model.

    findings(definition)    [Finding("hidden_text", "description", "zero-width characters"), ...]
    visible(text)           every character that shows nothing, shown

`hidden_text` is a fact: the characters are there. `injection_like` is a hint and never proof: honest servers may word a
sentence so, and an attacker need not. Its patterns are ORDERS, by name; docs/tools.md lists them, and each has a text
that it finds and one that it must not.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec
from msgspec import Struct

from subluminal.contracts.vocabulary import HIDDEN_TEXT, INJECTION_LIKE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Longer than any description of the servers that we have seen (the longest had some 9,000 characters).
MAX_SEEN_CHARS = 16_384
# White space that pushes what follows out of sight.
PADDING_CHARS = 256
# A list of texts without end must not keep us: beyond these, what is there counts as very long.
MAX_TEXTS = 20_000
MAX_READ_CHARS = 65_536
MAX_FINDINGS = 32

_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ZERO_WIDTH = "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
_SELECTORS = "\ufe00-\ufe0d\U000e0100-\U000e01ef"
_TAGS = "\U000e0000-\U000e007f"
# A joiner has work to do between letters of the scripts that need it and between emoji, and none beside ASCII.
_JOINER = "(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
_KINDS = (
    ("terminal control sequences", re.compile("\x1b|\x9b")),
    ("control characters", re.compile(f"[{_CONTROL}]")),
    ("characters that turn the direction of text", re.compile(f"[{_BIDI}]")),
    ("zero-width characters", re.compile(f"[{_ZERO_WIDTH}]|{_JOINER}")),
    ("variation selectors", re.compile(f"[{_SELECTORS}]")),
    ("tag characters, which spell text that nobody sees", re.compile(f"[{_TAGS}]")),
    ("padding that pushes text out of sight", re.compile(rf"\s{{{PADDING_CHARS},}}")),
)
SHOWS_NOTHING = re.compile(f"[{_CONTROL}{_BIDI}{_ZERO_WIDTH}{_SELECTORS}{_TAGS}]|{_JOINER}")
_PLAIN = re.compile(r"[\t\n\r\x20-\x7e]*")
# The flags of England, Scotland and Wales are spelled with tags.
_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")

_FILES = r"\.ssh\b|\bid_rsa\b|\bid_ed25519\b|\.aws/credentials|\.kube/config|\.cursor/mcp\.json|\.netrc\b"
_FILES += r"|/etc/passwd\b"
_TAGGED = r"<\s*/?\s*(?:important|system|instructions?|secret|hidden|admin)\s*>|\[/?inst\]|<\|im_(?:start|end)\|>"
_SAY = r"(?:tell|mention|inform|notify|reveal|show|explain|disclose|alert)(?:ing|ling|ying)?\b"
_QUIETLY = rf"\b(?:do not|don't|never|must not|should not|without) {_SAY}"
_ROLE = r"\byou are now\b|\bnew (?:system )?(?:instructions|prompt)\s*:"
_CLAUSE = r"[^.\n]"
# By name: what must stand in a text at all, which is looked for first, and the whole, which RE2 looks for only then, in
# linear time. Texts are folded to lower case.
ORDERS = {
    "pseudo-tag": (_TAGGED, _TAGGED),
    "override": (
        r"\b(?:ignore|disregard|forget|override)\b",
        rf"\b(?:ignore|disregard|forget|override)\b{_CLAUSE}{{0,40}}\b(?:previous|prior|above|earlier|preceding|other)"
        rf"\b{_CLAUSE}{{0,30}}\b(?:instructions?|rules?|prompts?|messages?|guidelines)\b",
    ),
    "concealment": (
        rf"{_QUIETLY}|\bwithout (?:the user|them)\b",
        rf"{_QUIETLY}{_CLAUSE}{{0,40}}\b(?:user|human|anyone|anybody)\b|"
        r"\bwithout (?:the user|them) (?:knowing|noticing)",
    ),
    "credentials": (_FILES, _FILES),
    "redirection": (
        r"\b(?:is|are|was) (?:called|used|invoked|sent)\b|\b(?:change|replace|set) the (?:recipient|destination)\b",
        rf"\b(?:when|whenever|if|every time|each time|before|after)\b{_CLAUSE}{{0,60}}\b(?:is|are|was) "
        rf"(?:called|used|invoked|sent)\b{_CLAUSE}{{0,80}}\b(?:recipient|forward|redirect|also send|copy to|bcc)\b|"
        r"\b(?:change|replace|set) the (?:recipient|destination)\b",
    ),
    "smuggling": (
        r"\b(?:its|their|the) contents?\b",
        rf"\b(?:pass|put|include|send|append|place)\b{_CLAUSE}{{0,60}}\b(?:its|their|the) contents?\b{_CLAUSE}{{0,60}}"
        rf"\b(?:as|in|into|to|through)\b{_CLAUSE}{{0,30}}\b(?:sidenote|side note|parameter|argument)\b",
    ),
    "new role": (_ROLE, _ROLE),
}
_HINTS = {name: re.compile(hint) for name, (hint, _) in ORDERS.items()}
_whole: dict[str, Any] = {}


class Finding(Struct, frozen=True):
    """`where` is the path of the text within its definition, `what` a few words."""

    risk_class: str
    where: str
    what: str


def findings(definition: bytes | None, unread: str = "") -> list[Finding]:
    """Of a definition in canonical JSON; one that was not kept or not read is told as such."""
    if definition is None:
        why = "longer than anybody reads" if unread in ("", "too_large") else f"not read in one way only: {unread}"
        return [Finding(HIDDEN_TEXT, "", why)]
    found: dict[Finding, None] = {}
    for number, (where, text) in enumerate(_texts(msgspec.json.decode(definition))):
        if number >= MAX_TEXTS or len(found) >= MAX_FINDINGS:
            break
        for finding in _of_text(where, text):
            found[finding] = None
    return list(found)


def classes(found: list[Finding]) -> frozenset[str]:
    return frozenset(finding.risk_class for finding in found)


def _of_text(where: str, text: str) -> Iterator[Finding]:
    if len(text) > MAX_SEEN_CHARS:
        yield Finding(HIDDEN_TEXT, where, f"very long: {len(text):,} characters")
    text = text[:MAX_READ_CHARS]
    plain = _PLAIN.fullmatch(text) is not None
    seen = text if plain else _FLAG.sub("", text)
    for what, pattern in _KINDS[-1:] if plain else _KINDS:
        if pattern.search(seen):
            yield Finding(HIDDEN_TEXT, where, what)
    folded = (text if plain else _spelled_out(text)).lower()
    for name, hint in _HINTS.items():
        if hint.search(folded) and _order(name).search(folded):
            yield Finding(INJECTION_LIKE, where, name)


def _order(name: str) -> Any:
    if name not in _whole:
        import re2  # most servers give no reason to

        _whole[name] = re2.compile(ORDERS[name][1])
    return _whole[name]


def _spelled_out(text: str) -> str:
    """As a model may read it: tags as the text they spell, what shows nothing taken away, one form for each letter."""
    text = "".join(chr(ord(char) - 0xE0000) if 0xE0020 <= ord(char) <= 0xE007E else char for char in text)
    return unicodedata.normalize("NFKC", SHOWS_NOTHING.sub("", text))


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """Every text, keys among them, with its path."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, str):
            yield where, value
        elif isinstance(value, dict):
            for key, below in value.items():
                path = f"{where}.{key}" if where else key
                if not key.isidentifier():
                    yield path, key
                waiting.append((path, below))
        elif isinstance(value, list):
            waiting += ((f"{where}[]", below) for below in value)


def visible(text: str, keep: str = "\n") -> str:
    """Text of a server, as a person can read it: what shows nothing, or would be obeyed, is spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char) if char not in keep and _hides(char) else char for char in text)


def _hides(char: str) -> bool:
    return not char.isprintable() or SHOWS_NOTHING.fullmatch(char) is not None


def _shown(char: str) -> str:
    code = ord(char)
    if 0xE0020 <= code <= 0xE007E:
        return f"‹tag {chr(code - 0xE0000)}›"
    return f"‹U+{code:04X}›"
