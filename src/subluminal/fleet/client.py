"""A collector asked as if it were this machine's ledger: the questions of `ledger.read.ledger.Ledger` over HTTP.

The credential is a token that may read, in SUB_FLEET_TOKEN or in the file that SUB_FLEET_TOKEN_FILE names. Which tenant
is read follows from it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from subluminal.contracts.errors import FleetError, LedgerError, UsageError
from subluminal.contracts.filters import Filters, RunFilters
from subluminal.fleet.folded import fold_lines
from subluminal.fleet.shipping.sending import Address, Collector, Later, Missing, Refusal
from subluminal.host.home import ledger_db
from subluminal.ledger.read.ledger import Ledger, Page, Row, open_ledger
from subluminal.ledger.trace.report import Report

TOKEN, TOKEN_FILE = "SUB_FLEET_TOKEN", "SUB_FLEET_TOKEN_FILE"
# How long a question may take.
_PATIENCE_S = 60.0
# Runs that are named in one question, and how long their names may be together: a request line has an end (8 KiB).
_RUNS_AT_ONCE = 100
_NAMES_CHARS = 6_000
T = TypeVar("T")


class _Rows(msgspec.Struct):
    rows: list[Row]


class _Page(msgspec.Struct):
    rows: list[Row]
    cursors: list[str]
    more: bool


class _Count(msgspec.Struct):
    count: int


class _Sparks(msgspec.Struct):
    sparks: list[Row]


class _Recoveries(msgspec.Struct):
    runs: list[Row]


class _Run(msgspec.Struct):
    run_id: str


class _Runs(msgspec.Struct):
    runs: list[str]


class _Lines(msgspec.Struct):
    lines: list[str]
    next: int | None


class _Reports(msgspec.Struct):
    reports: list[Report]


class Fleet:
    """For one thread at a time: it has one connection."""

    def __init__(self, url: str, patience_s: float = _PATIENCE_S, environ: Mapping[str, str] = os.environ) -> None:
        token_file = environ.get(TOKEN_FILE)
        if not token_file and not environ.get(TOKEN):
            hint = f"Set {TOKEN} or {TOKEN_FILE}; `sub collector token --read` makes one."
            raise FleetError("A collector answers who has a token that may read.", hint=hint)
        self._collector = Collector(
            Address(
                url,
                token_file=token_file,
                token_env=TOKEN,
                ca_file=environ.get("SSL_CERT_FILE"),
                timeout_s=patience_s,
                environ=environ,
            )
        )

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self._collector.close()

    def _ask(self, place: str, shape: type[T], *asked: dict[str, Any]) -> T:
        pairs = [(name, value) for some in asked for name, value in some.items() if value is not None]
        try:
            return self._collector.get(f"{place}?{urlencode(pairs, doseq=True)}", shape)
        except Refusal as error:
            raise UsageError(str(error)) from None
        except Missing as error:
            raise LedgerError(str(error), hint=error.hint) from None

    def _row(self, place: str, members: tuple[str, ...], *asked: dict[str, Any]) -> Row:
        """An object with these members and others."""
        row = self._ask(place, dict[str, Any], *asked)
        if not all(name in row for name in members):
            raise Later("What the collector answers is of another version.")
        return row

    def calls(
        self, filters: Filters | None = None, *, limit: int = 50, cursor: str | None = None, previews: bool = False
    ) -> Page:
        beside = {"limit": limit, "cursor": cursor, "previews": 1 if previews else None}
        return _page(self._ask("/v1/calls", _Page, _given(filters), beside))

    def count(self, filters: Filters | None = None) -> int:
        return self._ask("/v1/count", _Count, _given(filters)).count

    def group(self, filters: Filters | None = None, *, by: list[str], limit: int = 1000) -> list[Row]:
        return self._ask("/v1/groups", _Rows, _given(filters), {"by": by, "limit": limit}).rows

    def runs(
        self,
        filters: RunFilters | None = None,
        *,
        calls: Filters | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        of_calls = {f"calls.{name}": value for name, value in _given(calls).items()}
        return _page(self._ask("/v1/runs", _Page, _given(filters), of_calls, {"limit": limit, "cursor": cursor}))

    def run(self, run_id: str) -> Row:
        return self._row("/v1/run", ("run_id", "event_count"), {"run_id": run_id})

    def sparks(self, run_ids: Iterable[str]) -> list[Row]:
        asked = [self._ask("/v1/sparks", _Sparks, {"run_id": some}).sparks for some in _portions(run_ids)]
        return [row for rows in asked for row in rows]

    def recoveries(self, run_ids: Iterable[str]) -> list[Row]:
        asked = [self._ask("/v1/recovery", _Recoveries, {"run_id": some}).runs for some in _portions(run_ids)]
        return [row for rows in asked for row in rows]

    def over_time(self, filters: Filters, parts: int) -> Row:
        return self._row("/v1/over_time", (), _given(filters), {"parts": parts})

    def changes(self, filters: Filters, since_ms: int | None) -> Row:
        """What has arrived since; None: only where the clock stands."""
        members = ("now_ms", "rows", "gone", "runs", "more")
        return self._row("/v1/changes", members, _given(filters), {"since": since_ms})

    def resolve_run(self, name: str) -> str:
        return self._ask("/v1/resolve", _Run, {"run": name}).run_id

    def run_of(self, target: str) -> str:
        """The run that a person means, by its own name or by that of one of its calls."""
        try:
            return self.resolve_run(target)
        except LedgerError:
            return self.run_of_call(target)

    def run_of_call(self, target: str) -> str:
        found = self._ask("/v1/resolve", _Runs, {"call": target}).runs
        if len(found) == 1:
            return found[0]
        if found:
            raise LedgerError(f"Several runs have a call {target!r}.", hint="Choose one with --run RUN.")
        hint = "`sub runs --fleet URL` and `sub query --fleet URL` list what there is."
        raise LedgerError(f"There is no run or call {target!r} in the fleet's store.", hint=hint)

    def lines(self, run_id: str, after: int | None = 0) -> Iterator[bytes]:
        """Every event of a run, in the order of its chain; those of the first `after` places are left out."""
        while after is not None:
            answer = self._ask("/v1/lines", _Lines, {"run_id": run_id, "after": after})
            for line in answer.lines:
                yield line.encode()
            after = answer.next

    @contextmanager
    def ledger_of(self, run_id: str) -> Iterator[Ledger]:
        """The run as a ledger of its own, folded here from its exact lines; gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="sub-fleet-") as directory:
            path = ledger_db(directory)
            fold_lines(path, self.lines(run_id))
            with open_ledger(path) as ledger:
                yield ledger

    def verify(self, run_id: str) -> list[Report]:
        """Of each machine that took part."""
        return self._ask("/v1/verify", _Reports, {"run_id": run_id}).reports


def _given(filters: Filters | None) -> dict[str, Any]:
    return {} if filters is None else dict(filters.asked)


def _portions(run_ids: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    chars = 0
    for run_id in run_ids:
        own = len(quote(run_id, safe="")) + len("&run_id=")
        if some and (len(some) == _RUNS_AT_ONCE or chars + own > _NAMES_CHARS):
            yield some
            some, chars = [], 0
        some.append(run_id)
        chars += own
    if some:
        yield some


def _page(answer: _Page) -> Page:
    return Page(answer.rows, answer.cursors, more=answer.more and bool(answer.cursors))
