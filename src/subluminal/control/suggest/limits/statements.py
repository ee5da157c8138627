"""SQL: one statement, by its verb, made of the words that `SUPPORT` runs used: names of tables and columns among them.

A text is not parsed: every word outside quotes must be a known one, so neither a list after FROM nor a second statement
hides a table that nobody used. Literals are free.
"""

from __future__ import annotations

import re
from typing import Any

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.limits.limit import Limit
from subluminal.control.suggest.tokens import is_copyable

# More words are no vocabulary any more, and RE2's programs have a bound for the whole policy.
MAX_WORDS = 400
_VERB = re.compile(
    r"\s*(select|with|insert|update|delete|explain|show|create|alter|drop|begin|set|pragma|describe)\b", re.IGNORECASE
)
_QUOTED = re.compile(r"'(?:[^']|'')*'")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def are_statements(texts: dict[str, list[Any]]) -> bool:
    return sum(_VERB.match(text) is not None for text in texts) >= 0.95 * len(texts)


def fit(texts: dict[str, list[Any]], level: int) -> Limit | None:
    verbs: dict[str, set[int]] = {}
    words: dict[str, set[int]] = {}
    several: set[int] = set()
    for text, (_, runs) in texts.items():
        found = _VERB.match(text)
        if found is not None:
            verbs.setdefault(found[1].lower(), set()).update(runs)
        if ";" in text.rstrip().rstrip(";"):
            several |= runs
        for word in {word.lower() for word in _WORD.findall(_QUOTED.sub(" ", text))}:
            words.setdefault(word, set()).update(runs)
    known = sorted(verb for verb, runs in verbs.items() if len(runs) >= SUPPORT)
    if not known:
        return None
    vocabulary = sorted(word for word, runs in words.items() if len(runs) >= SUPPORT and is_copyable(word))
    shown = ", ".join(verb.upper() for verb in known)
    closed = not level and len(vocabulary) <= MAX_WORDS
    if closed:
        rest = "" if len(several) < SUPPORT else ";"
        names = "|".join(vocabulary)
        regex = (
            rf"^\s*(?i:{'|'.join(known)})\b(?:\b(?i:{names})\b|'(?:[^']|'')*'|[0-9]+|[\s(),.*=<>!+|%/{rest}-])*;?\s*$"
        )
        about = f"one statement by {shown}, of {len(vocabulary)} words that were used"
    else:
        end = r"[^;]*;?\s*$" if len(several) < SUPPORT else ""
        regex = rf"^\s*(?i:{'|'.join(known)})\b{end}"
        about = f"{'one statement' if end else 'statements'}, by {shown}"
    limit = Limit("sql", [("key_regex", [regex])], about, unknown=["SELECT unseen_column FROM unseen_table"])
    limit.message = f"is {about}"
    limit.widest = not closed
    return limit
