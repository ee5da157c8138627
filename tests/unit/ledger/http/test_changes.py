"""What a page is told of calls while the daemon takes in more than anybody could read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.command_line import stored
from harness.ledger import EventMaker
from subluminal.contracts.filters import Filters
from subluminal.ledger.http.changes import MOST_BEHIND_LIVE, Changes
from subluminal.ledger.read.changed import LOOK_EVENTS


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("changes") / "home"
    maker = EventMaker("run-many", "shim-many")
    lines = [maker.run_start()]
    while len(lines) < MOST_BEHIND_LIVE + 2 * LOOK_EVENTS:
        lines += maker.call()
    stored(home, lines)
    return home / "ledger.db"


async def told(messages: AsyncIterator[str], changes: Changes, *, committed: bool) -> dict[str, Any]:
    """The next message. `committed`: the daemon has stored more while it was being made."""
    coming = asyncio.ensure_future(anext(messages))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    if committed:
        changes.committed()
    message: dict[str, Any] = json.loads(await coming)
    return message


async def looks(path: Path, *, committed: bool) -> list[dict[str, Any]]:
    changes = Changes(str(path))
    messages = changes.follow(Filters(), 0)
    return [await told(messages, changes, committed=committed) for _ in range(3)]


def test_who_falls_far_behind_a_daemon_that_is_busy_begins_anew_at_the_newest(ledger: Path) -> None:
    begins, first, second = asyncio.run(looks(ledger, committed=True))
    assert not begins["reset"] and first["rows"] and not first["reset"]
    assert second["reset"] and second["after"] > first["after"] + MOST_BEHIND_LIVE


def test_who_has_much_to_catch_up_with_after_a_flood_is_told_all_of_it(ledger: Path) -> None:
    _, first, second = asyncio.run(looks(ledger, committed=False))
    assert first["rows"] and second["rows"] and not second["reset"]
    assert not {row["cursor"] for row in first["rows"]} & {row["cursor"] for row in second["rows"][1:]}
