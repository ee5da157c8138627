"""Texts: the values themselves where they are few, else how they begin, else the letters they are made of.

A set is made where the calls whose value has no support are few: by Good and Turing about the share of values still to
come. At first it may be `STRICT_TAIL` of them, for what refuses too much is widened later; then `TAIL`. Heads (`WEB-`
of `WEB-123`) follow the same rule. What is left is a shape, the narrowest that fewer than `SUPPORT` runs break.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.evidence import Values
from subluminal.control.suggest.limits import statements
from subluminal.control.suggest.limits.hosts import urls_of
from subluminal.control.suggest.limits.limit import Limit
from subluminal.control.suggest.tokens import example_of, is_copyable

STRICT_SET, STRICT_TAIL = 60, 0.1
MAX_SET, TAIL = 24, 0.02
MAX_HEAD = 40
# Sentences begin with many words: a few heads are names of kinds (`button`, `link`), more are chance.
MAX_PROSE_HEADS = 6
# Longer texts are prose: they have no head and no set.
MAX_WORD = 200

_HEAD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,30}(?:[-_/:.#@!]|\b)|[#@/!]")
_EMAIL = re.compile(r"[^@\s,;<>\"]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)")

# From the narrowest to the widest: what a text is made of, in words, as a regex for the whole.
SHAPES: tuple[tuple[str, str], ...] = (
    ("digits", "[0-9]+"),
    ("hexadecimal digits", "[0-9a-f]+"),
    ("letters, digits, _ and -", "[A-Za-z0-9_-]+"),
    ("a name without blanks", r"[A-Za-z0-9_.:/@#+=-]+"),
    ("one line without shell signs", r"[^\r\n\x00;|&`$<>{}\\]*"),
    ("one line", r"[^\r\n\x00]*"),
)
_TESTS = [(words, regex, re.compile(regex)) for words, regex in SHAPES]


def fit(values: Values, level: int, pool: dict[str, list[Any]] | None = None) -> Limit | None:
    """`pool`: the texts of all tools of the server that have this argument; where they are a set, it is this tool's."""
    texts = values.texts
    if sum(_EMAIL.fullmatch(text) is not None for text in texts) >= 0.95 * len(texts):
        return _emails(texts)
    if statements.are_statements(texts):
        return statements.fit(texts, level)
    calls = sum(times for times, _ in texts.values())
    if level < 2:
        of_all = sum(times for times, _ in pool.values()) if pool else 0
        for form, most, tail in ((1, MAX_SET, TAIL), (0, STRICT_SET, STRICT_TAIL))[: 2 - level]:
            found = _set(texts, calls, most, tail) or (_set(pool, of_all, most, tail) if pool else None)
            if found is not None:
                found.form = form
                return found
    if level < 3 and (found := _heads(texts, calls)) is not None:
        found.form = 2
        return found
    return _shape(texts, level)


def _runs(texts: dict[str, list[Any]], of: Callable[[str], str | None]) -> dict[str, list[Any]]:
    """By a part of each text: calls, runs and how many texts have it."""
    found: dict[str, list[Any]] = {}
    for text, (times, runs) in texts.items():
        part = of(text)
        if part is not None:
            known = found.setdefault(part, [0, set(), 0])
            known[0] += times
            known[1] |= runs
            known[2] += 1
    return found


def _few(counted: dict[str, list[Any]], calls: int, most: int = MAX_SET, tail: float = TAIL) -> list[str] | None:
    """What has support, if it is little and nearly all: few calls had another value, or fewer than SUPPORT runs."""
    known = [part for part, (_, runs, *_) in counted.items() if len(runs) >= SUPPORT]
    if not 0 < len(known) <= most:
        return None
    rest = calls - sum(counted[part][0] for part in known)
    if rest > tail * calls:
        others = {run for part, (_, runs, *_) in counted.items() if len(runs) < SUPPORT for run in runs}
        if len(others) >= SUPPORT:
            return None
    return sorted(known)


