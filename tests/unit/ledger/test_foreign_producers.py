"""Attacks by one producer on the calls of another: over the socket, with a journal written by hand, with a bundle.

Whatever is said and in which order, what the owner recorded stands, and who meddled is named.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.ledger import (
    OURS,
    THEIRS,
    EventMaker,
    connect_ledgerd,
    create_journal,
    ledgerd,
    spool_of,
    sub_environment,
)
from harness.waiting import wait_for
from subluminal.host.identity import make_source
from subluminal.ledger.fold.ownership import is_foreign, owner_of
from subluminal.ledger.store.chain import GENESIS, link

CALL = f"{OURS}-1"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    spool_of(home)
    with ledgerd(home):
        yield home


def sub(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "subluminal", *arguments],
        env=sub_environment(home, SUB_LEDGER_IDLE_S="60"),
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )


def json_of(home: Path, *arguments: str) -> Any:
    return json.loads(sub(home, *arguments, "--json").stdout)


def blocked(home: Path) -> list[tuple[str, str]]:
    lines = sub(home, "query", "--decision", "BLOCK", "--json").stdout.splitlines()
    return [(row["call_id"], row["shim_id"]) for row in map(json.loads, lines)]


def say(home: Path, *lines: bytes, through: socket.socket | None = None) -> list[Any]:
    """What the daemon answers to each line."""
    connection = through or connect_ledgerd(home)
    with connection.makefile("rwb") as stream:
        stream.write(b"".join(line + b"\n" for line in lines))
        stream.flush()
        answers = [json.loads(stream.readline()) for _ in lines]
    if through is None:
        connection.close()
    return answers


def write(journal: int, *lines: bytes) -> None:
    os.write(journal, b"".join(line + b"\n" for line in lines))


def rows(home: Path, sql: str) -> list[Any]:
    database = sqlite3.connect(home / "ledger.db", timeout=10)
    try:
        return database.execute(sql).fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        database.close()


def stored(home: Path, events: int) -> None:
    wait_for(lambda: rows(home, f"SELECT 1 FROM (SELECT sum(event_count) AS n FROM runs) WHERE n >= {events}"))


def claims(shim_id: str) -> list[bytes]:
    """A whole call that was allowed and went well, told by one shim of a call of another."""
    claimant = EventMaker("run-1", shim_id)
    claimant.shim_id = OURS
    lines = claimant.call()
    return [line.replace(f'"shim_id":"{OURS}"'.encode(), f'"shim_id":"{shim_id}"'.encode()) for line in lines]


def named(home: Path) -> dict[str, Any]:
    """The one fault of the run, which `verify` and `doctor` must both tell."""
    told = json_of(home, "verify", "run-1")
    assert (told["ok"], told["chain_ok"], told["rows_ok"]) == (False, True, True)
    (fault,) = told["faults"]
    spoken = sub(home, "verify", "run-1")
    assert spoken.returncode == 1 and fault["what"] in spoken.stdout and CALL in spoken.stdout
    examined = json_of(home, "doctor")
    (finding,) = [finding for finding in examined["findings"] if finding["code"] == "foreign-calls"]
    assert finding["level"] == "error" and "run run-1" in finding["message"] and CALL in finding["message"]
    assert OURS in finding["message"] and all(shim in finding["message"] for shim in fault["shim_ids"])
    return dict(fault)


# -- who owns what ------------------------------------------------------------------------------------------------


def test_ids_of_our_own_producers_say_whose_they_are() -> None:
    shim_id = make_source().shim_id
    assert owner_of(f"{shim_id}-17") == shim_id
    assert not is_foreign(f"{shim_id}-17", shim_id) and is_foreign(f"{shim_id}-17", "s")
    for free in (f"{shim_id}-", shim_id, f"{shim_id}-1x", f"{shim_id}-１", f"x{shim_id[1:]}-1", "call-17", "", "-1"):
        assert owner_of(free) is None and not is_foreign(free, "anybody")


# -- attacks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["forger", "owner"])
def test_a_claim_over_the_socket_changes_nothing_whoever_comes_first(home: Path, first: str) -> None:
    journal = create_journal(str(home / "spool"), OURS)
    owner = EventMaker("run-1", OURS)
    honest = [owner.run_start(), *owner.call("BLOCK")]
    if first == "owner":
        write(journal, *honest)
        stored(home, 4)
    assert all("ack" in answer for answer in say(home, *claims(THEIRS))), "kept in the chain"
    write(journal, *honest if first == "forger" else [], owner.run_end())
    stored(home, 8)
    assert blocked(home) == [(CALL, OURS)]
    assert rows(home, "SELECT calls_total, calls_allowed, calls_blocked FROM runs") == [(1, 0, 1)]
    assert named(home)["shim_ids"] == [OURS, THEIRS]
    timeline = json_of(home, "show", "run-1")["timeline"]
    assert [item["decision"] for item in timeline if item["kind"] == "call"] == ["BLOCK"]
    os.close(journal)


def test_hints_and_trips_about_a_foreign_call_are_named_and_told_nowhere(home: Path) -> None:
    owner, other = EventMaker("run-1", OURS), EventMaker("run-1", THEIRS)
    say(home, owner.run_start(), *owner.call("BLOCK"))
    hint = {"hint_text": "Try again.", "suggested_args": None, "retry_advice": None, "hint_kind": "OTHER"}
    breaker = {"rule_id": "r", "reason_code": "BREAKER_ERRORS", "scope": "run", "threshold": 1, "window_ms": 1}
    say(
        home,
        other.event("hint_issued", call={"call_id": CALL}, hint=hint),
        other.event("breaker_trip", call=owner.reference, breaker=breaker),
    )
    assert json_of(home, "show", CALL)["hint"] is None
    kinds = [item["kind"] for item in json_of(home, "show", "run-1")["timeline"]]
    assert kinds == ["run_start", "call"]
    assert named(home)["event"] == 5


def test_nobody_speaks_over_the_socket_for_a_shim_that_has_a_journal(home: Path) -> None:
    journal = create_journal(str(home / "spool"), OURS)
    owner, forger = EventMaker("run-1", OURS), EventMaker("run-1", OURS)
    refused = say(home, forger.run_start(), *forger.call())  # the journal is there, and nothing was read of it yet
    assert {answer["nack"]["error"] for answer in refused} == {
        f"shim {OURS} is heard through its own journal; nobody else can speak for it"
    }
    write(journal, owner.run_start())
    stored(home, 1)
    forger.seq = 1
    assert all("nack" in answer for answer in say(home, *forger.call())), "nor with its next number"
    write(journal, *owner.call("BLOCK"), owner.run_end())
    os.close(journal)
    wait_for(lambda: not (home / "spool" / f"{OURS}.jsonl").exists())
    late = EventMaker("run-1", OURS)
    late.seq = 5
    assert all("nack" in answer for answer in say(home, *late.call())), "nor when it has gone"
    late.run_id = "run-2"
    assert all("nack" in answer for answer in say(home, *late.call())), "nor in another run"
    assert rows(home, "SELECT run_id, calls_blocked, event_count FROM runs") == [("run-1", 1, 5)]
    assert blocked(home) == [(CALL, OURS)] and sub(home, "verify", "--all").returncode == 0
    own = sub(home, "export", "run", "run-1", "-o", "own.tar.gz")
    assert own.returncode == 0 and json_of(home, "ingest", str(home.parent / "own.tar.gz"))["known"] == 5


def test_a_journal_written_by_hand_speaks_for_no_other_shim(home: Path) -> None:
    forger, owner = EventMaker("run-1", OURS), EventMaker("run-1", OURS)
    (home / "spool" / f"{THEIRS}.jsonl").write_bytes(b"".join(line + b"\n" for line in forger.whole_run(1)))
    wait_for(lambda: not (home / "spool" / f"{THEIRS}.jsonl").exists())
    journal = create_journal(str(home / "spool"), OURS)
    write(journal, owner.run_start(), *owner.call("BLOCK"), owner.run_end())
    os.close(journal)
    stored(home, 5)
    assert blocked(home) == [(CALL, OURS)] and sub(home, "verify", "--all").returncode == 0
    assert (home / "spool" / "rejected" / f"{THEIRS}.jsonl").read_bytes().count(b"\n") == 5, "nothing is lost"
    examined = json_of(home, "doctor")
    (found,) = [finding for finding in examined["findings"] if finding["code"] == "disputed-lines"]
    assert found["level"] == "error" and "5 lines" in found["message"]
    assert OURS in found["message"] and f"{THEIRS}.jsonl, line 1" in found["message"]


def test_a_journal_of_its_own_does_not_let_a_shim_speak_of_another_s_calls(home: Path) -> None:
    (home / "spool" / f"{THEIRS}.jsonl").write_bytes(b"".join(line + b"\n" for line in claims(THEIRS)))
    stored(home, 4)  # with its run_end: it was not closed in the name of a call that it has not
    owner = EventMaker("run-1", OURS)
    say(home, owner.run_start(), *owner.call("BLOCK"), owner.run_end())
    assert blocked(home) == [(CALL, OURS)]
    assert named(home)["shim_ids"] == [OURS, THEIRS]


def test_a_shim_without_a_journal_is_heard_through_one_connection_while_that_is_open(home: Path) -> None:
    owner, forger = EventMaker("run-1", "ext"), EventMaker("run-1", "ext")
    with connect_ledgerd(home) as connection:
        lines = [owner.run_start(), *owner.call("BLOCK")]
        assert say(home, lines[0], through=connection) == [{"ack": {"shim_id": "ext", "seq": 1}}]
        forger.seq = 1
        refused = say(home, *forger.call())
        assert {answer["nack"]["error"] for answer in refused} == {
            "shim ext speaks through another connection, which is still open"
        }
        assert say(home, lines[0]) == [{"ack": {"shim_id": "ext", "seq": 1}, "duplicate": True}]
        assert all("ack" in answer for answer in say(home, *lines[1:], through=connection))
    assert blocked(home) == [("ext-1", "ext")]
    assert "ack" in say(home, owner.run_end())[0], "and through another when that has closed"


def test_ids_of_any_other_form_are_each_producer_s_own(home: Path) -> None:
    """Two producers that call their first call `call-1`: neither can hide the other's."""
    forger, owner = EventMaker("run-1", "ext-b"), EventMaker("run-1", "ext-a")
    for maker, action in ((forger, "ALLOW"), (owner, "BLOCK")):
        maker.shim_id, shim_id = "call", maker.shim_id
        lines = [line.replace(b'"shim_id":"call"', f'"shim_id":"{shim_id}"'.encode()) for line in maker.call(action)]
        assert all("ack" in answer for answer in say(home, *lines))
    assert blocked(home) == [("call-1", "ext-a")]
    told = json_of(home, "verify", "run-1")
    assert [(fault["call_id"], fault["shim_ids"]) for fault in told["faults"]] == [("call-1", ["ext-a", "ext-b"])]
    assert "Choose one with --shim" in sub(home, "show", "call-1").stderr
    assert json_of(home, "show", "call-1", "--shim", "ext-a")["decision"] == "BLOCK"


