"""What a filter is: one table. Options, the HTTP API and its document, live streams and SQL are made from it.

All conditions of a `Filters` must hold. Names, words and exact texts are lists of alternatives; names may be globs
(`contracts.globs`). `Filters.match` says what a condition means for a call as columns in memory, and the ledger's SQL
(`ledger.read.plan`) says the same of a stored one.

`known_from` says which events can answer: of its type each by itself, of a run any, of a call its own, of what was
decided those from the decision on, of how it ended only its end. One that comes earlier does not match: nothing is
guessed. Light: `sub query` and `sub tail` import this at start.
"""

from __future__ import annotations

from subluminal.contracts import vocabulary as vocab
from subluminal.contracts.counts import is_let_through
from subluminal.contracts.errors import UsageError
from subluminal.contracts.globs import glob_fault, glob_test, is_glob
from subluminal.contracts.moments import normal_ts, rfc3339

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Self

    Row = Mapping[str, Any]
    RowTest = Callable[[Row], bool]

_YEAR_10000_MS = 253_402_300_800_000
# The kinds. The first three are lists of alternatives, the others are given once.
NAMES, WORDS, EXACT = "names", "words", "exact texts"
NUMBER, MOMENT, TEXT = "whole number", "moment", "free text"
LISTS = (NAMES, WORDS, EXACT)

EVENT, RUN, CALL, DECISION, END = range(5)
# What is known once an event has come. Of a type that is not here, the event tells of a call that is known as it is.
KNOWN_BY = {"tool_call_start": CALL, "tool_call_decision": DECISION, "hint_issued": DECISION, "breaker_trip": DECISION}

PENDING = "PENDING"
# Milliseconds; far beyond every time, and within 64 bits.
MAX_NUMBER = 1 << 60

PREVIEWS = ("args_preview", "result_preview")
TEXT_COLUMNS = {
    **dict.fromkeys(("tool_name", "server_name", "call_id", "args_preview"), CALL),
    **dict.fromkeys(("rule_id", "summary"), DECISION),
    **dict.fromkeys(("error_message", "result_preview"), END),
}


class Filter:
    """`name` is the word of the API, `option` that of the command line; `column` is what it tests.

    Whoever knows one of the two may use it on the command line: `flags` has both."""

    __slots__ = ("column", "help", "kind", "known_from", "metavar", "name", "option", "words")

    def __init__(
        self,
        name: str,
        option: str,
        kind: str,
        help: str,
        *,
        known_from: int = CALL,
        column: str = "",
        metavar: str | None = None,
        words: tuple[str, ...] = (),
    ) -> None:
        self.name, self.option, self.kind, self.help = name, option, kind, help
        self.known_from, self.column, self.metavar, self.words = known_from, column or name, metavar, words

    @property
    def word(self) -> str:
        return self.option[2:].replace("-", "_")

    @property
    def flags(self) -> list[str]:
        """A moment's name speaks of milliseconds, which nobody types."""
        names = () if self.kind == MOMENT else ("--" + self.name.replace("_", "-"),)
        return list(dict.fromkeys((self.option, *names)))

    def read(self, value: Any) -> Any:
        """What was asked for, checked and in its normal form: a list, or a number or text; None: nothing."""
        listed = list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]
        if self.kind in LISTS:
            # Each once: the branches of a plan must not overlap, or counts would not add up.
            return list(dict.fromkeys(self._alternative(word) for word in listed)) or None
        if len(listed) > 1:
            raise UsageError(f"{self.name} can be given only once.")
        if not listed:
            return None
        return self._text(listed[0]) if self.kind == TEXT else self._number(listed[0])

    def _number(self, value: Any) -> int:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if type(value) is not int or not 0 <= value <= MAX_NUMBER:
            raise UsageError(f"{self.name} must be a whole number, not {str(value)[:40]!r}.")
        return value

    def _alternative(self, word: Any) -> str:
        text = self._text(word)
        if self.kind == NAMES and is_glob(text) and (fault := glob_fault(text)):
            raise UsageError(f"{text[:40]!r} {fault[0]}.", hint=f"{fault[1].capitalize()}.")
        if self.kind != WORDS:
            return text
        known = word_meant(text, self.words)
        if known is None:
            raise UsageError(f"{text[:40]!r} is no {self.name}.", hint=_meant(text, self.words))
        return known

    def _text(self, value: Any) -> str:
        if isinstance(value, str):
            try:
                value.encode()
                return value
            except UnicodeEncodeError:
                raise UsageError(f"{self.name}: {value[:40]!r} is no text; nothing of that name is recorded.") from None
        raise UsageError(f"{self.name} must be text, not {str(value)[:40]!r}.")

    def test(self, value: Any) -> RowTest:
        """What the condition means for a call as columns."""
        column = self.column
        if self.kind == TEXT:
            return _text_test(value)
        if PENDING in self.words:
            return _status_test(value)
        if self.kind == NAMES:
            tests = [glob_test(glob) for glob in value]
            return lambda row: (name := row.get(column)) is not None and any(test(name) for test in tests)
        if self.kind == NUMBER:
            return lambda row: (number := row.get(column)) is not None and number >= value
        if self.kind == MOMENT:
            bound, since = moment_text(value), self.name == "since_ms"
            return lambda row: (ts := row.get(column)) is not None and (normal_ts(ts)[:-1] >= bound) is since
        return lambda row: row.get(column) in value


