"""Something answers at the collector's address and is none: nothing of what it says counts as an acknowledgement."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("zstandard", reason="needs the extra `fleet` (make test-fleet)")

from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker, sub_environment
from harness.scripted_http import ScriptedHttp, scripted_http
from subluminal.fleet.shipping.progress import Progress, shipped_place, standing
from subluminal.fleet.shipping.sending import Address
from subluminal.fleet.shipping.task import ShipTask
from subluminal.ledger.store.writer import Store

CALLS = 2
EVENTS = 3 * CALLS + 2
WHOLE = {"acked": [1, EVENTS]}
PAGE = b"<html><body>Sign in to the network of this hotel</body></html>"


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as started:
        started.json("/v1/cursor", {"seq": 0})
        yield started


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "sub"
    home.mkdir(mode=0o700)
    store = Store(str(home / "ledger.db"))
    with store.batch():
        for line in EventMaker(run_id(1), shim_id(1)).whole_run(CALLS):
            store.add(line)
    store.close()
    return home


def step(server: ScriptedHttp, home: Path) -> str | None:
    """Why the shipper waits after one step."""
    task = ShipTask(Address(server.origin), str(home))
    try:
        assert task.step() > 0
        return task.last_wait
    finally:
        task.close()


@pytest.mark.parametrize(
    "body",
    [b"hello", b"", PAGE, b"null", b"[]", b"{}", b'{"acked":true}', b'{"acked":[1]}', b'{"acked":["1","8"]}', b"\xff"],
)
def test_a_service_that_says_200_to_everything_acknowledges_nothing(
    server: ScriptedHttp, home: Path, body: bytes
) -> None:
    server.routes["/v1/segments"] = (200, {"Content-Type": "text/html"}, body)
    assert "does not answer as a collector does" in (step(server, home) or "")
    assert shipped_place(str(home)) == 0
    server.json("/v1/segments", WHOLE)
    assert step(server, home) is None
    found = standing(str(home))
    assert found is not None and (found.events, found.unacked_events, found.refused) == (EVENTS, 0, 0)


@pytest.mark.parametrize("acked", [[1, EVENTS - 1], [2, EVENTS], [1, EVENTS + 1], [0, 0]])
def test_an_acknowledgement_of_another_range_is_none(server: ScriptedHttp, home: Path, acked: list[int]) -> None:
    server.json("/v1/segments", {"acked": acked})
    assert f"acknowledged {acked[0]} to {acked[1]}, and was sent 1 to {EVENTS}" in (step(server, home) or "")
    assert shipped_place(str(home)) == 0


@pytest.mark.parametrize("body", [PAGE, b"{}", b'{"seq":"all of it"}', b'{"seq":null}', b"[]"])
def test_a_cursor_that_is_not_a_collectors_leaves_nothing_out(server: ScriptedHttp, home: Path, body: bytes) -> None:
    server.routes["/v1/cursor"] = (200, {}, body)
    server.json("/v1/segments", WHOLE)
    assert "does not answer as a collector does" in (step(server, home) or "")
    assert [request.method for request in server.seen] == ["GET"]
    assert shipped_place(str(home)) == 0


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_that_is_not_a_collectors_is_no_refusal(server: ScriptedHttp, home: Path, status: int) -> None:
    server.routes["/v1/segments"] = (status, {}, PAGE)
    assert f"it answered {status}" in (step(server, home) or "")
    progress = Progress(str(home))
    assert progress.refused() == [] and progress.place() is None
    progress.close()


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["query"], PAGE),
        (["query"], b'{"rows":3}'),
        (["query", "--count"], b"{}"),
        (["runs"], b"[" * 100_000),
        (["verify", "r"], b"[]"),
        (["show", "r"], PAGE),
    ],
)
def test_whoever_reads_from_something_else_is_told_in_a_sentence(
    server: ScriptedHttp, tmp_path: Path, words: list[str], body: bytes
) -> None:
    for place in ("calls", "count", "runs", "run", "resolve", "verify", "lines"):
        server.routes[f"/v1/{place}"] = (200, {}, body)
    environ = sub_environment(tmp_path / "reader", SUB_FLEET_TOKEN="t")
    command = [sys.executable, "-m", "subluminal", *words, "--fleet", server.origin]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "does not answer as a collector does" in done.stderr


def test_a_run_of_another_version_is_told_in_a_sentence(server: ScriptedHttp) -> None:
    from subluminal.fleet.client import Fleet
    from subluminal.fleet.shipping.sending import Later

    server.json("/v1/run", {"run": json.dumps({})})
    with Fleet(server.origin, environ={"SUB_FLEET_TOKEN": "t"}) as fleet, pytest.raises(Later, match="another version"):
        fleet.run("r")
