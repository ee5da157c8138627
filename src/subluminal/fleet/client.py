"""A collector asked as if it were this machine's ledger: the questions of `ledger.read.ledger.Ledger` over HTTP.

The credential is a token that may read, in SUB_FLEET_TOKEN or in the file that SUB_FLEET_TOKEN_FILE names. Which tenant
is read follows from it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec

from subluminal.contracts.errors import FleetError, LedgerError, UsageError
from subluminal.contracts.filters import Filters, RunFilters
from subluminal.fleet.shipping.sending import Address, Collector, Refusal
from subluminal.host.home import ledger_db
from subluminal.ledger.read.ledger import Ledger, Page, Row, open_ledger
from subluminal.ledger.trace.report import Report

TOKEN, TOKEN_FILE = "SUB_FLEET_TOKEN", "SUB_FLEET_TOKEN_FILE"


class Fleet:
    def __init__(self, url: str) -> None:
        token_file = os.environ.get(TOKEN_FILE)
        if not token_file and not os.environ.get(TOKEN):
            hint = f"Set {TOKEN} or {TOKEN_FILE}; `sub collector token --read` makes one."
            raise FleetError("A collector answers who has a token that may read.", hint=hint)
        ca_file = os.environ.get("SSL_CERT_FILE")
        self._collector = Collector(Address(url, token_file=token_file, token_env=TOKEN, ca_file=ca_file))

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self._collector.close()

    def _ask(self, place: str, *asked: dict[str, Any]) -> Any:
        pairs = [(name, value) for some in asked for name, value in some.items() if value is not None]
        try:
            return self._collector.get(f"{place}?{urlencode(pairs, doseq=True)}")
        except Refusal as error:
            raise UsageError(str(error)) from None

    def calls(
        self, filters: Filters | None = None, *, limit: int = 50, cursor: str | None = None, previews: bool = False
    ) -> Page:
        beside = {"limit": limit, "cursor": cursor, "previews": 1 if previews else None}
        return _page(self._ask("/v1/calls", _given(filters), beside))

    def count(self, filters: Filters | None = None) -> int:
        return int(self._ask("/v1/count", _given(filters))["count"])

    def group(self, filters: Filters | None = None, *, by: list[str], limit: int = 1000) -> list[Row]:
        rows: list[Row] = self._ask("/v1/groups", _given(filters), {"by": by, "limit": limit})["rows"]
        return rows

    def runs(
        self,
        filters: RunFilters | None = None,
        *,
        calls: Filters | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        of_calls = {f"calls.{name}": value for name, value in _given(calls).items()}
        return _page(self._ask("/v1/runs", _given(filters), of_calls, {"limit": limit, "cursor": cursor}))

    def resolve_run(self, name: str) -> str:
        return str(self._ask("/v1/resolve", {"run": name})["run_id"])

    def run_of(self, target: str) -> str:
        """The run that a person means, by its own name or by that of one of its calls."""
        try:
            return self.resolve_run(target)
        except (FleetError, LedgerError):
            found = self._ask("/v1/resolve", {"call": target})["runs"]
        if len(found) == 1:
            return str(found[0])
        if found:
            raise LedgerError(f"Several runs have a call {target!r}.", hint="Choose one with --run RUN.")
        hint = "`sub runs --fleet URL` and `sub query --fleet URL` list what there is."
        raise LedgerError(f"There is no run or call {target!r} in the fleet's store.", hint=hint)

    def lines(self, run_id: str) -> Iterator[bytes]:
        """Every event of a run, in the order of its chain."""
        after: int | None = 0
        while after is not None:
            answer = self._ask("/v1/lines", {"run_id": run_id, "after": after})
            for line in answer["lines"]:
                yield line.encode()
            after = answer["next"]

    @contextmanager
    def ledger_of(self, run_id: str) -> Iterator[Ledger]:
        """The run as a ledger of its own, folded here from its exact lines; gone afterwards."""
        from subluminal.ledger.fold.reading import BadEvent
        from subluminal.ledger.store.writer import Store

        with tempfile.TemporaryDirectory(prefix="sub-fleet-") as directory:
            path = ledger_db(directory)
            store = Store(path)
            try:
                with store.batch():
                    for line in self.lines(run_id):
                        try:
                            store.add(line)
                        except BadEvent:
                            continue  # of a version that this machine does not read
            finally:
                store.close()
            with open_ledger(path) as ledger:
                yield ledger

    def verify(self, run_id: str) -> list[Report]:
        """Of each machine that took part."""
        return msgspec.convert(self._ask("/v1/verify", {"run_id": run_id})["reports"], list[Report])


def _given(filters: Filters | None) -> dict[str, Any]:
    return {} if filters is None else dict(filters.asked)


def _page(answer: Any) -> Page:
    return Page(answer["rows"], answer["cursors"], more=answer["more"])
