"""What may be asked of a collector, of the tenant that the credential names. Answers are those of `stores.reading`.

GET /v1/calls?FILTERS&limit=&cursor=&previews=1      {"rows":[…],"cursors":[…],"more":bool}
GET /v1/count?FILTERS                                {"count":N}
GET /v1/groups?FILTERS&by=&limit=                    {"rows":[…]}
GET /v1/runs?FILTERS&limit=&cursor=&calls.FILTER=    {"rows":[…],"cursors":[…],"more":bool}
GET /v1/run?run_id=                                  the run and its producers
GET /v1/sparks?run_id=&run_id=…                      {"sparks":[…]}: when the calls of each came
GET /v1/recovery?run_id=&run_id=…                    {"runs":[…]}: how many of its refusals each corrected
GET /v1/over_time?FILTERS&parts=                     calls in equal parts of a time
GET /v1/changes?FILTERS&since=                       {"now_ms":N,"rows":[…],"gone":[…],"runs":{…},"more":bool}: what has
                                                     arrived since, by the collectors' clocks (`stores.arrivals`)
GET /v1/resolve?run=                                 {"run_id":…}; with call= {"runs":[…]}, those with such a call
GET /v1/lines?run_id=&after=                         {"lines":[…],"next":N or null} in the order of the chain
GET /v1/verify?run_id=                               {"reports":[…]}, one for each machine of the run
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from subluminal.contracts.errors import UsageError
from subluminal.contracts.filters import Filters, RunFilters
from subluminal.fleet.chains import verify_chain
from subluminal.fleet.stores.arrivals import changes
from subluminal.fleet.stores.asked import Asked
from subluminal.fleet.stores.base import Store
from subluminal.fleet.stores.moments import over_time, sparks
from subluminal.fleet.stores.reading import Reader
from subluminal.fleet.stores.recovery import recoveries
from subluminal.ledger.http.parameters import MAX_RUNS
from subluminal.ledger.read.ledger import Page

# With the wait for its turn (`turns`) less than the patience of `fleet.client`: an answer to nobody helps nobody.
QUESTION_S = 40.0
_CURSOR_S = 20.0
# Lines of one answer; of large ones fewer.
_LINES = 2000
_LINES_BYTES = 8 << 20
_OF_CALLS = "calls."
_BESIDE = ("limit", "cursor", "previews", "by", "parts", "since")
Query = Any  # a multidict of texts


class Questions:
    def __init__(self, store: Store, limit_s: float) -> None:
        self._store, self._limit_s = store, limit_s
        self.routes: dict[str, Callable[[str, Query], Any]] = {
            "/v1/calls": self._calls,
            "/v1/count": lambda tenant, query: {"count": self._reader(tenant).count(Filters(**_asked(query)))},
            "/v1/groups": self._groups,
            "/v1/runs": self._runs,
            "/v1/run": lambda tenant, query: self._reader(tenant).run(_one(query, "run_id")),
            "/v1/sparks": lambda tenant, query: {"sparks": sparks(self._reader(tenant), _each_run(query))},
            "/v1/recovery": lambda tenant, query: {"runs": recoveries(self._reader(tenant), _each_run(query))},
            "/v1/over_time": self._over_time,
            "/v1/changes": self._changes,
            "/v1/resolve": self._resolve,
            "/v1/lines": self._lines,
            "/v1/verify": self._verify,
        }

    def _reader(self, tenant: str) -> Reader:
        return Reader(Asked(self._store, self._limit_s), tenant)

    def cursor(self, tenant: str, machine: str, run_id: str, shim_id: str) -> int:
        return Reader(Asked(self._store, _CURSOR_S, quick=True), tenant).cursor(machine, run_id, shim_id)

    def _calls(self, tenant: str, query: Query) -> Any:
        filters = Filters(**_asked(query))
        return _page(
            self._reader(tenant).calls(
                filters, limit=_limit(query, 50), cursor=query.get("cursor"), previews="previews" in query
            )
        )

    def _groups(self, tenant: str, query: Query) -> Any:
        rows = self._reader(tenant).group(
            Filters(**_asked(query)), by=query.getall("by", []), limit=_limit(query, 1000)
        )
        return {"rows": rows}

    def _runs(self, tenant: str, query: Query) -> Any:
        asked = _asked(query)
        calls = {name[len(_OF_CALLS) :]: value for name, value in asked.items() if name.startswith(_OF_CALLS)}
        filters = RunFilters(**{name: value for name, value in asked.items() if not name.startswith(_OF_CALLS)})
        reader = self._reader(tenant)
        return _page(reader.runs(filters, calls=Filters(**calls), limit=_limit(query, 50), cursor=query.get("cursor")))

    def _over_time(self, tenant: str, query: Query) -> Any:
        return over_time(self._reader(tenant), Filters(**_asked(query)), _number(query, "parts", 60))

    def _changes(self, tenant: str, query: Query) -> Any:
        """The moment is that before looking: what comes meanwhile is told next time."""
        now_ms = time.time_ns() // 1_000_000
        told = changes(self._reader(tenant), Filters(**_asked(query)), _number(query, "since", now_ms))
        return {"now_ms": now_ms, **told}

    def _resolve(self, tenant: str, query: Query) -> Any:
        if "call" in query:
            return {"runs": self._reader(tenant).runs_of_call(_one(query, "call"))}
        return {"run_id": self._reader(tenant).resolve_run(_one(query, "run"))}

    def _lines(self, tenant: str, query: Query) -> Any:
        after, limit = _number(query, "after", 0), min(_LINES, _number(query, "limit", _LINES))
        lines: list[str] = []
        held = 0
        for place, line in self._in_order(tenant, _one(query, "run_id"), after):
            lines.append(line)
            held += len(line)
            if len(lines) >= limit or held >= _LINES_BYTES:
                return {"lines": lines, "next": place}
        return {"lines": lines, "next": None}

    def _in_order(self, tenant: str, run_id: str, after: int) -> Iterator[tuple[int, str]]:
        """(place, line): every event once, in the order of the chains of its machines, from after a place on."""
        reader = self._reader(tenant)
        unheard = reader.unheard(run_id)
        told: dict[str, list[tuple[int, int]]] = {}
        place = 0
        for _, _, shim_id, first_seq, count in reader.spans(run_id):
            for first, last in _untold(told.setdefault(shim_id, []), first_seq, first_seq + count - 1):
                skipped = min(last - first + 1, max(0, after - place))
                place += skipped
                for at in range(first + skipped, last + 1, _LINES):
                    known = reader.lines(run_id, shim_id, at, min(last, at + _LINES - 1))
                    for seq in range(at, min(last, at + _LINES - 1) + 1):
                        place += 1
                        if seq in known and (shim_id, seq) not in unheard:
                            yield place, known[seq][0][1]

    def _verify(self, tenant: str, query: Query) -> Any:
        from msgspec import to_builtins

        reader = self._reader(tenant)
        run_id = reader.resolve_run(_one(query, "run_id"))
        heads = reader.heads(run_id)
        spans = reader.spans(run_id)
        owners = reader.owners(run_id)
        reports = []
        for machine in sorted({span[0] for span in spans} | {head[0] for head in heads}):
            reports.append(
                verify_chain(
                    run_id,
                    machine,
                    [span[1:] for span in spans if span[0] == machine],
                    [head[1:] for head in heads if head[0] == machine],
                    lambda shim_id, first, last: reader.lines(run_id, shim_id, first, last),
                    owners,
                )
            )
        return {"reports": to_builtins(reports)}


def _untold(told: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """The parts of a range that no range before it had; it is told from now on."""
    parts = [(first, last)]
    for begin, end in told:
        parts = [
            piece
            for low, high in parts
            for piece in ((low, min(high, begin - 1)), (max(low, end + 1), high))
            if piece[0] <= piece[1]
        ]
    if told and told[-1][1] == first - 1:
        told[-1] = (told[-1][0], last)
    else:
        told.append((first, last))
    return parts


def _asked(query: Query) -> dict[str, Any]:
    return {name: query.getall(name) for name in dict.fromkeys(query) if name not in _BESIDE}


def _page(page: Page) -> dict[str, Any]:
    return {"rows": page.rows, "cursors": page.cursors, "more": page.next_cursor is not None}


def _one(query: Query, name: str) -> str:
    value = query.get(name, "")
    if not value or "\0" in value:
        raise UsageError(f"{name} is needed.")
    return str(value)


def _each_run(query: Query) -> list[str]:
    run_ids = list(dict.fromkeys(query.getall("run_id", [])))
    if not 1 <= len(run_ids) <= MAX_RUNS or any("\0" in run_id for run_id in run_ids):
        raise UsageError(f"Name between 1 and {MAX_RUNS} runs with run_id.")
    return run_ids


def _limit(query: Query, otherwise: int) -> int:
    return _number(query, "limit", otherwise)


def _number(query: Query, name: str, otherwise: int) -> int:
    text = query.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise UsageError(f"{name} must be a whole number.")
    return int(text)
