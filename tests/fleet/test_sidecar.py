"""`sub fleet sidecar` as the first process of a pod's sidecar: joined before anything runs, drained before it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")
pytest.importorskip("zstandard", reason="needs the extra `fleet` (make test-fleet)")
pytest.importorskip("psycopg", reason="needs the extra `fleet` (make test-fleet)")

from harness.collector import CollectorProcess, collector
from harness.fleet import Fleet, bundle
from harness.ledger import EventMaker, spool_of, sub_environment
from harness.ports import nobody_listens
from harness.stores import PostgresServer
from harness.waiting import GENEROUS_S, wait_for
from subluminal.fleet.telemetry.standing import fleet_figures

EVENTS = 3 * 7 + 2


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path) as made:
        made.publish(bundle("org", deny="rm"))
        yield made


@pytest.fixture
def central(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[CollectorProcess]:
    with collector(tmp_path / "collector", postgres_server.database()) as started:
        yield started


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """As in a pod: the volume is open to all, and the home is made in it."""
    (tmp_path / "volume").mkdir(mode=0o777)
    (tmp_path / "volume").chmod(0o777)
    return tmp_path / "volume" / "home"


def sub(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "subluminal", *words]
    return subprocess.run(command, env=sub_environment(home), capture_output=True, text=True, timeout=60, check=False)


def prepare(home: Path, fleet: Fleet, url: str | None = None, *more: str) -> subprocess.CompletedProcess[str]:
    where = ["--url", url or fleet.origin.url, "--root", fleet.root]
    return sub(home, "fleet", "sidecar", "--prepare", *where, *more)


def to(central: CollectorProcess, tmp_path: Path) -> list[str]:
    token = tmp_path / "token"
    token.write_text(central.token("acme", "pod-1"))
    return ["--collector", central.url, "--token-file", str(token)]


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def end(self) -> tuple[int, str]:
        """SIGTERM, as kubelet sends it; its exit code, and what it said."""
        self.process.send_signal(signal.SIGTERM)
        _, told = self.process.communicate(timeout=GENEROUS_S)
        return self.process.returncode, told


@contextmanager
def sidecar(home: Path, drain: str = "25s") -> Iterator[Running]:
    command = [sys.executable, "-m", "subluminal", "fleet", "sidecar", "--drain", drain]
    process = subprocess.Popen(
        command, env=sub_environment(home), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_for(lambda: sub(home, "ledgerd", "--status").returncode == 0, what="the startup probe")
        yield Running(process)
    finally:
        sub(home, "ledgerd", "--stop")
        process.kill()
        process.wait()


def record(home: Path, run: str) -> None:
    lines = EventMaker(f"run-{run}", f"shim-{run}").whole_run(7)
    (spool_of(home) / f"shim-{run}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def test_it_joins_once_and_a_container_that_starts_again_goes_on(home: Path, fleet: Fleet) -> None:
    first, again = prepare(home, fleet), prepare(home, fleet, None, "--json")
    assert (first.returncode, first.stdout) == (0, "joined\n"), first.stderr
    assert json.loads(again.stdout) == {"joined": False, "url": fleet.origin.url}
    other = prepare(home, fleet, "http://127.0.0.1:1")
    assert other.returncode == 2 and "has joined" in other.stderr and "Traceback" not in other.stderr


def test_where_the_origin_cannot_be_reached_or_believed_nothing_starts(
    home: Path, fleet: Fleet, tmp_path: Path
) -> None:
    with nobody_listens() as port:
        away = prepare(home, fleet, f"http://127.0.0.1:{port}")
    placeholder = tmp_path / "root.json"
    placeholder.write_text('{"replace": "this file"}')
    wrong = sub(home, "fleet", "sidecar", "--prepare", "--url", fleet.origin.url, "--root", str(placeholder))
    for done in (away, wrong):
        assert done.returncode == 2 and "Traceback" not in done.stderr
    assert not (home / "fleet" / "joined.json").exists()


def test_what_was_written_in_the_last_moment_is_shipped_before_it_ends(
    home: Path, fleet: Fleet, central: CollectorProcess, tmp_path: Path
) -> None:
    assert prepare(home, fleet, None, *to(central, tmp_path)).returncode == 0
    with sidecar(home) as running:
        record(home, "1")
        wait_for(lambda: central.metric("subluminal_collector_events_total"), enough=lambda seen: seen == EVENTS)
        record(home, "2")
        code, told = running.end()
    assert code == 0 and "everything is in the ledger, and shipped" in told
    assert central.metric("subluminal_collector_events_total") == 2 * EVENTS
    assert len(central.rows("query", "--limit", "100")) == 14


def test_without_a_collector_it_says_what_was_left_and_the_next_one_ships_it(
    home: Path, fleet: Fleet, central: CollectorProcess, tmp_path: Path
) -> None:
    assert prepare(home, fleet, None, *to(central, tmp_path)).returncode == 0
    central.kill()
    with sidecar(home, "2s") as running:
        record(home, "1")
        code, told = running.end()
    assert code == 1 and f"not drained within 2 s: {EVENTS} events were not shipped" in told
    central.start()
    with sidecar(home) as running:
        assert running.end()[0] == 0
    assert central.metric("subluminal_collector_events_total") == EVENTS


def test_what_the_collector_refused_and_what_pruning_put_aside_is_said_at_the_end(
    home: Path, fleet: Fleet, central: CollectorProcess, tmp_path: Path
) -> None:
    from subluminal.fleet.shipping.progress import Progress, Refused

    assert prepare(home, fleet, None, *to(central, tmp_path)).returncode == 0
    with sidecar(home) as running:
        record(home, "1")
        wait_for(lambda: central.metric("subluminal_collector_events_total"), enough=lambda seen: seen == EVENTS)
        progress = Progress(str(home))
        progress.refuse([Refused("run-1", "shim-1", 3, 1, 1, "a test")], "now")
        code, told = running.end()
        assert code == 1 and "everything is in the ledger; 1 events were refused by the collector" in told
    progress.taken("run-1", "shim-1", 3)
    central.kill()
    with sidecar(home, "2s") as running:
        progress.hold([("gone", "shim-0", 1, 1, zlib.compress(b"{}"))])
        code, told = running.end()
    progress.close()
    assert code == 1 and "not drained within 2 s: 1 events were not shipped" in told


def test_a_home_that_ships_nothing_only_takes_in(home: Path, fleet: Fleet) -> None:
    assert prepare(home, fleet).returncode == 0
    with sidecar(home) as running:
        record(home, "1")
        code, told = running.end()
    assert code == 0 and "drained" in told
    assert json.loads(sub(home, "runs", "--json").stdout)["calls_total"] == 7


def test_a_daemon_that_dies_takes_the_container_with_it(home: Path, fleet: Fleet) -> None:
    assert prepare(home, fleet).returncode == 0
    with sidecar(home) as running:
        sub(home, "ledgerd", "--stop")
        assert running.process.wait(GENEROUS_S) == 1


def test_a_joined_machine_tells_its_snapshot_its_stops_and_what_is_not_shipped(
    home: Path, fleet: Fleet, central: CollectorProcess, tmp_path: Path
) -> None:
    assert prepare(home, fleet, None, *to(central, tmp_path)).returncode == 0
    central.kill()
    with sidecar(home, "1s") as running:
        record(home, "1")
        wait_for(lambda: not list((home / "spool").glob("*.jsonl")))
        running.end()
    found = {reading.figure.name: reading.points[0][1] for reading in fleet_figures(str(home))}
    assert found["subluminal.unacked.events"] == EVENTS
    assert (found["subluminal.snapshot.valid"], found["subluminal.stop.active"]) == (1, 0)
    assert found["subluminal.snapshot.version"] >= 1 and 0 <= found["subluminal.snapshot.age"] < 3600
    for laid in (home / "fleet" / "policy").iterdir():
        laid.unlink()
    altered = {reading.figure.name: reading.points[0][1] for reading in fleet_figures(str(home))}
    assert altered["subluminal.snapshot.valid"] == 0


@pytest.mark.parametrize("words", [["--url", "http://x"], ["--prepare"], ["--drain", "soon"]])
def test_a_command_line_that_means_nothing_is_a_sentence(home: Path, words: list[str]) -> None:
    done = sub(home, "fleet", "sidecar", *words)
    assert done.returncode == 2 and done.stderr and "Traceback" not in done.stderr
