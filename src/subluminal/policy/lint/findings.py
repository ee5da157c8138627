"""What a linter has to say: a finding has a place, a rule and a fix, and never a traceback.

`code` is a stable word for programs (`unknown-field`); the sentence beside it may be reworded at any time. Text from
a bundle is quoted with `shown`, so that a hostile file cannot drive the reader's terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from subluminal.contracts.errors import PolicyError

ERROR = "error"
WARNING = "warning"
NOTE = "note"  # what a sound policy does that its author may not expect: never a failure

# One broken indentation can break every line after it; nobody reads the hundred-and-first message.
MAX_FINDINGS = 100

# Values are quoted in messages up to this length: enough to recognise, too short to carry a pasted secret whole.
MAX_SHOWN = 48


class Finding(NamedTuple):
    level: str
    code: str
    message: str
    fix: str
    file: str
    line: int
    column: int
    rule_id: str | None = None

    def text(self) -> str:
        rule = f"rule {shown(self.rule_id)}: " if self.rule_id is not None else ""
        return f"{self.file}:{self.line}:{self.column}: {self.level}: {rule}{self.message} [{self.code}]"

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


class InvalidPolicy(PolicyError):
    """A bundle with errors. `findings` holds all of them; the message shows the first."""

    def __init__(self, findings: list[Finding]) -> None:
        errors = [finding for finding in findings if finding.level == ERROR]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(errors[0].text() + more, hint=f"Fix: {errors[0].fix}")
        self.findings = findings


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.level == ERROR for finding in findings)


def shown(value: object) -> str:
    """A value of the bundle, quoted for a message: short, printable, one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return str(value)[:MAX_SHOWN]
    text = str(value)
    if len(text) > MAX_SHOWN:
        text = text[: MAX_SHOWN - 1] + "…"
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) + '"'


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant. Case and `-` for `_` are the commonest slips, so they always count."""
    words = list(known)
    folded = word.strip().lower().replace("-", "_").replace(" ", "_")
    for candidate in words:
        if candidate.lower() == folded:
            return candidate
    for candidate in words:
        short, long = sorted((candidate.lower(), folded), key=len)
        if len(short) >= 3 and long.startswith(short):
            return candidate
    close = _close(folded, words, 0.6)
    return next((candidate for candidate in words if close and candidate.lower() == close[0]), None)


def is_slip(word: str, known: Iterable[str]) -> bool:
    """Whether a word is a known one but for a letter or two: then that one was meant, whatever else it could mean."""
    return bool(_close(word.lower(), known, 0.85))


def _close(word: str, words: Iterable[str], cutoff: float) -> list[str]:
    from difflib import get_close_matches  # for those who have made a mistake

    return get_close_matches(word, [candidate.lower() for candidate in words], n=1, cutoff=cutoff)


def one_of(words: Iterable[str]) -> str:
    """`"a", "b" or "c"`"""
    quoted = [shown(word) for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


class UnreadablePolicy(InvalidPolicy):
    """The file itself cannot be had: a fault of the set-up, not of the bundle."""

    exit_code = 2

    def __init__(self, path: str, why: str) -> None:
        fix = "check the path and its permissions; `sub policy init` writes a starter"
        if why == "it is a directory":
            fix = "name the policy file in it"
        super().__init__([Finding(ERROR, "unreadable", f"cannot read the policy: {why}", fix, path, 1, 1)])
