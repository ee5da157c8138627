"""`sub export`, `ingest`, `verify` and `prune` as a user runs them, and bundles as an attacker makes them."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import EventMaker, ledgerd, spool_of, sub_environment
from subluminal.ledger.store.writer import Store

Run = Any


def sub_in(home: Path) -> Run:
    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "subluminal", *arguments],
            env=sub_environment(home, SUB_LEDGER_IDLE_S="60"),
            cwd=home.parent,
            input=stdin,
            capture_output=True,
            timeout=60,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    spool_of(home)
    store = Store(str(home / "ledger.db"))
    for name in ("run-1", "run-2"):
        lines = EventMaker(name, f"shim-of-{name}").whole_run(3)
        store.write(lambda lines=lines: [store.add(line) for line in lines])
    store.close()
    return home


@pytest.fixture
def sub(home: Path) -> Run:
    return sub_in(home)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Run]:
    """Another machine's ledger, with its daemon running."""
    other = tmp_path / "other" / "home"
    spool_of(other)
    with ledgerd(other):
        yield sub_in(other)


def test_a_run_exported_here_verifies_and_ingests_elsewhere(
    home: Path, sub: Run, elsewhere: Run, tmp_path: Path
) -> None:
    body = b'{"policy_id":"team-default","rules":[]}'
    policy_hash = sha256(body).hexdigest()
    (home / "snapshots").mkdir()
    head = b'{"compiled_by":"x","source_hash":"y","policy_hash":"%s",' % policy_hash.encode()
    (home / "snapshots" / "y.json").write_bytes(head + body[1:])
    store = Store(str(home / "ledger.db"))
    lines = [line.replace(b"a" * 64, policy_hash.encode()) for line in EventMaker("run-3", "s").whole_run(2)]
    store.write(lambda: [store.add(line) for line in lines])
    store.close()

    for name in ("trace.tar.gz", "trace"):
        exported = sub("export", "run", "run-3", "-o", name, "--json")
        assert exported.returncode == 0, exported.stderr
        assert json.loads(exported.stdout)["files"] == ["events.jsonl", f"policies/{policy_hash}.json"]
        bundle = str(tmp_path / name)
        assert elsewhere("verify", bundle).returncode == 0
    assert (tmp_path / "trace" / "events.jsonl").read_bytes() == b"".join(line + b"\n" for line in lines)

    assert json.loads(elsewhere("ingest", bundle, "--json").stdout)["stored"] == 8
    assert json.loads(elsewhere("ingest", bundle + ".tar.gz", "--json").stdout) == {
        "stored": 0,
        "known": 8,
        "bad": 0,
        "bad_lines": [],
    }
    assert elsewhere("verify", "run-3").returncode == 0
    again = elsewhere("export", "run", "last", "-o", "again", "--json")
    assert json.loads(again.stdout)["chain_head"] == json.loads(exported.stdout)["chain_head"]
    assert f"policies/{policy_hash}.json" in json.loads(again.stdout)["files"]


def test_export_never_overwrites_and_names_what_it_does_not_find(sub: Run, tmp_path: Path) -> None:
    (tmp_path / "there.tar.gz").write_text("mine")
    done = sub("export", "run", "run-1", "-o", "there.tar.gz")
    assert done.returncode == 2 and b"exists already" in done.stderr
    assert (tmp_path / "there.tar.gz").read_text() == "mine"
    assert sub("export", "run", "nobody").returncode == 2


def test_the_runs_that_match_are_exported_each_once(home: Path, sub: Run, elsewhere: Run, tmp_path: Path) -> None:
    store = Store(str(home / "ledger.db"))
    for run_id in ("odd/1", "odd?1", "other"):  # two ids that make the same name of a file
        lines = EventMaker(run_id, f"shim of {run_id}").whole_run(1)
        store.write(lambda lines=lines: [store.add(line) for line in lines])
    store.close()

    def rows(*options: str) -> list[dict[str, Any]]:
        done = sub("export", "runs", "--run", "odd/1", "--run", "odd?1", "-o", "traces", "--json", *options)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert [row["exported"] for row in rows("--dry-run")] == [False, False] and not (tmp_path / "traces").exists()
    first = rows()
    assert {row["run_id"] for row in first} == {"odd/1", "odd?1"} and all(row["exported"] for row in first)
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == sorted(
        Path(row["path"]).name for row in first
    )
    for row in first:
        assert elsewhere("verify", str(tmp_path / row["path"])).returncode == 0
    assert [row["exported"] for row in rows()] == [False, False]
    assert rows("--decision", "THROTTLE") == []
    told = sub("export", "runs", "-o", "traces")
    assert b"there already" in told.stderr and b"other.tar.gz" in told.stdout
    assert sub("export", "runs").returncode == 2


