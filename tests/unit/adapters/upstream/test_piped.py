"""A server process on a loop: started, ended, and its descriptors closed once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from harness.fake_server import fake_server
from harness.processes import is_alive
from harness.waiting import wait_for_async
from harness.web import LOOPS, run_on
from subluminal.adapters.upstream.piped import PipedServer


def piped(lines: list[bytes]) -> PipedServer:
    return PipedServer(1 << 20, lines.append, lambda piece, last: None, lambda status: None)


def pids(path: Path) -> list[int]:
    return [int(line.split()[1]) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_ends_closes_nothing_of_those_that_start(loop: str) -> None:
    async def main() -> None:
        ending = []
        running: list[PipedServer] = []
        for _ in range(24):
            lines: list[bytes] = []
            server = piped(lines)
            await server.start(fake_server(tools={"*": {}}), os.environ)  # raises if a pipe of it was closed
            server.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
            await wait_for_async(lambda heard=lines: len(heard) == 1, what="its answer")
            running.append(server)
            if len(running) > 3:
                ending.append(asyncio.create_task(running.pop(0).end()))
        await asyncio.gather(*ending, *(server.end() for server in running))

    run_on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_nobody_wants_any_more_while_it_starts_does_not_stay(loop: str, tmp_path: Path) -> None:
    noted = tmp_path / "pids"

    async def main() -> None:
        server = piped([])
        starting = asyncio.create_task(server.start(fake_server(pid_file=str(noted)), os.environ))
        await asyncio.sleep(0)
        await server.end()
        await starting
        await wait_for_async(lambda: not any(map(is_alive, pids(noted))), what="its end")

    run_on(loop, main())
