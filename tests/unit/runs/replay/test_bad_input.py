"""What cannot be replayed is said in a sentence, with what to do next; what was changed is never answered from."""

from __future__ import annotations

import io
import json
import os
import shutil
import zlib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from harness.command_line import stored
from harness.fake_server import fake_server
from harness.ledger import EventMaker
from harness.replaying import Recording
from subluminal.cli.main import run
from subluminal.contracts.kept_results import frame, link, opening
from subluminal.host.record.results import directory_of

CALLS = [("echo", {"a": 1}), ("echo", {"a": 2})]
NO_ECHO = {
    "policy_id": "p",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "no-echo",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["echo"]}},
            "effect": {"action": "BLOCK", "reason_code": "NO", "message": "No."},
        }
    ],
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    recording = Recording(tmp_path_factory.mktemp("recorded"), fake_server(tools={"echo": {"echo_args": True}}))
    recording.record(*CALLS)
    return recording


@pytest.fixture
def recording(recorded: Recording, tmp_path: Path) -> Recording:
    """A home of its own with the same run in it."""
    shutil.copytree(recorded.home, tmp_path / "sub")
    made = Recording(tmp_path, recorded.server)
    made._count = 1
    return made


def refused(recording: Recording, *words: str, code: int = 2) -> str:
    """What `sub replay` says in this process: it is started a dozen times below."""
    out, told = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, recording.env, clear=True), redirect_stdout(out), redirect_stderr(told):
        ended = run(["replay", *words])
    assert (ended, out.getvalue()) == (code, ""), told.getvalue()
    assert "Traceback" not in told.getvalue()
    return told.getvalue()


def test_an_unknown_run(recording: Recording) -> None:
    assert "no-such-run" in refused(recording, "no-such-run", "--serve", "box")
    assert "no-such.tar.gz" in refused(recording, "no-such.tar.gz", "--serve", "box")


def test_where_there_is_nothing_to_report_no_file_is_left(recording: Recording, tmp_path: Path) -> None:
    for words in (["run-none", "--serve", "box"], ["last", "--serve", "nobody"], ["last"]):
        refused(recording, *words, "--report", str(tmp_path / "report.json"))
        assert not (tmp_path / "report.json").exists()


def test_an_empty_home(tmp_path: Path) -> None:
    assert "sub: " in refused(Recording(tmp_path, []), "last", "--serve", "box")


def test_a_server_that_the_run_did_not_call(recording: Recording) -> None:
    said = refused(recording, "last", "--serve", "other")
    assert "called no server 'other'" in said and "On record: box." in said


def test_a_run_without_results_says_how_to_record_them(recorded: Recording, tmp_path: Path) -> None:
    recording = Recording(tmp_path, recorded.server, SUB_RECORD_RESULTS="off")
    recording.record(*CALLS)
    assert not recording.results
    said = refused(recording, "last", "--", "claude")
    assert "No results of run run-1 were kept" in said and 'results = "all"' in said
    assert "sub replay RUN -- claude" in refused(recording, "last")


def test_results_that_were_pruned(recording: Recording) -> None:
    kept = recording.results
    told = json.loads(recording.sub("prune", "--older-than", "0s", "--results", "--dry-run", "--json").stdout)
    assert (told["results_runs"], told["results_bytes"]) == (1, sum(path.stat().st_size for path in kept))
    assert recording.results == kept
    assert recording.sub("prune", "--older-than", "0s", "--results").returncode == 0
    assert not recording.results
    said = refused(recording, "last", "--serve", "box")
    assert "were kept, but are not here: pruned since" in said and "--with-results" in said
    assert "run-1" in recording.sub("runs").stdout, "the run itself stays"


def test_a_bundle_carries_results_only_where_that_was_asked_for(recording: Recording, tmp_path: Path) -> None:
    for name, words in (("without", []), ("with", ["--with-results"])):
        done = recording.sub("export", "run", "last", *words, "-o", str(tmp_path / f"{name}.tar.gz"))
        assert done.returncode == 0, done.stderr
        assert recording.sub("verify", str(tmp_path / f"{name}.tar.gz")).returncode == 0
    elsewhere = (
        Recording(tmp_path / "elsewhere", recording.server) if (tmp_path / "elsewhere").mkdir() is None else None
    )
    assert elsewhere is not None
    said = refused(elsewhere, str(tmp_path / "without.tar.gz"), "--serve", "box")
    assert "exported without the results" in said and "--with-results" in said
    new = tmp_path / "new.json"
    new.write_text(json.dumps(NO_ECHO))
    judged = elsewhere.sub("replay", str(tmp_path / "without.tar.gz"), "--policy", str(new), "--json")
    assert json.loads(judged.stdout)["calls"]["newly_refused"] == 2, "without an agent nobody needs results"
    again = elsewhere.replay(*CALLS, run=str(tmp_path / "with.tar.gz"))
    assert again.report["same"] and again.report["calls"]["same"] == 2
    assert not elsewhere.home.exists(), "nothing of it is taken into this home"
    assert recording.sub("prune", "--older-than", "0s", "--results").returncode == 0
    done = recording.sub("export", "run", "last", "--with-results", "-o", str(tmp_path / "again.tar.gz"))
    assert done.returncode == 2 and "No results of run-1 are kept here" in done.stderr