def test_export_runs_says_why_it_cannot_write(sub: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    done = sub("export", "runs", "-o", "file")
    assert done.returncode == 2 and b"cannot be made" in done.stderr and b"Traceback" not in done.stderr


def test_ingest_keeps_good_lines_and_names_bad_ones(elsewhere: Run, tmp_path: Path) -> None:
    lines = EventMaker("run-9", "shim-9").whole_run(2)
    lines[2:2] = [b"{", b"", b'{"control":"stop"}', b"x" * (1 << 21)]
    done = elsewhere("ingest", "-", stdin=b"\n".join(lines))
    assert done.returncode == 1
    assert b"<stdin>:3: " in done.stderr and b"<stdin>:5: " in done.stderr and b"8 events stored" in done.stdout
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in EventMaker("run-9", "shim-9").whole_run(2)))
    assert json.loads(elsewhere("ingest", str(file), "--json").stdout)["known"] == 8
    assert elsewhere("ledgerd", "--status").returncode == 0
    assert elsewhere("ingest", str(tmp_path / "nowhere")).returncode == 2


def test_verify_tells_how_fast_chain_and_rows_were_proved(sub: Run) -> None:
    for arguments in ((), ("--all",)):
        told = json.loads(sub("verify", *arguments, "--json").stdout.splitlines()[-1])["pace"]
        assert told["events"] > 0 and told["chain_events_per_s"] > 0 and told["rows_events_per_s"] > 0
        assert b"for each second of CPU: chain " in sub("verify", *arguments).stderr


def test_verify_ends_with_1_and_names_the_first_bad_event(home: Path, sub: Run) -> None:
    assert sub("verify").returncode == 0
    assert sub("verify", "--all").returncode == 0
    import sqlite3

    database = sqlite3.connect(home / "ledger.db")
    forged = "CAST(substr(marks, 1, 12) || zeroblob(4) || substr(marks, 17) AS BLOB)"
    database.execute(f"UPDATE segments SET marks = {forged} WHERE id = 1")
    database.commit()
    done = sub("verify", "run-1", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["faults"] == [{"what": "this event was changed, moved or put in", "event": 4}]
    everything = sub("verify", "--all")
    assert everything.returncode == 1
    assert everything.stdout.decode().splitlines()[0].startswith("BAD  run-1: chain: event 4:")
    assert everything.stdout.decode().splitlines()[1].startswith("ok   run-2:")
    assert sub("verify", "nobody").returncode == 2


def repack(source: Path, target: Path, change: Any) -> None:
    """Write a changed copy of an exported directory as an archive."""
    with tarfile.open(target, "w:gz") as archive:
        for name in ("manifest.json", "events.jsonl"):
            data = (source / name).read_bytes()
            data = change(name, data)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def manifest_of(events: bytes, run_id: str = "run-1", count: int = 11, head: str = "0" * 64) -> bytes:
    entry = {"sha256": sha256(events).hexdigest(), "bytes": len(events)}
    manifest = {"format": "subluminal-trace", "format_version": 1, "run_id": run_id, "event_count": count}
    return json.dumps({**manifest, "chain_head": head, "files": {"events.jsonl": entry}}).encode()


def test_a_bundle_that_was_changed_is_refused(home: Path, sub: Run, elsewhere: Run, tmp_path: Path) -> None:
    sub("export", "run", "run-1", "-o", "b")
    bundle = tmp_path / "b"
    repack(bundle, tmp_path / "edited.tar.gz", lambda name, data: data.replace(b'"ann"', b'"bob"'))
    assert elsewhere("verify", str(tmp_path / "edited.tar.gz")).returncode == 1
    assert elsewhere("ingest", str(tmp_path / "edited.tar.gz")).returncode == 1
    assert b"0 runs" in elsewhere("verify", "--all").stderr

    events = (bundle / "events.jsonl").read_bytes().replace(b'"ann"', b'"bob"')
    (bundle / "events.jsonl").write_bytes(events)
    (bundle / "manifest.json").write_bytes(manifest_of(events))
    done = elsewhere("verify", str(bundle))
    assert done.returncode == 1 and b"chain head" in done.stdout

    from subluminal.ledger.store.chain import GENESIS, link

    head = GENESIS
    for line in events.splitlines():
        head = link(head, line)
    (bundle / "manifest.json").write_bytes(manifest_of(events, head=head.hex()))
    done = sub("verify", str(bundle))
    assert done.returncode == 1 and b"recorded this run differently" in done.stdout


def hostile_archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return str(path)


def member(name: str, **attributes: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


def test_hostile_archives_are_refused_and_write_nothing(elsewhere: Run, tmp_path: Path) -> None:
    target = tmp_path / "victim"
    target.write_text("mine")
    manifest = (member("manifest.json"), manifest_of(b""))
    archives = [
        hostile_archive(tmp_path / "up.tar.gz", manifest, (member("../victim"), b"yours")),
        hostile_archive(tmp_path / "abs.tar.gz", manifest, (member(str(target)), b"yours")),
        hostile_archive(tmp_path / "deep.tar.gz", manifest, (member("policies/../../victim"), b"yours")),
        hostile_archive(
            tmp_path / "sym.tar.gz",
            (member("events.jsonl", type=tarfile.SYMTYPE, linkname=str(target)), b""),
            manifest,
        ),
        hostile_archive(
            tmp_path / "hard.tar.gz",
            manifest,
            (member("events.jsonl", type=tarfile.LNKTYPE, linkname="manifest.json"), b""),
        ),
        hostile_archive(tmp_path / "fifo.tar.gz", manifest, (member("events.jsonl", type=tarfile.FIFOTYPE), b"")),
        hostile_archive(tmp_path / "twice.tar.gz", manifest, manifest),
        hostile_archive(tmp_path / "extra.tar.gz", manifest, (member("run.sh"), b"#!/bin/sh")),
        hostile_archive(tmp_path / "nothing.tar.gz"),
    ]
    (tmp_path / "junk.tar.gz").write_bytes(b"not an archive at all")
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / "up.tar.gz").read_bytes()[:60])
    for archive in [*archives, str(tmp_path / "junk.tar.gz"), str(tmp_path / "cut.tar.gz")]:
        for command in ("ingest", "verify"):
            done = elsewhere(command, archive)
            assert done.returncode in (1, 2), (archive, done)
    assert target.read_text() == "mine"