def _set(texts: dict[str, list[Any]], calls: int, most: int, tail: float) -> Limit | None:
    known = _few(texts, calls, most, tail)
    if known is None or not all(len(text) <= MAX_WORD and is_copyable(text) for text in known):
        return None
    words = "one value" if len(known) == 1 else f"{len(known)} values"
    message = f"is one of {', '.join(known)}" if len(known) > 1 else f"is {known[0]}"
    return Limit("set", [("key_in", known)], words, known[:3], ["unseen-value"], message=message)


def _heads(texts: dict[str, list[Any]], calls: int) -> Limit | None:
    counted = _runs(texts, _head)
    known = _few(counted, calls)
    if known is None or not all(is_copyable(head) for head in known):
        return None
    if not all(counted[head][2] >= SUPPORT or not head[-1:].isalnum() for head in known):
        return None
    if len(known) > MAX_PROSE_HEADS and sum(" " in text for text in texts) * 10 > len(texts):
        return None
    rests = {text: texts[text] for text in texts if _head(text) in known}
    words, rest = _shape_of({text[len(_head(text) or "") :]: seen for text, seen in rests.items()}, empty=True)
    if rest is None:
        return None
    regex = f"^(?:{'|'.join(re.escape(head) for head in known)})(?:{rest})?$"
    shown = ", ".join(known)
    limit = Limit(
        "heads", [("key_regex", [regex])], f"begins with {shown}, then {words}", _examples(texts), ["~unseen"]
    )
    limit.heads = sorted(known, key=len, reverse=True)
    limit.message = f"begins with {shown}, and goes on with {words}"
    limit.urls = [] if "://" not in regex and words != SHAPES[-1][0] else urls_of(texts)
    return limit


def _head(text: str) -> str | None:
    found = _HEAD.match(text)
    return found[0] if found and len(found[0]) <= MAX_HEAD and len(text) <= MAX_WORD else None


def _shape(texts: dict[str, list[Any]], level: int) -> Limit:
    words, regex = _shape_of(texts) if level < 4 else ("any text", None)
    predicates = [] if regex is None else [("key_regex", [f"^{regex}$"])]
    limit = Limit("text", predicates, words, _examples(texts), ["a\nb"], widest=level >= 4)
    limit.message = f"is {words}"
    limit.form = max(level, 3)
    has_urls = regex is None or ":" in regex or "^\\r" in regex
    limit.urls = urls_of(texts) if has_urls and level < 5 else None
    return limit


def is_prose(limit: Limit) -> bool:
    """Whether a shape has room for sentences."""
    narrow = {regex for _, regex in SHAPES[:4]}
    return not any(what[0].strip("^$") in narrow for name, what in limit.predicates if name == "key_regex")


def _shape_of(texts: dict[str, list[Any]], *, empty: bool = False) -> tuple[str, str | None]:
    """The narrowest that fewer than SUPPORT runs break."""
    for words, regex, test in _TESTS:
        broken: set[int] = set()
        for text, (_, runs) in texts.items():
            if not test.fullmatch(text) and not (empty and not text):
                broken |= runs
        if len(broken) < SUPPORT:
            return words, regex
    return "any text", None


def _emails(texts: dict[str, list[Any]]) -> Limit | None:
    """Addresses are people's: only their domains are learned."""
    counted = _runs(texts, _domain)
    known = sorted(domain for domain, (_, runs, _) in counted.items() if len(runs) >= SUPPORT)
    if not known:
        return None
    regex = rf"^[^@\s,;<>\"]+@(?i:{'|'.join(map(re.escape, known))})$"
    shown = ", ".join(known[:6])
    limit = Limit("email", [("key_regex", [regex])], f"one address at {shown}", [f"…@{known[0]}"], ["x@unseen.invalid"])
    limit.message = f"is one address at {shown}"
    limit.widest = True
    return limit


def _domain(text: str) -> str | None:
    found = _EMAIL.fullmatch(text)
    return found[1].lower() if found else None


def _examples(texts: dict[str, list[Any]]) -> list[str]:
    supported = [text for text, (_, runs) in texts.items() if len(runs) >= SUPPORT]
    seen = sorted(supported, key=lambda text: (-len(texts[text][1]), len(text), text))
    return [example_of(text) for text in seen[:50] if is_copyable(text) and len(text) <= MAX_WORD][:2]