def word_meant(text: str, words: Iterable[str]) -> str | None:
    """In any case, and cut short as far as only one word begins so: what is printed as REJECT is found as `reject`."""
    begun = [word for word in words if text and word.lower().startswith(text.lower())]
    whole = [word for word in begun if word.lower() == text.lower()]
    return (whole or begun)[0] if len(whole or begun) == 1 else None


def _status_test(words: list[str]) -> RowTest:
    """Of calls that were let through: what was refused is found by its decision."""

    def test(row: Row) -> bool:
        status = row.get("status")
        return PENDING in words if status is None else status in words and is_let_through(row.get("decision"))

    return test


def text_patterns(text: str) -> list[str]:
    """ASCII letters in any case. In a preview, JSON may have escaped what is not ASCII."""
    from json.encoder import encode_basestring_ascii

    return list(dict.fromkeys(map(_folded, (text, encode_basestring_ascii(text)[1:-1]))))


def _folded(text: str) -> str:
    return text.encode("utf-8", "replace").lower().decode()


def _text_test(text: str) -> RowTest:
    patterns = text_patterns(text)

    def test(row: Row) -> bool:
        for column in TEXT_COLUMNS:
            found = row.get(column)
            if found is not None:
                folded = _folded(found)
                if any(pattern in folded for pattern in patterns[: None if column in PREVIEWS else 1]):
                    return True
        return False

    return test


def moment_text(ms: int) -> str:
    """As the ledger's timestamps, without their Z, so that text order is time order."""
    return rfc3339(ms)[:-1] if 0 <= ms < _YEAR_10000_MS else "" if ms < 0 else "~"  # before, or beyond, every timestamp


def _moments(column: str) -> tuple[Filter, Filter]:
    since = "From then on: 15m, 2h, 3d ago, today, yesterday, a date or an RFC 3339 time."
    return (
        Filter("since_ms", "--since", MOMENT, since, column=column, metavar="TIME"),
        Filter("until_ms", "--until", MOMENT, "Before then.", column=column, metavar="TIME"),
    )