def test_an_archive_that_claims_to_be_enormous_is_refused_before_it_is_unpacked(elsewhere: Run, tmp_path: Path) -> None:
    header = member("events.jsonl", size=(1 << 30) + 1).tobuf()
    bomb = tmp_path / "bomb.tar.gz"
    with gzip.open(bomb, "wb", 9) as packed:
        packed.write(header)
        for _ in range(64):
            packed.write(b"\0" * (1 << 20))
    done = elsewhere("ingest", str(bomb))
    assert done.returncode == 2 and b"more than a trace bundle may hold" in done.stderr


def test_a_bundle_directory_with_links_or_devices_is_refused(sub: Run, elsewhere: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token")
    for name, make in {
        "link": lambda path: path.symlink_to(secret),
        "fifo": lambda path: os.mkfifo(path),
        "gone": lambda path: None,
    }.items():
        sub("export", "run", "run-1", "-o", name)
        path = tmp_path / name / "events.jsonl"
        path.unlink()
        make(path)
        for command in ("ingest", "verify"):
            done = elsewhere(command, str(tmp_path / name))
            assert done.returncode in (1, 2) and b"token" not in done.stdout + done.stderr
    for text in (b"{}", b"[", b'{"format":"zip"}', manifest_of(b"").replace(b"events.jsonl", b"../secret")):
        broken = tmp_path / f"broken-{len(text)}"
        broken.mkdir()
        (broken / "manifest.json").write_bytes(text)
        assert elsewhere("verify", str(broken)).returncode == 2


def test_prune_removes_old_runs_and_says_so_first(home: Path, sub: Run) -> None:
    try:
        dry = sub("prune", "--older-than", "90d", "--dry-run", "--json")
        assert json.loads(dry.stdout)["runs"] == ["run-1", "run-2"]
        assert sub("verify", "run-1").returncode == 0
        assert json.loads(sub("prune", "--older-than", "9999w", "--json").stdout)["runs"] == []
        done = sub("prune", "--older-than", "90d", "--json")
        assert json.loads(done.stdout)["runs"] == ["run-1", "run-2"]
        assert json.loads(done.stdout)["calls"] == 6
        assert sub("verify", "--all").returncode == 0
        assert sub("export", "run", "run-1").returncode == 2
    finally:
        sub("ledgerd", "--stop")
    assert sub("prune", "--older-than", "soon").returncode == 2


def test_help_shows_examples(sub: Run) -> None:
    for command in (["export", "run"], ["ingest"], ["verify"], ["prune"], ["ledgerd"]):
        text = sub(*command, "--help").stdout
        assert b"Examples:" in text and b"--json" in text
