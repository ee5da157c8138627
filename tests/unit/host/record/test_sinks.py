"""A sink never blocks the call, never dies of its own trouble, and never drops a decision."""

from __future__ import annotations

import fcntl
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.effort import calls_made
from subluminal.contracts.errors import UsageError
from subluminal.host.record import sinks
from subluminal.host.record.sinks import JournalSink, NullSink, StreamSink, open_sink

PREVIEW = "p" * 2000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "sub"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "sub"


def start(number: int, preview: str = PREVIEW) -> bytes:
    call = {"call_id": str(number), "preview": {"truncated": False, "args_preview": preview}}
    return json.dumps({"type": "tool_call_start", "call": call}, separators=(",", ":")).encode() + b"\n"


def decision(number: int) -> bytes:
    return json.dumps({"type": "tool_call_decision", "n": number}, separators=(",", ":")).encode() + b"\n"


def decisions(data: bytes) -> list[int]:
    return [event["n"] for event in map(json.loads, data.splitlines()) if event["type"] == "tool_call_decision"]


def fill(sink: sinks.Sink, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        sink.write(start(number) + decision(number))


def journal(home: Path, shim: str = "s1") -> bytes:
    return (home / "spool" / f"{shim}.jsonl").read_bytes()


def test_the_journal_is_private_locked_while_its_writer_lives_and_complete_at_once(home: Path) -> None:
    sink = open_sink("ledger", "s1")
    sink.write(decision(1))
    path = home / "spool" / "s1.jsonl"
    assert path.read_bytes() == decision(1), "written before write() returns: it survives the death of every process"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with path.open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    sink.close()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_home_that_cannot_be_written_holds_the_events_until_it_can(home: Path, tmp_path: Path) -> None:
    home.write_text("a file where a directory should be")
    sink = open_sink("ledger", "s1")
    assert isinstance(sink, JournalSink)
    fill(sink, 3)
    assert sink.trouble is not None and sink.held_bytes > 0
    home.unlink()
    sink.retry()
    assert decisions(journal(home)) == [0, 1, 2]
    assert sink.trouble is None and not sink.held


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_is_trouble_not_death(tmp_path: Path) -> None:
    place = tmp_path / "readonly"
    place.mkdir(mode=0o500)
    sink = open_sink(f"file:{place}/events", "s1")
    fill(sink, 3)
    sink.close()
    assert isinstance(sink, JournalSink) and "Permission denied" in str(sink.trouble)


def test_a_missing_directory_of_a_file_is_trouble_not_death(tmp_path: Path) -> None:
    sink = open_sink(f"file:{tmp_path}/no/such/events", "s1")
    fill(sink, 1)
    assert isinstance(sink, JournalSink) and "No such file" in str(sink.trouble)
    (tmp_path / "no" / "such").mkdir(parents=True)
    fill(sink, 1, first=1)
    assert decisions((tmp_path / "no/such/events").read_bytes()) == [0, 1]


def test_a_full_device_is_cheap_and_loses_nothing_but_previews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "HOLD_BYTES", 200_000)
    sink = open_sink("file:/dev/full", "s1")
    calls = calls_made(lambda: fill(sink, 5000))
    assert calls < 5000 * 200, "trouble is met on every call while it lasts: what is held is not gone through again"
    held = b"".join(sink.held)
    assert decisions(held) == list(range(5000))
    assert sink.previews_shed > 4800
    shed = [event["call"]["preview"] for event in map(json.loads, held.splitlines()) if "call" in event]
    assert {"truncated": True, "shed": True} in shed
    sink.close()


FULL_DISK = """
import json, os, resource
from subluminal.host.record.sinks import open_sink
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
sink = open_sink("ledger", "s1")
for number in range(40):
    sink.write(json.dumps({"type": "tool_call_decision", "n": number}).encode() + b"\\n")
assert sink.held and os.path.getsize(sink.path) <= 1000
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
sink.close()
"""


