"""What a proof found: of one run, and of the database that holds them all."""

from __future__ import annotations

from msgspec import Struct

# What a fault is about: the events themselves, the rows that follow from them, or who may speak of what.
CHAIN, ROWS, OWNERS, DATABASE = "chain", "rows", "owners", "database"


class Fault(Struct, omit_defaults=True):
    """What is wrong. `event` is the first event concerned, counted from 1 in its run."""

    what: str
    event: int | None = None
    call_id: str | None = None
    part: str = CHAIN
    shim_ids: list[str] | None = None  # of producers that contradict each other, the owner first


class Pace(Struct):
    """How long the two parts of a proof took: following the chain over the exact bytes, and building the rows again and
    comparing them."""

    events: int = 0
    chain_s: float = 0.0
    rows_s: float = 0.0

    def add(self, other: Pace) -> None:
        self.events += other.events
        self.chain_s += other.chain_s
        self.rows_s += other.rows_s

    @property
    def chain_events_per_s(self) -> int | None:
        return round(self.events / self.chain_s) if self.chain_s else None

    @property
    def rows_events_per_s(self) -> int | None:
        return round(self.events / self.rows_s) if self.rows_s else None


class Report(Struct):
    run_id: str
    events: int
    head: str
    faults: list[Fault]
    witnessed: int | None = None  # events that the witness vouches for; none is known of a bundle
    rows_checked: bool = False  # they are compared only where the chain is whole
    pace: Pace | None = None

    @property
    def ok(self) -> bool:
        return not self.faults

    @property
    def chain_ok(self) -> bool:
        return all(fault.part != CHAIN for fault in self.faults)

    @property
    def rows_ok(self) -> bool | None:
        """None: they were not compared."""
        return all(fault.part != ROWS for fault in self.faults) if self.rows_checked else None


class DatabaseReport(Struct):
    """`integrity`: SQLite's own check, "full", or "quick", which does not compare indexes with their tables.
    `covered`: whether orphans were looked for and every table held against the events of all runs."""

    path: str
    integrity: str
    covered: bool
    faults: list[Fault]
    not_covered: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.faults
