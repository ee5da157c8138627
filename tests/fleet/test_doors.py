"""A call that several doors saw is one, as on the machine: random runs, doors and questions, the ledger of one machine
against a store that got the same events in pieces, twice and in any order.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker
from subluminal.contracts.filters import Filters, RunFilters
from subluminal.contracts.moments import DAY_MS
from subluminal.fleet.collector.rows import Batch, rows_of
from subluminal.fleet.shipping.backlog import part, read_piece
from subluminal.fleet.stores.base import Store, open_store
from subluminal.fleet.stores.reading import Reader
from subluminal.ledger.read.ledger import open_ledger
from subluminal.ledger.store.schema import open_reader
from subluminal.ledger.store.writer import Store as LedgerStore

DOORS = ("hook", "mcp_stdio", "messages_api", "unknown")
COUNTED = ("run_id", "calls_total", "calls_allowed", "calls_blocked", "calls_throttled", "errors_total")
RUNS = 8
# Some calls begin in one week and end in the next: stores file by weeks.
MONDAY_MS = 1_699_833_600_000


def a_run(chance: random.Random, number: int) -> list[bytes]:
    """Seen by one door, or by several, at moments that other runs have too."""
    doors = chance.sample(DOORS, chance.choice([1, 1, 2, 3]))
    start_ms = MONDAY_MS + chance.choice([-1000, -60, -40, -20, -10])
    makers = {
        door: EventMaker(run_id(number), shim_id(number * 10 + at), start_ms=start_ms) for at, door in enumerate(doors)
    }
    lines = [maker.run_start() for maker in makers.values()]
    for call in range(chance.randrange(30)):
        use_id = chance.choice([f"use-{call}", "use-again", ""])
        for door in chance.sample(doors, chance.randrange(1, len(doors) + 1)):
            maker = makers[door]
            maker.ms = max(each.ms for each in makers.values()) - chance.randrange(2)
            lines.append(maker.seen(door, use_id) if use_id else maker.start(transport=door))
            lines.append(maker.decision(chance.choice(["ALLOW", "ALLOW", "BLOCK", "THROTTLE"])))
            if chance.random() < 0.9:
                lines.append(maker.end(chance.choice(["OK", "CANCELLED", "ERROR"])))
    return lines


def fill(chance: random.Random, home: Path, store: Store) -> None:
    """Every segment of the ledger in several pieces, some of them twice, shuffled over a few commits."""
    pieces, after = [], 0
    reader = open_reader(str(home / "ledger.db"))
    while (found := read_piece(reader, after)) is not None:
        for segment in found.segments:
            cuts = sorted({0, len(segment.lines), *chance.choices(range(len(segment.lines) + 1), k=8)})
            pieces += [part(segment, *ends) for ends in pairwise(cuts)]
        after = found.place
    reader.close()
    pieces += chance.sample(pieces, len(pieces) // 4)
    chance.shuffle(pieces)
    size = max(1, len(pieces) // 5)
    for at in range(0, len(pieces), size):
        commit = Batch()
        for piece in pieces[at : at + size]:
            commit.merge(rows_of(piece, "acme", "m1", MONDAY_MS + 100_000))
        store.write(commit.rows())


def a_question(chance: random.Random) -> Filters:
    asked = {
        "run_id": chance.sample([run_id(number) for number in range(1, RUNS + 1)], 2),
        "decision": chance.sample(["ALLOW", "BLOCK", "THROTTLE"], 2),
        "status": [chance.choice(["OK", "ERROR", "CANCELLED", "PENDING"])],
        "since_ms": MONDAY_MS + chance.randrange(-1000, 200),
        "until_ms": MONDAY_MS + chance.randrange(-1000, 400),
        "tool_name": [chance.choice(["git_*", "git_status", "nothing"])],
    }
    return Filters(**{name: asked[name] for name in chance.sample(list(asked), chance.randrange(4))})


def test_whatever_doors_have_seen_is_counted_as_on_the_machine(store: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    ledger_store = LedgerStore(str(tmp_path / "ledger.db"))
    with ledger_store.batch():
        for number in range(1, RUNS + 1):
            for line in a_run(chance, number):
                ledger_store.add(line)
    ledger_store.close()
    opened = open_store(store)
    opened.migrate(0)
    fill(chance, tmp_path, opened)
    fleet = Reader(opened, "acme")
    with open_ledger(str(tmp_path / "ledger.db")) as machine:
        for question in [Filters(), *(a_question(chance) for _ in range(12))]:
            assert fleet.count(question) == machine.count(question), question.asked
            by = chance.sample(["run_id", "decision", "status", "tool_name", "minute"], 2)
            here, there = machine.group(question, by=by), fleet.group(question, by=by)
            assert sorted(map(str, there)) == sorted(map(str, here)), (question.asked, by)
            counts = [
                sorted(tuple(row[name] for name in COUNTED) for row in rows)
                for rows in (
                    machine.runs(RunFilters(), calls=question, limit=100).rows,
                    fleet.runs(RunFilters(), calls=question, limit=100).rows,
                )
            ]
            assert counts[1] == counts[0], question.asked
    opened.close()


def test_a_call_that_a_wrong_clock_has_filed_in_two_weeks_is_one(store: str, tmp_path: Path) -> None:
    """It is filed by the day it arrived, and it arrived twice."""
    maker = EventMaker(run_id(1), shim_id(1), start_ms=MONDAY_MS - 5000 * DAY_MS)
    ledger_store = LedgerStore(str(tmp_path / "ledger.db"))
    with ledger_store.batch():
        for line in (maker.run_start(), *maker.call(), *maker.call("BLOCK")):
            ledger_store.add(line)
    ledger_store.close()
    reader = open_reader(str(tmp_path / "ledger.db"))
    piece = read_piece(reader, 0)
    reader.close()
    assert piece is not None
    opened = open_store(store)
    opened.migrate(0)
    for arrived_ms in (MONDAY_MS - DAY_MS, MONDAY_MS):
        opened.write(rows_of(piece.segments[0], "acme", "m1", arrived_ms).rows())
    fleet = Reader(opened, "acme")
    assert (fleet.count(Filters()), fleet.count(Filters(decision=["BLOCK"]))) == (2, 1)
    assert len(fleet.calls(Filters(), limit=10).rows) == 2
    opened.close()
