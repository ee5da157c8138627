"""A call that several doors saw is one, as on the machine: random runs, doors and questions, the ledger of one machine
against a store that got the same events in pieces, twice and in any order.
"""

from __future__ import annotations

import random
from pathlib import Path

from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker
from subluminal.contracts.filters import Filters, RunFilters
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


def a_run(chance: random.Random, number: int) -> list[bytes]:
    """Seen by one door, or by several, at moments that other runs have too."""
    doors = chance.sample(DOORS, chance.choice([1, 1, 2, 3]))
    start_ms = 1_700_000_000_000 + chance.randrange(3) * 1000
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
    """Every segment of the ledger in a few pieces, some of them twice, shuffled over a few commits."""
    pieces, after = [], 0
    reader = open_reader(str(home / "ledger.db"))
    while (found := read_piece(reader, after)) is not None:
        for segment in found.segments:
            cut = chance.randrange(len(segment.lines) + 1)
            pieces += [part(segment, *ends) for ends in ((0, cut), (cut, len(segment.lines))) if ends[0] < ends[1]]
        after = found.place
    reader.close()
    pieces += chance.sample(pieces, len(pieces) // 4)
    chance.shuffle(pieces)
    size = max(1, len(pieces) // 5)
    for at in range(0, len(pieces), size):
        commit = Batch()
        for piece in pieces[at : at + size]:
            commit.merge(rows_of(piece, "acme", "m1", 1_700_000_100_000))
        store.write(commit.rows())


def a_question(chance: random.Random) -> Filters:
    asked = {
        "run_id": chance.sample([run_id(number) for number in range(1, RUNS + 1)], 2),
        "decision": chance.sample(["ALLOW", "BLOCK", "THROTTLE"], 2),
        "status": [chance.choice(["OK", "ERROR", "CANCELLED", "PENDING"])],
        "since_ms": 1_700_000_000_000 + chance.randrange(3000),
        "until_ms": 1_700_000_000_000 + chance.randrange(4000),
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
        for question in [Filters(), *(a_question(chance) for _ in range(30))]:
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
