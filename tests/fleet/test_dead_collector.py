"""A shim knows nothing of collectors: whether one is dead or accepts and never answers, it has no connection to it and
no code that could make one. `bench/joined.py` has what that costs in microseconds.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.driver import Agent
from harness.fake_server import fake_server
from harness.fleet import Fleet, bundle
from harness.ledger import ledgerd
from harness.ports import listening, nobody_listens
from harness.shim import isolated_env, shim_command
from harness.waiting import wait_for
from subluminal.fleet.keeper.state import read_state

NEVER_LOADED = ("subluminal.fleet", "tuf", "zstandard", "http.client", "urllib.request", "ssl", "aiohttp")


def sockets_of(pid: int) -> set[str]:
    """Inodes. A descriptor that was closed while we looked is none."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def internet_sockets() -> dict[str, int]:
    """Inode to its own port, of every TCP socket of this machine."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


# A port, and whether the keeper of a home has met what listens there or not.
Collector = AbstractContextManager[tuple[int, Callable[[str], bool]]]


@contextmanager
def dead() -> Iterator[tuple[int, Callable[[str], bool]]]:
    def has_waited(home: str) -> bool:
        ship = read_state(home).tasks.get("ship")
        return ship is not None and "cannot be reached" in ship.facts.get("last_wait", "")

    with nobody_listens() as port:
        yield port, has_waited


@contextmanager
def silent() -> Iterator[tuple[int, Callable[[str], bool]]]:
    """Every connection is the keeper's."""
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                held.append(listener.accept()[0])
            except OSError:
                return

    def is_kept_waiting(home: str) -> bool:
        ports = {connection.getpeername()[1] for connection in held}
        keeper = read_state(home).pid
        known = internet_sockets()
        of_keeper = {known[inode] for inode in sockets_of(keeper) if inode in known} if keeper else set()
        return bool(ports) and ports <= of_keeper

    with listening() as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1], is_kept_waiting
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


@pytest.mark.parametrize("collector", [dead, silent])
def test_a_shim_neither_reaches_for_a_collector_nor_could(collector: Callable[[], Collector], tmp_path: Path) -> None:
    home = str(tmp_path / "sub")
    (tmp_path / "token").write_text("a-token")
    with Fleet(tmp_path) as fleet, collector() as (port, has_tried):
        fleet.publish(bundle("base", deny="delete*"))
        fleet.join("sub", collector=f"http://127.0.0.1:{port}", token_file=str(tmp_path / "token"))
        command = shim_command("store", fake_server(tools={"*": {}}))
        environment = isolated_env(tmp_path, PYTHONPROFILEIMPORTTIME="1")
        with ledgerd(Path(home)), Agent(command, environment, tmp_path) as agent:
            agent.initialize()
            assert "result" in agent.call("read")
            wait_for(lambda: has_tried(home), what="the keeper to try", meanwhile=agent.settle)
            for _ in range(50):
                assert "result" in agent.call("read") and "error" in agent.call("delete_all")
                assert sockets_of(agent.process.pid).isdisjoint(internet_sockets())
            assert has_tried(home)
            agent.finish()
            loaded = [line.rpartition("|")[2].strip() for line in agent.stderr.splitlines() if "import time:" in line]
    assert any(name.startswith("subluminal.adapters.stdio") for name in loaded)
    assert [name for name in loaded if name.startswith(NEVER_LOADED)] == []