_IDENTITY = (
    Filter("agent_id", "--agent", EXACT, "Agent id.", known_from=RUN, metavar="ID"),
    Filter("client", "--client", WORDS, "The client that ran the agent.", known_from=RUN, words=vocab.CLIENTS),
    Filter("env", "--env", WORDS, "Environment of the run.", known_from=RUN, words=vocab.ENVS),
    Filter("principal", "--principal", EXACT, "Principal of the run.", known_from=RUN, metavar="NAME"),
)
_STATUS_HELP = "How a call that was let through ended; PENDING: it has not."
_REASON_HELP = "Reason code, such as BUDGET_EXCEEDED."
_SLOW_HELP = "It took at least so many milliseconds."
# ALLOW is never noted down beside an ALLOW.
_WOULD = tuple(word for word in vocab.ACTIONS if word != "ALLOW")
_WOULD_HELP = "What a policy that only observes would have decided."
_RUN = Filter(
    "run_id", "--run", EXACT, "Run: its id, a beginning or end of it, last, last~1.", known_from=RUN, metavar="RUN"
)
CALL_FILTERS = (
    _RUN,
    *_IDENTITY,
    Filter("server_name", "--server", NAMES, "Server name or glob.", metavar="NAME"),
    Filter("tool_name", "--tool", NAMES, "Tool name or glob.", metavar="NAME"),
    Filter("decision", "--decision", WORDS, "What the policy decided.", known_from=DECISION, words=vocab.ACTIONS),
    Filter("would_action", "--would", WORDS, _WOULD_HELP, known_from=DECISION, words=_WOULD),
    Filter("status", "--status", WORDS, _STATUS_HELP, known_from=END, words=(*vocab.STATUSES, PENDING)),
    Filter("rule_id", "--rule", EXACT, "Id of the rule that decided.", known_from=DECISION, metavar="ID"),
    Filter("reason_code", "--reason", EXACT, _REASON_HELP, known_from=DECISION, metavar="CODE"),
    Filter("severity", "--severity", WORDS, "Severity of the decision.", known_from=DECISION, words=vocab.SEVERITIES),
    Filter("error_class", "--error-class", WORDS, "What kind of error.", known_from=END, words=vocab.ERROR_CLASSES),
    Filter("args_hash", "--args-hash", EXACT, "Hash of the arguments; see `sub hash`.", metavar="HASH"),
    Filter("min_latency_ms", "--min-latency", NUMBER, _SLOW_HELP, known_from=END, column="latency_ms", metavar="MS"),
    Filter("text", "--text", TEXT, "Text in previews, names, reasons or error messages.", metavar="TEXT"),
    *_moments("created_at"),
)
_TYPE = Filter("type", "--type", NAMES, "Event type, such as tool_call_end.", known_from=EVENT, metavar="TYPE")
EVENT_FILTERS = (*CALL_FILTERS, _TYPE)
RUN_FILTERS = (
    _RUN,
    *_IDENTITY,
    Filter("status", "--status", WORDS, "How it ended, or RUNNING.", words=("RUNNING", *vocab.RUN_STATUSES)),
    *_moments("started_at"),
)
# On refusals, for the hint ledger.
HINT_FILTERS = tuple(found for found in CALL_FILTERS if found.name in ("run_id", "rule_id", "since_ms"))
# What calls have and runs have not: asked of runs, it finds those with such a call.
OF_THEIR_CALLS = tuple(
    found for found in CALL_FILTERS if found.kind != MOMENT and found.name not in {each.name for each in RUN_FILTERS}
)
# From when on each column is known that a filter on calls looks at.
COLUMNS = {**TEXT_COLUMNS, **{found.column: found.known_from for found in CALL_FILTERS if found.kind != TEXT}}


class Filters:
    """Conditions on calls: `Filters(tool_name=["git*"], decision=["BLOCK"])`. `asked` has those that were given."""

    __slots__ = ("_tests", "asked")
    table: tuple[Filter, ...] = CALL_FILTERS

    def __init__(self, /, **conditions: Any) -> None:
        self._tests: list[RowTest] | None = None
        self.asked: dict[str, Any] = {}
        for name, value in conditions.items():
            normal = find_filter(name, self.table).read(value)
            if normal is not None:
                self.asked[name] = normal

    def match(self, row: Row) -> bool:
        if self._tests is None:
            self._tests = [find_filter(name, self.table).test(value) for name, value in self.asked.items()]
        return all(test(row) for test in self._tests)

    def known_from(self, *stages: int) -> Self:
        """Those of these stages alone."""
        chosen = {found.name for found in self.table if found.known_from in stages}
        return type(self)(**{name: value for name, value in self.asked.items() if name in chosen})


class EventFilters(Filters):
    """On the events of a live stream."""

    __slots__ = ()
    table = EVENT_FILTERS


class RunFilters(Filters):
    __slots__ = ()
    table = RUN_FILTERS


class HintFilters(Filters):
    __slots__ = ()
    table = HINT_FILTERS


def known_at(row: Row, event_type: str) -> Row:
    """A call as it is known when an event of this type comes: what later events will say is not."""
    known = KNOWN_BY.get(event_type, END)
    return {name: value for name, value in row.items() if COLUMNS.get(name, CALL) <= known}


def find_filter(name: str, table: tuple[Filter, ...], others: Iterable[str] = ()) -> Filter:
    for found in table:
        if found.name == name:
            return found
    known = [*(found.name for found in table), *others]
    hint = _meant(name, known, {found.word: found.name for found in table})
    raise UsageError(f"{name[:40]!r} is no filter.", hint=hint)


def _meant(word: str, known: Iterable[str], also: Mapping[str, str] | None = None) -> str:
    from difflib import get_close_matches

    words = list(known)
    candidates = {**(also or {}), **{candidate.lower(): candidate for candidate in words}}
    close = get_close_matches(word.lower()[:100], candidates, n=1)
    return (f"Did you mean {candidates[close[0]]}? " if close else "") + f"Known: {', '.join(words)}."
