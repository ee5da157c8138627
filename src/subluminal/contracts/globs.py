"""Globs on names of servers and tools: in policies, queries, live streams and the HTTP API a pattern means the same.

A glob is a glob on a name, not a path: `*` matches any characters, `/` too; `?` one character; `[abc]`, `[a-z]`,
`[!abc]` one of a set. A bracket that is not closed is itself, and so is everything else, `\\` and `^` included. Case
counts. To find a name that holds one of `*?[`, put it into a set: `a[*]b`.

Names are chosen by agents and patterns by anyone with a token, so a test takes time linear in the name, whatever the
pattern: the places a match can have reached are the bits of one number, moved on together for each character.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    NameTest = Callable[[str], bool]

# Four times the longest tool name that clients accept.
MAX_GLOB_CHARS = 512
# Sets are kept as the characters they hold.
MAX_SET_RANGE = 256


def is_glob(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def literal_head(glob: str) -> str:
    """The fixed text a glob starts with: all of it, where it is a plain name."""
    for i, char in enumerate(glob):
        if char in "*?[":
            return glob[:i]
    return glob


def glob_tokens(glob: str) -> list[str]:
    """Stars, question marks, whole `[...]` sets, and single characters; an unclosed bracket is a character."""
    tokens = []
    at = 0
    while at < len(glob):
        end = at + 1
        if glob[at] == "[":
            close = glob.find("]", at + 3 if glob[at + 1 : at + 2] == "!" else at + 2)
            end = close + 1 if close >= 0 else end
        tokens.append(glob[at:end])
        at = end
    return tokens


def glob_fault(glob: str) -> tuple[str, str] | None:
    """What is wrong with a glob, and what to do."""
    if len(glob) > MAX_GLOB_CHARS:
        return f"has {len(glob):,} characters; no name is that long", f"use at most {MAX_GLOB_CHARS} characters"
    for token in glob_tokens(glob) if "[" in glob else ():
        body = token[1:-1].removeprefix("!")
        for at in range(1, len(body) - 1):
            if body[at] == "-" and not 0 <= ord(body[at + 1]) - ord(body[at - 1]) < MAX_SET_RANGE:
                return f"has the range {body[at - 1 : at + 2]}, which is empty or too wide", "use ? or a narrower range"
    return None


def glob_test(glob: str) -> NameTest:
    if "?" in glob or "[" in glob:
        return _places_test(glob)
    parts = glob.split("*")
    if len(parts) == 1:
        return glob.__eq__
    head, tail = parts[0], parts[-1]
    middle = [part for part in parts[1:-1] if part]
    if not middle:
        if not tail:
            return lambda name: name.startswith(head)
        if not head:
            return lambda name: name.endswith(tail)
        least = len(head) + len(tail)
        return lambda name: len(name) >= least and name.startswith(head) and name.endswith(tail)

    def test(name: str) -> bool:
        end = len(name) - len(tail)
        at = len(head)
        if not (name.startswith(head) and name.endswith(tail)):
            return False
        for part in middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return at <= end

    return test


def _places_test(glob: str) -> NameTest:
    """Bit i of `places`: the first i tokens can have matched what was read. A star lets a match stay at its place."""
    taken: dict[str, int] = {}
    missed: dict[str, int] = {}
    any_char = stars = 0
    bit = 1
    for token in glob_tokens(glob):
        if token == "*":
            stars |= bit
            continue
        negated = token.startswith("[!")
        if negated or token == "?":
            any_char |= bit
        kept = missed if negated else taken
        for char in _characters(token):
            kept[char] = kept.get(char, 0) | bit
        bit <<= 1
    steps = {char: any_char & ~missed.get(char, 0) | taken.get(char, 0) for char in (*taken, *missed)}

    def test(name: str) -> bool:
        places = 1
        for char in name:
            places = (places & steps.get(char, any_char)) << 1 | places & stars
            if not places:
                return False
        return places & bit != 0

    return test


def _characters(token: str) -> set[str]:
    if len(token) == 1:
        return set() if token == "?" else {token}
    body = token[1:-1].removeprefix("!")
    chars: set[str] = set()
    i = 0
    while i < len(body):
        if i + 2 < len(body) and body[i + 1] == "-":
            # `glob_fault` refuses wide ranges; one that comes another way must not cost a million entries.
            chars.update(map(chr, range(ord(body[i]), min(ord(body[i + 2]), ord(body[i]) + 65_535) + 1)))
            i += 3
        else:
            chars.add(body[i])
            i += 1
    return chars