def test_a_changed_bundle_is_not_answered_from(recording: Recording, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    assert recording.sub("export", "run", "last", "--with-results", "-o", str(bundle)).returncode == 0
    (path,) = (bundle / "results").iterdir()
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    assert "is not the file that the manifest describes" in refused(recording, str(bundle), "--serve", "box", code=1)


def _changed_byte(data: bytes) -> bytes:
    at = data.rindex(b'"deflated"') + 30
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _another_answer(data: bytes) -> bytes:
    """The two calls' answers in each other's place."""
    head, first, second = (
        data.partition(b'{"call_id"')[0],
        *(b'{"call_id"' + part for part in data.split(b'{"call_id"')[1:]),
    )
    return head + second + first


def _less_said(data: bytes) -> bytes:
    """What the server said of itself is vouched for as well."""
    lines = data.split(b'{"server_name"')
    return lines[0] + b'{"call_id"' + data.partition(b'{"call_id"')[2]


@pytest.mark.parametrize("change", [_changed_byte, _another_answer, _less_said, lambda data: b"nothing\n"])
def test_a_store_that_was_changed_is_not_believed(recording: Recording, change) -> None:  # type: ignore[no-untyped-def]
    (path,) = recording.results
    path.write_bytes(change(path.read_bytes()))
    said = refused(recording, "last", "--serve", "box", code=1)
    assert "is not as it was written" in said and "Nothing of it is believed" in said


def test_a_store_that_was_cut_short_names_what_is_missing(recording: Recording) -> None:
    (path,) = recording.results
    path.write_bytes(path.read_bytes()[:-5])
    again = recording.replay(*CALLS)
    assert "missing from what was kept" in again.replies[2]["error"]["message"]
    assert [each["state"] for each in again.report["unanswered"]] == ["lost"]
    assert "no answer on record: 1 call" in again.stderr


def test_a_result_larger_than_the_bound_is_named(recorded: Recording, tmp_path: Path) -> None:
    server = fake_server(tools={"big": {"result_bytes": 5000}, "small": {"result_bytes": 10}})
    recording = Recording(tmp_path, server)
    recording.home.mkdir(mode=0o700)
    (recording.home / "config.toml").write_text('[record]\nresults = "all"\nmax_result_bytes = 1000\n')
    (recording.home / "config.toml").chmod(0o600)
    recording.record(("big", {}), ("small", {}))
    again = recording.replay(("big", {}), ("small", {}))
    assert "too large to be kept" in again.replies[1]["error"]["message"] and "result" in again.replies[2]
    assert [each["state"] for each in again.report["unanswered"]] == ["too_large"]


def test_options_that_do_not_go_together(recording: Recording, tmp_path: Path) -> None:
    for words, says in (
        (["last", "--serve", "box", "--on-miss", "pass"], "needs the server's own command"),
        (["last", "--serve", "box", "--", "true"], "not started in a replay"),
        (["last", "--on-miss", "pass", "--", "claude"], "nothing is passed on for claude"),
        (["last", "--", "claude", "--mcp-config", "x"], "--mcp-config cannot be given"),
        (["last", "--session", str(tmp_path), "--serve", "box"], "is no replay that is on"),
        (["last", "--policy", "-", "--serve", "box"], "cannot be read more than once"),
        (["last", "--report", "/no/such/place.json", "--serve", "box"], "cannot be written"),
    ):
        assert says in refused(recording, *words), words
    broken = tmp_path / "broken.yaml"
    broken.write_text("policy_id: [")
    assert "broken.yaml" in refused(recording, "last", "--policy", str(broken), code=1)


def test_a_run_whose_events_are_another_machine_s_has_no_results_here(recorded: Recording, tmp_path: Path) -> None:
    recording = Recording(tmp_path, [])
    stored(recording.home, (recorded.tmp_path / "events-1.jsonl").read_bytes().splitlines())
    assert "on another machine" in refused(recording, "last", "--serve", "box")


def test_an_identity_that_no_environment_can_carry_is_said(recorded: Recording, tmp_path: Path) -> None:
    recording = Recording(tmp_path, recorded.server)
    recording.record(*CALLS, keep=False)
    lines = (tmp_path / "events-1.jsonl").read_bytes().replace(b'"tester"', b'"te\\u0000ster"').splitlines()
    stored(recording.home, lines)
    for words in (["--serve", "box"], ["--", "true"]):
        assert "who acted has a NUL in the name" in refused(recording, "last", *words)


def test_a_call_id_that_is_no_text_is_none_of_ours(recording: Recording) -> None:
    """As a bundle could have it whose maker also wrote the events that vouch for it."""
    (path,) = recording.results
    maker = EventMaker("run-x", "x")
    result = frame({"call_id": ["x"]}, zlib.compress(b"{}"))
    chain = link(link(b"", opening("run-x", "x")), result).hex()
    lines = [maker.run_start(), maker.start("echo", "box"), maker.decision()]
    lines.append(maker.end(result_kept={"state": "whole", "bytes": 2, "hash": chain}))
    stored(recording.home, [line.replace(b'"x-1"', b"\"['x']\"") for line in [*lines, maker.run_end()]])
    directory = Path(directory_of("run-x", str(recording.home)))
    directory.mkdir(mode=0o700)
    (directory / path.name).write_bytes(opening("run-x", "x") + result)
    again = recording.replay(run="run-x")
    assert [each["call_id"] for each in again.report["not_made"]] == ["['x']"]


def test_where_results_cannot_be_written_the_tool_goes_on_and_the_record_claims_nothing(
    recorded: Recording, tmp_path: Path
) -> None:
    recording = Recording(tmp_path, recorded.server)
    recording.home.mkdir(mode=0o700)
    (recording.home / "results").write_text("in the way")
    replies = recording.record(*CALLS)
    assert all("result" in reply for reply in replies)
    ends = recording.events.events_of("tool_call_end")
    assert len(ends) == 2 and not any("result_kept" in end for end in ends)
    assert "No results of run run-1 were kept" in refused(recording, "last", "--serve", "box")
