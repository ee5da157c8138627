"""What a store answers, whichever engine it is; and which engine a DSN means.

clickhouse://user:password@host:8123/database      chdb:///directory (the same engine, in this process)
postgresql://user:password@host/database
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from subluminal.contracts.errors import SubluminalError, UsageError


class StoreError(SubluminalError):
    """The store cannot be reached or refuses; nothing of a commit is acknowledged."""

    hint = "Machines keep what they could not send and try again; look at the store."


class Unstorable(StoreError):
    """The store is well and cannot hold these rows. The text never repeats what was in them."""


class TooLong(SubluminalError):
    """A question was given up; nothing is wrong with the store."""

    hint = "Ask for less: a shorter time, one run, fewer groups."

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The question took longer than {seconds:g} s and was given up. {self.hint}")
        self.seconds = seconds


class Written(NamedTuple):
    """Of one commit. `conflicts`: events that were there with other bytes; None: `conflicts_among` tells later."""

    duplicates: int | None
    conflicts: int | None


# (tenant, run_id, shim_id), and with it (claim, day): a row of `producers`.
Producer = tuple[str, str, str]
Claim = tuple[str, str, str, str, str]


class Lines(NamedTuple):
    """The events of one segment, which become rows of `events`: what they have in common, and the rest as columns."""

    tenant: str
    run_id: str
    shim_id: str
    machine: str
    received_ms: int
    first_seq: int
    days: list[str]
    ts_ms: list[int]
    types: list[str]
    lines: list[bytes]


class Answers(Protocol):
    """What whoever reads needs of a store."""

    @property
    def dialect(self) -> Dialect: ...

    def select(self, sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Values stand in the SQL as `:name`; a list as `:name` after IN."""
        ...


class Store(Answers, Protocol):
    """Thread-safe. One statement is written at a time; how many are read at once is the engine's matter (`asked`)."""

    def migrate(self, retention_days: int) -> None: ...

    def claim(self, claims: Sequence[Claim]) -> dict[Producer, str]:
        """The claim that stands of each: the first. It is kept as long as its latest day is."""
        ...

    def write(self, rows: dict[str, list[Any]]) -> Written:
        """By table, rows in the order of its columns; of `events` and `contested`, `Lines`; `tables.ADDED` to calls."""
        ...

    def conflicts_among(self, producers: Sequence[Producer]) -> dict[Producer, int]:
        """Of each, how many events have several lines, or one that its own machine has not told; none: left out."""
        ...

    def expire(self, retention_days: int) -> None: ...

    def select(
        self, sql: str, values: dict[str, Any], seconds: float | None = None, *, quick: bool = False
    ) -> list[tuple[Any, ...]]:
        """TooLong after so many seconds. `quick`: it does not wait behind what is long, where the engine allows."""
        ...

    def close(self) -> None: ...


class Dialect(NamedTuple):
    """What is said differently. `calls`, `runs`, `events`: what to select from, each thing once."""

    calls: str
    runs: str
    events: str
    spans: str
    heads: str
    nulls_last: str
    contains: str  # whether a text holds another, in any case of ASCII letters
    few: str  # whether something is among what a query finds, which are few: an index leads from them
    day_of: str  # text of a moment in milliseconds, as local tables show it
    divided: str  # whole numbers, to a whole number


def open_store(dsn: str) -> Store:
    kind = dsn.partition(":")[0]
    try:
        if kind in ("chdb", "clickhouse", "clickhouses"):
            from subluminal.fleet.stores.clickhouse import ClickHouse

            return ClickHouse(dsn)
        if kind in ("postgresql", "postgres"):
            from subluminal.fleet.stores.postgres import Postgres

            return Postgres(dsn)
    except ImportError as error:
        hint = "Install it: pip install 'subluminal[fleet]' (chdb:// also needs chdb)."
        raise StoreError(f"The driver of {kind} is not installed ({error.name}).", hint=hint) from None
    hint = "Use clickhouse://…, postgresql://… or chdb:///directory."
    raise UsageError(f"{kind[:20]!r} is no kind of store.", hint=hint)


def chunks(values: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    for at in range(0, len(values), size):
        yield values[at : at + size]