def test_a_disk_that_fills_up_and_gets_room_again_has_every_line_once_and_whole(home: Path) -> None:
    """A short write leaves half a line; the rest follows exactly where it stopped."""
    subprocess.run([sys.executable, "-c", FULL_DISK], check=True, timeout=30)
    assert decisions(journal(home)) == list(range(40))


def test_a_fifo_without_a_reader_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    sink = open_sink(f"file:{tmp_path}/fifo", "s1")
    fill(sink, 2)
    assert sink.held_bytes > 0
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    sink.retry()
    assert decisions(os.read(reader, 1 << 16)) == [0, 1]
    os.close(reader)


def test_a_link_in_place_of_the_journal_is_not_followed(home: Path, tmp_path: Path) -> None:
    (home / "spool").mkdir(parents=True)
    (tmp_path / "victim").write_text("precious")
    (home / "spool" / "s1.jsonl").symlink_to(tmp_path / "victim")
    sink = open_sink("ledger", "s1")
    fill(sink, 1)
    sink.close()
    assert (tmp_path / "victim").read_text() == "precious"


def stream(capacity: int = 4096) -> tuple[int, StreamSink]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, capacity)
    sink = open_sink(f"fd:{writer}", "s1")
    assert isinstance(sink, StreamSink)
    return reader, sink


def drain(reader: int) -> bytes:
    os.set_blocking(reader, False)
    parts = []
    try:
        while part := os.read(reader, 1 << 16):
            parts.append(part)
    except BlockingIOError:
        pass
    return b"".join(parts)


def test_a_slow_reader_gets_everything_in_order() -> None:
    reader, sink = stream()
    fill(sink, 50)
    assert sink.wants() == sink.fd
    got = b""
    while sink.held:
        got += drain(reader)
        sink.retry()
    got += drain(reader)
    assert decisions(got) == list(range(50))
    assert sink.wants() == -1


def test_a_reader_that_has_gone_leaves_every_event_to_the_journal(home: Path) -> None:
    reader, sink = stream()
    os.close(reader)
    fill(sink, 5)
    sink.close()
    assert decisions(journal(home)) == list(range(5))


def test_a_reader_that_stalls_for_good_costs_previews_and_then_the_rest_spills(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "HOLD_BYTES", 100_000)
    reader, sink = stream()
    assert calls_made(lambda: fill(sink, 5000)) < 5000 * 200
    assert sink.previews_shed > 0
    sink.close()
    got = drain(reader)
    whole = got[: got.rfind(b"\n") + 1]
    both = decisions(whole) + decisions(journal(home))
    assert both == list(range(5000)), "each decision is with the reader or in the journal, once"


def test_a_line_that_the_reader_has_in_part_is_in_the_journal_in_whole(home: Path) -> None:
    reader, sink = stream()
    sink.write(decision(1) + start(2, "x" * 8000) + decision(3))
    os.close(reader)
    sink.close()
    lines = journal(home).splitlines(keepends=True)
    assert lines[0] == start(2, "x" * 8000)
    assert lines[1] == decision(3)


def connected(kind: str) -> tuple[int, int]:
    if kind == "pipe":
        return os.pipe()
    one, other = socket.socketpair()
    return one.detach(), other.detach()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("seed", range(20))