def test_no_producer_can_take_the_ids_of_another_away_by_its_name(home: Path) -> None:
    honest = EventMaker("run-1", "ext")
    honest.shim_id = "call"
    lines = [line.replace(b'"shim_id":"call"', b'"shim_id":"ext"') for line in honest.call("BLOCK")]
    say(home, *EventMaker("run-1", "call").whole_run(1))
    say(home, *lines)
    assert blocked(home) == [("call-1", "ext")]


# -- bundles ------------------------------------------------------------------------------------------------------


def bundle(directory: Path, lines: list[bytes], **changes: Any) -> str:
    from hashlib import sha256

    events = b"".join(line + b"\n" for line in lines)
    head = GENESIS
    for line in lines:
        head = link(head, line)
    manifest: dict[str, Any] = {"format": "subluminal-trace", "format_version": 1, "run_id": "run-1"}
    manifest |= {"event_count": len(lines), "chain_head": head.hex(), **changes}
    manifest["files"] = {"events.jsonl": {"sha256": sha256(events).hexdigest(), "bytes": len(events)}}
    directory.mkdir()
    (directory / "events.jsonl").write_bytes(events)
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return str(directory)


@pytest.mark.parametrize("fault", ["chain", "run", "claim", "number", "count"])
def test_a_bundle_that_verify_calls_bad_is_refused_before_anything_is_stored(
    home: Path, tmp_path: Path, fault: str
) -> None:
    forged = EventMaker("run-1", OURS).whole_run(2)
    changes: dict[str, Any] = {}
    if fault == "chain":
        changes["chain_head"] = "0" * 64
    elif fault == "run":
        forged.append(EventMaker("run-2", "x").run_start())
    elif fault == "claim":
        forged += claims(THEIRS)
    elif fault == "number":
        again = EventMaker("run-1", OURS)
        again.seq = 3
        forged.append(again.run_start())
    else:
        changes["event_count"] = 3
    path = bundle(tmp_path / "bad", forged, **changes)
    good = bundle(tmp_path / "good", EventMaker("run-1", "x").whole_run(1))
    assert sub(home, "verify", path).returncode == 1
    done = sub(home, "ingest", good, path)
    assert done.returncode == 1 and "is no sound bundle" in done.stderr and "Nothing was stored" in done.stderr
    assert rows(home, "SELECT count(*) FROM runs") == [(0,)]


def test_a_bundle_that_goes_on_where_the_ledger_ends_is_taken_in(home: Path, tmp_path: Path) -> None:
    lines = EventMaker("run-1", "x").whole_run(3)
    assert json_of(home, "ingest", bundle(tmp_path / "first", lines[:5]))["stored"] == 5
    whole = bundle(tmp_path / "whole", lines)
    assert json_of(home, "ingest", whole) == {"stored": 6, "known": 5, "bad": 0, "bad_lines": []}
    assert sub(home, "verify", str(tmp_path / "first")).returncode == 0, "nor does one that ends before"
    other = EventMaker("run-1", "x", start_ms=1).whole_run(4)
    assert "recorded this run differently" in sub(home, "ingest", bundle(tmp_path / "other", other)).stderr
