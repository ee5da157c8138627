"""The daemon as a process: its socket, its locks, its patience with a full disk and a locked database."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import (
    EventMaker,
    connect_ledgerd,
    create_journal,
    ledgerd,
    spool_of,
    start_ledgerd,
    sub_environment,
)
from harness.processes import MARKER_VARIABLE, new_marker, processes_with
from harness.waiting import wait_for
from subluminal.host.record.ledgerd import NICENESS
from subluminal.ledger.daemon.pace import LOOK_IDLE_S


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    spool_of(home)
    os.chmod(home, 0o700)
    return home


class Peer:
    """A client of the socket, by lines."""

    def __init__(self, home: Path) -> None:
        self._socket = connect_ledgerd(home)
        self._stream = self._socket.makefile("rwb")

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, *lines: bytes | dict[str, Any]) -> None:
        for line in lines:
            self._stream.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        self._stream.flush()

    def answer(self) -> Any:
        line = self._stream.readline()
        return json.loads(line) if line else None


def query(home: Path, sql: str) -> list[Any]:
    database = sqlite3.connect(home / "ledger.db", timeout=10)
    try:
        return database.execute(sql).fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        database.close()


def sub(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "subluminal", *arguments],
        env=sub_environment(home),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def running(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    with ledgerd(home) as process:
        yield process


def test_an_event_is_acknowledged_when_it_is_committed(home: Path, running: object) -> None:
    lines = EventMaker("run-1", "shim-1").whole_run(1)
    with Peer(home) as peer:
        peer.send(lines[0])
        assert peer.answer() == {"ack": {"shim_id": "shim-1", "seq": 1}}
        assert query(home, "SELECT event_count FROM runs") == [(1,)]
        peer.send(*lines)
        assert peer.answer() == {"ack": {"shim_id": "shim-1", "seq": 1}, "duplicate": True}
        assert [peer.answer()["ack"]["seq"] for _ in range(4)] == [2, 3, 4, 5]
    assert query(home, "SELECT event_count, status FROM runs") == [(5, "SUCCEEDED")]


def test_what_is_no_event_is_refused_and_the_connection_lives_on(home: Path, running: object) -> None:
    with Peer(home) as peer:
        peer.send(b"nonsense", b'{"type":"run_start"}', b'{"control":"dance"}', b"[" * 5000)
        answers = [peer.answer() for _ in range(4)]
        assert sum("nack" in answer for answer in answers) == 3
        assert sum("unknown control" in answer.get("error", "") for answer in answers) == 1
        peer.send(EventMaker("run-1", "shim-1").run_start())
        assert "ack" in peer.answer()


def test_an_endless_line_ends_the_connection_and_not_the_daemon(home: Path, running: subprocess.Popen[bytes]) -> None:
    with Peer(home) as peer, pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(100):
            peer._socket.sendall(b"x" * 100_000)
    with Peer(home) as peer:
        peer.send({"control": "status"})
        assert peer.answer()["status"]["pid"] == running.pid


def test_the_socket_and_the_files_are_the_owners_alone(home: Path, running: object) -> None:
    spool = home / "spool"
    (spool / "shim-1.jsonl").write_bytes(EventMaker("run-1", "shim-1").run_start() + b"\n")
    wait_for(lambda: query(home, "SELECT 1 FROM runs"))
    modes = {path.name: path.lstat().st_mode & 0o777 for path in home.iterdir()}
    assert modes.pop("spool") == 0o700
    assert modes and set(modes.values()) == {0o600}, modes


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_turned_away_even_if_the_socket_is_open_to_all(tmp_path: Path) -> None:
    home = Path(tempfile.mkdtemp(prefix="sub-peer-", dir="/tmp"))  # other users cannot enter pytest's own
    home.chmod(0o755)
    try:
        with ledgerd(home):
            os.chmod(home / "ledgerd.sock", 0o666)
            script = (
                "import os, socket\nos.setuid(65534)\ns = socket.socket(socket.AF_UNIX)\n"
                f"s.connect({str(home / 'ledgerd.sock')!r})\n"
                'try:\n    s.sendall(b\'{"control":"status"}\\n\')\n    print(len(s.recv(100)))\n'
                "except OSError:\n    print(0)\n"
            )
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
            assert done.stdout == "0\n", done.stderr
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)


def test_a_doorbell_brings_a_journal_in_at_once(home: Path, running: object) -> None:
    with Peer(home) as peer:
        journal = create_journal(str(home / "spool"), "shim-1")
        os.write(journal, EventMaker("run-1", "shim-1").run_start() + b"\n")
        peer.send({"control": "wake"}, {"control": "status"})
        peer.answer()
        wait_for(lambda: query(home, "SELECT 1 FROM runs"), LOOK_IDLE_S * 0.8, "the run, before it is looked for")
        os.close(journal)


def test_a_follower_gets_what_matches_in_order_and_nothing_else(home: Path, running: object) -> None:
    with Peer(home) as follower, Peer(home) as producer:
        follower.send({"control": "follow", "tool": ["git_*"], "type": "tool_call_start"})
        assert "following" in follower.answer()
        maker = EventMaker("run-1", "shim-1")
        lines = [maker.run_start()]
        for tool in ("git_status", "ls", "git_push", "git_log"):
            lines += maker.call(tool=tool)
        producer.send(*lines)
        assert [follower.answer()["call"]["tool_name"] for _ in range(3)] == ["git_status", "git_push", "git_log"]
        follower.send({"control": "follow", "after": "soon"})
        assert "error" in follower.answer()


def test_a_follower_is_answered_for_by_the_call_of_which_an_event_speaks(home: Path, running: object) -> None:
    """A condition on the decision holds from the decision on, one on the status from the end on, whoever commits."""
    maker = EventMaker("run-1", "shim-1")
    lines = [maker.run_start(), *maker.call("BLOCK", tool="git_push"), *maker.call(tool="git_status")]
    lines += [*maker.call(status="ERROR", tool="ls"), maker.start(tool="git_log"), maker.run_end()]
    with Peer(home) as producer:
        producer.send(*lines)
        for _ in lines:
            producer.answer()
    asked = {
        '{"decision":"BLOCK"}': ["git_push decision", "git_push end"],
        '{"decision":"BLOCK","status":["ERROR"]}': [],
        '{"status":"ERROR"}': ["ls end"],
        '{"rule":"deny-writes","type":"tool_call_e*"}': ["git_push end"],
        '{"tool_name":"git_[!ls]*"}': ["git_push start", "git_push decision", "git_push end"],
        '{"text":"writes are","type":"*_end"}': ["git_push end"],
        '{"principal":"ann","type":"run_*"}': ["run_start", "run_end"],
        '{"agent":"somebody-else"}': [],
        '{"min_latency":3,"tool":"git_status"}': ["git_status end"],
        '{"until_ms":1,"env":["dev"]}': [],
        '{"status":"PENDING","tool":"git_log"}': ["git_log start"],
    }
    for filters, events in asked.items():
        with Peer(home) as follower, Peer(home) as producer:
            follower.send({"control": "follow", "after": 0, **json.loads(filters)})
            assert "following" in follower.answer(), filters
            got = [_told(follower.answer()) for _ in events]
            assert got == events, filters
            follower.send({"control": "status"})  # and no further one
            assert "status" in follower.answer(), filters


def _told(event: Any) -> str:
    kind = event["type"].removeprefix("tool_call_")
    return f"{event['call']['tool_name']} {kind}" if "call" in event else kind


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("tol", "'tol' is no filter. Did you mean"),
        ("decision", "'x' is no decision. Known: ALLOW"),
        ("min_latency", "min_latency_ms must be a whole number"),
    ],
)
def test_a_follower_s_mistake_is_told_in_a_sentence(home: Path, running: object, word: str, sentence: str) -> None:
    with Peer(home) as follower:
        follower.send({"control": "follow", word: "x"})
        assert sentence in follower.answer()["error"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"control":"follow","after":99999999999999999999999999}',
        b'{"control":"follow","after":-1}',
        b'{"control":"follow","after":1e400}',
        b'{"control":"follow","run":[5]}',
        b'{"control":"follow","run":5,"self":[]}',
        b'{"control":"follow","self":[],"conditions":{}}',
        b'{"control":"follow","text":{"a":' + b"[" * 900 + b"]" * 900 + b"}}",
        b'{"control":"follow","min_latency":1e3}',
        b'{"control":"follow","since":99999999999999999999999999}',
        b'{"control":"follow","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"control":"follow","run":"\xff"}',
        b'{"control":"prune","before":"zzz"}',
        b'{"control":"prune"}',
        b'{"control":"policy","policy_hash":7}',
        b"[" * 100_000,
        b"\0\xff{",
    ],
)
def test_no_line_over_the_socket_ends_the_daemon(home: Path, running: object, line: bytes) -> None:
    with Peer(home) as peer, Peer(home) as other:
        peer.send(line)
        answer = peer.answer()
        assert answer is not None and ("error" in answer or "error" in answer["nack"])
        other.send({"control": "status"})
        assert "status" in other.answer()


def test_a_newer_event_of_any_shape_passes_a_follower_s_filter_without_harm(home: Path, running: object) -> None:
    with Peer(home) as follower, Peer(home) as producer:
        follower.send({"control": "follow", "tool": ["git_*"], "decision": ["BLOCK"]})
        follower.answer()
        newer = json.loads(EventMaker("run-1", "shim-1").run_start())
        producer.send({**newer, "type": "of_the_future", "call": "text", "decision": [1]})
        assert "ack" in producer.answer()
        follower.send({"control": "status"})
        assert "status" in follower.answer()


def test_a_follower_that_does_not_read_costs_no_memory_and_misses_nothing(
    home: Path, running: subprocess.Popen[bytes]
) -> None:
    makers = [EventMaker("run-1", str(i)) for i in range(4)]
    with Peer(home) as follower:
        follower.send({"control": "follow", "type": "tool_call_start"})
        follower.answer()
        before = _rss_kib(running.pid)
        for i, maker in enumerate(makers):
            lines = [maker.start(preview="p" * 8000) for _ in range(1000)]
            (home / "spool" / f"{i}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        wait_for(lambda: query(home, "SELECT 1 FROM runs WHERE calls_total = 4000"), 60)
        assert _rss_kib(running.pid) - before < 80_000
        seen = [follower.answer()["call"]["seq"] for _ in range(4000)]
        assert sorted(seen) == sorted([*range(1, 1001)] * 4)


def _rss_kib(pid: int) -> int:
    if not os.path.exists(f"/proc/{pid}/status"):
        return 0
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])


def test_only_one_daemon_runs_per_home(home: Path, running: subprocess.Popen[bytes]) -> None:
    second = start_ledgerd(home)
    assert second.wait(20) == 0
    assert running.poll() is None
    assert json.loads(sub(home, "ledgerd", "--status", "--json").stdout)["pid"] == running.pid


def test_many_who_start_it_at_once_get_one_daemon(home: Path) -> None:
    script = "from subluminal.ledger.daemon.contact import require_ledgerd\nrequire_ledgerd(30)"
    marker = new_marker()
    environ = sub_environment(home, SUB_LEDGER_IDLE_S="30", **{MARKER_VARIABLE: marker})
    starters = [subprocess.Popen([sys.executable, "-c", script], env=environ) for _ in range(5)]
    try:
        assert [starter.wait(60) for starter in starters] == [0] * 5
        # One that is slow to start would find nobody once the first has ended, and stay.
        wait_for(lambda: len(processes_with(marker)) == 1, 60, "the end of those that came late")
        with Peer(home) as peer:
            peer.send({"control": "status"})
            pid = peer.answer()["status"]["pid"]
        assert (home / "ledgerd.log").read_text().count("started") == 1
        assert os.getsid(pid) != os.getsid(0)
        assert _yields(pid)
    finally:
        stopped = sub(home, "ledgerd", "--stop", "--json")
    assert json.loads(stopped.stdout) == {"stopped": True}
    assert not (home / "ledgerd.sock").exists()


def _yields(pid: int) -> bool:
    """To an agent's calls: by its own niceness, and by its session's where Linux goes by sessions."""
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists() and not group.read_text().endswith(f"nice {NICENESS}\n"):
        return False
    return os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)


def test_one_that_was_stopped_has_let_go_of_the_ledger_when_that_is_said(home: Path) -> None:
    with ledgerd(home), Peer(home) as peer:
        peer.send(*EventMaker("run-1", "shim-1").whole_run(300))
        stopped = sub(home, "ledgerd", "--stop")
        assert stopped.stdout == "ledgerd has ended\n"
        assert not (home / "ledger.db-wal").exists(), "taken in, and closed"
        with open(home / "ledgerd.pid") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_one_is_stopped_though_another_listens_by_then(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from subluminal.ledger.daemon import contact

    monkeypatch.setenv("SUB_HOME", str(home))
    with ledgerd(home) as first:
        with Peer(home) as peer:
            peer.send({"control": "status"})
            assert peer.answer()["status"]["pid"] == first.pid
        ask, second = contact.ask, []

        def ask_and_start_another(request: dict[str, Any]) -> dict[str, Any] | None:
            answer = ask(request)
            first.wait(20)
            second.append(start_ledgerd(home))
            connect_ledgerd(home).close()
            return answer

        monkeypatch.setattr(contact, "ask", ask_and_start_another)
        assert contact.stop()
        assert contact.listens()
        monkeypatch.setattr(contact, "ask", ask)
        assert contact.stop()
        assert second[0].wait(20) == 0


def test_one_that_has_only_taken_its_name_out_is_still_going_and_the_next_waits_for_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from subluminal.ledger.daemon import contact
    from subluminal.ledger.daemon.daemon import AlreadyRunning, _take_lock

    monkeypatch.setenv("SUB_HOME", str(home))
    first = _take_lock(str(home))
    with pytest.raises(AlreadyRunning):
        _take_lock(str(home))
    assert not contact._is_going()
    os.ftruncate(first, 0)
    assert contact._is_going()
    monkeypatch.setattr(os, "sched_yield", lambda: os.close(first))
    os.close(_take_lock(str(home)))
    assert not contact._is_going()


def test_a_daemon_killed_leaves_a_socket_that_does_not_stop_the_next(home: Path) -> None:
    with ledgerd(home) as first:
        first.kill()
        first.wait()
        assert (home / "ledgerd.sock").exists()
        with ledgerd(home), Peer(home) as peer:
            peer.send({"control": "status"})
            assert peer.answer()["status"]["pid"] != first.pid


def test_it_ends_by_itself_when_there_is_nothing_to_do_but_not_while_a_shim_lives(home: Path) -> None:
    journal = create_journal(str(home / "spool"), "shim-1")
    os.write(journal, EventMaker("run-1", "shim-1").run_start() + b"\n")
    idle_home = home.with_name("idle")
    spool_of(idle_home)
    process = start_ledgerd(home, SUB_LEDGER_IDLE_S="0.3")
    try:
        connect_ledgerd(home).close()
        assert start_ledgerd(idle_home, SUB_LEDGER_IDLE_S="0.3").wait(30) == 0  # began later and has nothing to do
        assert process.poll() is None
        os.close(journal)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_it_ends_when_its_home_is_removed(home: Path) -> None:
    with ledgerd(home) as process:
        home.rename(home.with_name("gone"))
        assert process.wait(30) == 0


def test_idle_settings_that_make_no_sense_are_refused_with_a_sentence(home: Path) -> None:
    (home / "config.toml").write_text("[ledger]\nidle_exit_s = 'soon'\n")
    done = sub(home, "ledgerd", "--foreground", "--quiet")
    assert done.returncode == 2 and "idle_exit_s" in done.stderr and "Traceback" not in done.stderr


def test_stop_takes_in_what_is_there_before_it_ends(home: Path) -> None:
    with ledgerd(home) as process:
        lines = EventMaker("run-1", "shim-1").whole_run(500)
        (home / "spool" / "shim-1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert query(home, "SELECT event_count FROM runs") == [(1502,)]


def test_a_locked_database_delays_events_and_loses_none(home: Path, running: subprocess.Popen[bytes]) -> None:
    with Peer(home) as peer:
        peer.send({"control": "status"})
        peer.answer()
        blocker = sqlite3.connect(home / "ledger.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        maker = EventMaker("run-1", "shim-1")
        (home / "spool" / "shim-2.jsonl").write_bytes(
            b"".join(line + b"\n" for line in EventMaker("run-1", "shim-2").whole_run(5))
        )
        peer.send(maker.run_start())

        def error() -> Any:
            with Peer(home) as other:
                other.send({"control": "status"})
                return other.answer()["status"]["last_error"]

        assert "locked" in wait_for(error)
        blocker.execute("ROLLBACK")
        blocker.close()
        assert peer.answer() == {"ack": {"shim_id": "shim-1", "seq": 1}}
        wait_for(lambda: query(home, "SELECT 1 FROM runs WHERE event_count = 18"))
        assert wait_for(lambda: error() is None)


def test_a_full_disk_delays_events_and_loses_none(home: Path) -> None:
    lines = EventMaker("run-1", "shim-1").whole_run(3000)
    (home / "spool" / "shim-1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))

    process = subprocess.Popen(
        [sys.executable, "-m", "subluminal", "ledgerd", "--foreground", "--quiet"],
        env=sub_environment(home),
        preexec_fn=small_files,
    )
    try:

        def error() -> Any:
            with Peer(home) as peer:
                peer.send({"control": "status"})
                return (peer.answer() or {"status": {}})["status"].get("last_error")

        wait_for(error, what="the daemon noticed the full disk")
        assert process.poll() is None
        assert (home / "spool" / "shim-1.jsonl").exists()
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_for(lambda: query(home, "SELECT 1 FROM runs WHERE event_count = 9002"), 60)
        wait_for(lambda: not (home / "spool" / "shim-1.jsonl").exists())
    finally:
        process.terminate()
        process.wait(20)
    assert query(home, "PRAGMA integrity_check") == [("ok",)]
    assert sub(home, "verify", "--all").returncode == 0


@pytest.mark.contract("LED-002")
def test_a_burst_waits_in_the_journals_and_every_decision_arrives(home: Path, running: subprocess.Popen[bytes]) -> None:
    """A stalled ledger (stopped process) never blocks a writer, and afterwards nothing is missing."""
    running.send_signal(signal.SIGSTOP)
    journals = [create_journal(str(home / "spool"), f"shim-{i}") for i in range(4)]
    for i, journal in enumerate(journals):
        maker = EventMaker("run-1", f"shim-{i}")
        lines = [maker.run_start()]
        for _ in range(500):
            lines += [maker.start(preview="p" * 4000), maker.decision("BLOCK")]
        for line in lines:
            os.write(journal, line + b"\n")
        os.close(journal)
    waiting = b"".join(path.read_bytes() for path in (home / "spool").glob("*.jsonl"))
    assert waiting.count(b'"tool_call_decision"') == 2000, "all of it was taken while the daemon stood still"
    running.send_signal(signal.SIGCONT)
    wait_for(lambda: query(home, "SELECT 1 FROM runs WHERE calls_blocked = 2000"), 60)
    wait_for(lambda: query(home, "SELECT 1 FROM runs WHERE status = 'FAILED'"), 60)
    assert _rss_kib(running.pid) < 160_000


def test_the_log_is_bounded(tmp_path: Path) -> None:
    from subluminal.ledger.daemon.log import LIMIT_BYTES, Log

    log = Log(str(tmp_path / "ledgerd.log"), echo=False)
    for _ in range(1200):
        log("x" * 1000)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2 and max(sizes) < LIMIT_BYTES + 2000


def test_a_deep_home_still_has_a_socket(tmp_path: Path) -> None:
    home = tmp_path / ("d" * 60) / ("e" * 60) / "home"
    spool_of(home)
    with ledgerd(home):
        assert sub(home, "ledgerd", "--status").returncode == 0


def test_a_home_that_cannot_be_written_is_a_sentence(home: Path) -> None:
    (home / "file").write_text("")
    for arguments in (["ledgerd", "--foreground"], ["ledgerd"], ["ingest", "-"]):
        done = sub(home / "file" / "below", *arguments)
        assert done.returncode == 2 and "cannot be made" in done.stderr and "Traceback" not in done.stderr
    (home / "ledgerd.pid").mkdir()
    done = sub(home, "ledgerd", "--foreground")
    assert done.returncode == 2 and "cannot write in" in done.stderr and "Traceback" not in done.stderr


def test_the_state_of_runs_that_nobody_uses_any_more_is_cleared_away(home: Path) -> None:
    (home / "run").mkdir(mode=0o700)
    old, young = home / "run" / "a.state", home / "run" / "b.state"
    for path in (old, young):
        path.write_bytes(b"x")
    os.utime(old, (1, 1))
    with ledgerd(home):
        wait_for(lambda: not old.exists())
    assert young.exists()


def test_http_without_an_address_is_understood(home: Path) -> None:
    done = sub(home, "ledgerd", "--http")
    assert done.returncode == 2 and "--http needs --foreground" in done.stderr


def test_status_says_when_none_runs(home: Path) -> None:
    done = sub(home, "ledgerd", "--status", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["running"], told["pid"]) == (1, False, None)