def test_a_reader_that_stalls_at_any_moment_has_whole_lines_and_the_rest_is_said_and_kept(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("SUB_HOME", str(home))
    rng = random.Random(seed)
    reader, writer = connected(kind)
    os.set_blocking(reader, False)
    sink = open_sink(f"fd:{writer}", "s1")
    got = b""
    stalls_at = rng.randrange(60)
    for number in range(100):
        sink.write(start(number, "x" * rng.choice((10, 1500, 4000, 9000, 30_000))) + decision(number))
        if number < stalls_at and rng.random() < 0.5:
            try:
                got += os.read(reader, rng.choice((100, 5000, 200_000)))
            except BlockingIOError:
                pass
            sink.retry()
    sink.close()
    os.close(writer)
    got += drain(reader)
    os.close(reader)
    assert got.endswith(b"\n"), "the last line is whole"
    there, kept = decisions(got), decisions(journal(home))
    assert there + kept == list(range(100)), "and nothing is lost or told twice"
    assert f"descriptor {writer} was not read to the end: {len(journal(home).splitlines())} events" in str(sink.trouble)


def test_a_reader_that_has_read_everything_is_no_trouble(home: Path) -> None:
    reader, sink = stream(65536)
    fill(sink, 5)
    sink.close()
    assert sink.trouble is None and len(drain(reader).splitlines()) == 10
    assert not (home / "spool").exists()


def test_a_line_that_does_not_fit_yet_is_not_waited_for_in_a_circle() -> None:
    reader, sink = stream(65536)
    sink.write(decision(1) + start(2, "x" * 60_000) + decision(3))
    assert sink.held and sink.wants() == -1, "the pipe polls writable all the time"
    assert drain(reader) == decision(1)
    sink.retry()
    assert drain(reader) == start(2, "x" * 60_000) + decision(3)


def test_a_server_that_writes_events_on_a_shared_stderr_cannot_get_them_into_the_journal(home: Path) -> None:
    reader, sink = stream()
    fill(sink, 5)
    sink.pass_on(decision(666))
    fill(sink, 1, first=5)
    os.close(reader)
    sink.close()
    assert 666 not in decisions(journal(home))
    assert 5 in decisions(journal(home))


def test_the_servers_last_words_come_out_even_without_a_newline() -> None:
    reader, sink = stream()
    sink.pass_on(b"half a li")
    sink.pass_on(b"ne, and the end")
    sink.close()
    assert drain(reader) == b"half a line, and the end\n"


def test_sinks_by_name(tmp_path: Path) -> None:
    assert isinstance(open_sink("none", "s"), NullSink)
    assert isinstance(open_sink("", "s"), JournalSink)
    assert isinstance(open_sink("stderr", "s"), StreamSink)
    for wrong in ("file:", "fd:", "fd:x", "fd:9999", "fd:²", "fd:٣", "fd:" + "0" * 5000, "fd:9999999999999", "kafka"):
        with pytest.raises(UsageError):
            open_sink(wrong, "s")


def test_a_reader_never_sees_a_journal_whose_living_writer_has_not_locked_it(home: Path) -> None:
    """The reader as a process of its own, which tries the lock of every name that appears, all the time."""
    spool = home / "spool"
    spool.mkdir(parents=True, mode=0o700, exist_ok=True)
    script = (
        "import sys\nfrom subluminal.host.record.journal import list_journals, open_journal, take_if_dead\n"
        "spool, seen = sys.argv[1], set()\nprint('looking', flush=True)\n"
        "while 'last.jsonl' not in seen:\n"
        "    for name in list_journals(spool):\n"
        "        if name not in seen and (descriptor := open_journal(spool, name)) is not None:\n"
        "            seen.add(name)\n"
        "            if take_if_dead(descriptor):\n"
        "                sys.exit(f'{name} was free')\n"
    )
    reader = subprocess.Popen([sys.executable, "-c", script, str(spool)], stdout=subprocess.PIPE)
    assert reader.stdout is not None and reader.stdout.readline() == b"looking\n"
    sinks = [JournalSink(str(spool / f"{name}.jsonl"), lock=True) for name in [*map(str, range(300)), "last"]]
    for sink in sinks:
        sink.write(b"{}\n")
        assert sink.trouble is None
    assert reader.wait(30) == 0
    for sink in sinks:
        sink.close()
    assert sorted(os.listdir(spool)) == sorted(os.path.basename(sink.path) for sink in sinks)


def test_a_journal_that_is_there_already_is_continued_and_not_replaced(home: Path) -> None:
    for text in (b"one\n", b"two\n"):
        sink = JournalSink(str(home / "spool" / "s.jsonl"), lock=True)
        sink.write(text)
        sink.close()
    assert (home / "spool" / "s.jsonl").read_bytes() == b"one\ntwo\n"
