"""SEC and ERR-004 over the real shim: every byte that leaves it or lands on disk is searched for the secret.

The tool server gives its secret away in every spelling. What it answers reaches the agent unchanged (a tool behind the
shim behaves as without it); nothing of it may stand in events, refusals, stderr, journals, the ledger or command lines.
"""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.keychain import NONE, use_keychain
from harness.leaky_server import leaky_server, outcome, spellings
from harness.secret_corpus import encodings
from harness.shim import Shim, shim_command
from harness.waiting import wait_for
from subluminal.contracts.kept_results import frames
from subluminal.host.secrets.keystore import open_store

SECRETS = {
    "a token": "Zq7" + "vK4mXw9bRt2nLd6sHf8j",
    "a known shape": "ghp_" + "Ab3dEf6hIj" * 4,
    "awkward characters": "p\"a\\s/s <w>&'ö🙂%41 +word",
    "a long key": "".join(random.Random(7).choice("abcdefghijkLMNOPQ0123456789+/") for _ in range(3000)),
}
LEAKS = ("leak", "leak_structured", "leak_far", "leak_large", "fail", "fail_softly")
BINDING = {"inject_as": "LEAKY_TOKEN", "secret_ref": "leaky", "source": "env"}
REFUSING = {
    "policy_id": "p",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "no-leak",
            "kind": "deny",
            "enabled": True,
            "match": {"tool_name": {"glob": ["leak*"]}},
            "effect": {"action": "BLOCK", "reason_code": "NO", "message": "Refused."},
            "severity": "warn",
        },
        {
            "rule_id": "one-only",
            "kind": "budget",
            "enabled": True,
            "match": {"tool_name": {"glob": ["digest"]}},
            "effect": {
                "budget": {
                    "scope": "tool",
                    "limit_calls": 1,
                    "on_exceed": "REJECT_WITH_HINT",
                    "hint_text": "Enough digests.",
                }
            },
            "severity": "warn",
        },
    ],
}


@pytest.fixture(autouse=True)
def no_keychain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_keychain(monkeypatch, tmp_path, NONE)


def traces(secret: str) -> list[bytes]:
    """What must not be found: every spelling, and the middle of each, since a part of a secret is a leak as well."""
    rng = random.Random(1)
    whole = {text.encode() for text in spellings(secret)}
    for _, _, parts in encodings(secret, rng):
        whole.update(parts)
    found = {part for part in whole if len(part) >= 8}
    for part in list(found):
        if len(part) >= 24:
            third = len(part) // 3
            found.add(part[third : third + max(12, third)])
    return sorted(found)


def assert_clean(data: bytes, secret: str, where: object) -> None:
    for trace in traces(secret):
        assert trace not in data, (str(where), trace[:40])


def files_below(directory: Path) -> Iterator[tuple[Path, bytes]]:
    """Each file with its content; the daemon removes a journal it has taken in, perhaps at this moment."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            try:
                yield path, path.read_bytes()
            except FileNotFoundError:
                continue


def bound(secret: str, **more: str) -> dict[str, str]:
    return {"SUB_SECRET_LEAKY": secret, "SUB_SECRET_BINDINGS": json.dumps([BINDING]), **more}


def command_lines(pids: list[int]) -> bytes:
    lines = []
    for pid in pids:
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
    return b"\n".join(lines)


@pytest.mark.contract("SEC-001")
@pytest.mark.parametrize("kind", sorted(SECRETS))
def test_the_server_gets_its_secret_and_no_event_holds_any_spelling_of_it(tmp_path: Path, kind: str) -> None:
    secret = SECRETS[kind]
    setup = Shim(tmp_path, "leaky", leaky_server(), env=bound(secret, SUB_RECORD_RESULTS="all"))
    with setup.start() as agent:
        agent.initialize()
        assert agent.call_text("digest") == hashlib.sha256(secret.encode()).hexdigest()
        assert_clean(b"".join(agent.received), secret, "what the agent has seen so far")
        for tool in LEAKS:
            reply = agent.call(tool, {"note": "nothing secret"})
            assert reply == {"jsonrpc": "2.0", "id": reply["id"], **outcome(tool, secret)}, "the reply was changed"
        echoed = agent.call("echo", {"args": spellings(secret)})
        assert echoed["result"]["content"][0]["text"] == "ok"
        assert_clean(command_lines(agent.tree()), secret, "command lines")
        agent.finish()
        assert_clean(agent.stderr.encode(), secret, "stderr")
    setup.events.wait_type("run_end")
    assert_clean(setup.events.raw(), secret, "events")
    (kept,) = (tmp_path / "sub" / "results").rglob("*.results")
    with kept.open("rb") as file:
        results = [zlib.decompress(deflated) for _, deflated, _ in frames(file, setup.events.events()[0]["run_id"])]
    assert len(results) > len(LEAKS) / 2
    assert_clean(kept.read_bytes() + b"".join(results), secret, "kept results")
    flags = {flag for event in setup.events.events() for flag in preview_of(event).get("redaction_flags", ())}
    assert "injected_secret" in flags


def preview_of(event: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = event.get("preview") or event.get("call", {}).get("preview") or {}
    return found


@pytest.mark.contract("SEC-001")
def test_the_server_does_not_see_where_its_secret_came_from(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "leaky", leaky_server(), env=bound(SECRETS["a token"], LEAKY="kept away"))
    with setup.start() as agent:
        agent.initialize()
        names = json.loads(agent.call_text("names"))
        agent.finish()
    assert "LEAKY_TOKEN" in names
    assert not {"SUB_SECRET_LEAKY", "SUB_SECRET_BINDINGS", "LEAKY"} & set(names)


@pytest.mark.contract("SEC-001")
def test_a_stored_secret_reaches_the_server_and_another_server_s_does_not(tmp_path: Path) -> None:
    secret, other = SECRETS["a token"], "other-servers-secret-value"
    home = tmp_path / "sub"
    open_store("file", {"SUB_HOME": str(home)}).put("leaky", secret)
    (home / "config.toml").write_text(
        "[servers.leaky]\nsecret_bindings = [{inject_as='LEAKY_TOKEN', secret_ref='leaky', source='file'}]\n"
        f"confirmed = [{{command = {json.dumps(leaky_server())}}}]\n"
        "[servers.other]\nsecret_bindings = [{inject_as='T', secret_ref='OTHER_TOKEN'}]\n"
    )
    env = {"OTHER_TOKEN": other, "LEAKY_TOKEN": "sub://leaky"}
    setup = Shim(tmp_path, "leaky", leaky_server(), env=env)
    with setup.start() as agent:
        agent.initialize()
        assert agent.call_text("digest") == hashlib.sha256(secret.encode()).hexdigest()
        assert "OTHER_TOKEN" not in json.loads(agent.call_text("names"))
        agent.call("leak")
        agent.finish()
    setup.events.wait_type("run_end")
    assert_clean(setup.events.raw(), secret, "events")


@pytest.mark.contract("SEC-002")
def test_an_injection_is_recorded_by_its_metadata_alone(tmp_path: Path) -> None:
    secret = SECRETS["a token"]
    optional = {**BINDING, "inject_as": "ABSENT", "secret_ref": "absent", "required": False}
    env = bound(secret, SUB_SECRET_BINDINGS=json.dumps([BINDING, optional]))
    setup = Shim(tmp_path, "leaky", leaky_server(), env=env)
    setup.run(("digest", {}))
    recorded = [event["secret"] for event in setup.events.events_of("secret_injection")]
    assert recorded == [
        {"inject_as": "LEAKY_TOKEN", "secret_ref": "leaky", "source": "env", "success": True},
        {"inject_as": "ABSENT", "secret_ref": "absent", "source": "env", "success": False},
    ]
    assert_clean(setup.events.raw(), secret, "events")


@pytest.mark.contract("ERR-004")
@pytest.mark.parametrize("kind", sorted(SECRETS))
def test_no_refusal_repeats_a_secret_of_the_call_it_refuses(tmp_path: Path, kind: str) -> None:
    """An agent that has got hold of the value sends it: in arguments, as keys, and in a tool's name."""
    secret = SECRETS[kind]
    setup = Shim(tmp_path, "leaky", leaky_server(), policy=REFUSING, env=bound(secret))
    arguments = {"token": secret, "all": spellings(secret), secret: 1}
    with setup.start() as agent:
        agent.initialize()
        replies = [agent.call("leak", arguments), agent.call("digest", arguments), agent.call("digest", arguments)]
        replies.append(agent.call(f"leak {secret}", {}, _meta={"claudecode/toolUseId": secret[:200]}))
        agent.finish()
        assert_clean(agent.stderr.encode(), secret, "stderr")
    assert [reply.get("error", {}).get("code") for reply in replies] == [-32081, None, -32083, -32081]
    for reply in (replies[0], replies[2], replies[3]):
        assert_clean(json.dumps(reply).encode(), secret, reply["error"]["code"])
    setup.events.wait_type("run_end")
    assert_clean(setup.events.raw(), secret, "events")


@pytest.mark.contract("ERR-004")
def test_a_missing_secret_stops_the_start_with_a_sentence_and_without_the_others(tmp_path: Path) -> None:
    secret = SECRETS["a token"]
    missing = {**BINDING, "inject_as": "SECOND", "secret_ref": "second_one"}
    env = bound(secret, SUB_SECRET_BINDINGS=json.dumps([BINDING, missing]))
    setup = Shim(tmp_path, "leaky", leaky_server(), env=env)
    with setup.start() as agent:
        assert agent.wait_exit() == 2
        assert "'second_one' (for SECOND) was not found" in agent.stderr
        assert "SUB_SECRET_SECOND_ONE" in agent.stderr
        assert "Traceback" not in agent.stderr
        assert_clean(agent.stderr.encode(), secret, "stderr")
    assert_clean(setup.events.raw(), secret, "events")


@pytest.mark.contract("SEC-001", "ERR-004")
@pytest.mark.parametrize("ending", ["politely", "by a crash of the server", "by SIGKILL"])
def test_nothing_on_disk_holds_the_secret(tmp_path: Path, ending: str) -> None:
    """Journal, ledger with its WAL, run state, logs: through the real daemon, whatever ends the session."""
    secret = SECRETS["awkward characters"]
    setup = Shim(tmp_path, "leaky", leaky_server(), policy=REFUSING, env=bound(secret))
    home = tmp_path / "sub"
    setup.command = shim_command("leaky", leaky_server(), policy=setup.policy, events="ledger")
    with setup.start() as agent:
        agent.initialize()
        for tool in ("fail", "fail_softly", "leak", "echo"):
            agent.call(tool, {"token": secret, "all": spellings(secret)})
        if ending == "politely":
            agent.finish()
        elif ending == "by SIGKILL":
            agent.process.kill()
            agent.wait_exit()
        else:
            agent.start_call("crash", {"token": secret})
            agent.wait_exit()
        if ending != "by SIGKILL":  # then nobody has rung for the daemon, and the journal is all there is
            stored = wait_for_ledger(home)
            assert b"injected_secret" in stored
            assert_clean(stored, secret, "ledger")
        seen = dict(files_below(home))
        assert any(path.suffix == ".jsonl" or path.name.startswith("ledger.db") for path in seen), list(seen)
        if ending == "by SIGKILL":
            assert any(b"injected_secret" in content for content in seen.values()), "the journal tells of the secret"
        for path, content in seen.items():
            assert_clean(content, secret, path)
        assert_clean(agent.stderr.encode(), secret, "stderr")


def wait_for_ledger(home: Path) -> bytes:
    """Everything the ledger holds, once the daemon has taken in the end of the run."""
    path = home / "ledger.db"
    return wait_for(
        lambda: ledger_content(path) if path.exists() else b"",
        what="the end of the run in the ledger",
        enough=lambda content: b"run_end" in content,
    )


def ledger_content(path: Path) -> bytes:
    """Every value of every table; what is deflated in the file is searched as it reads."""
    parts: list[bytes] = []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.execute("BEGIN")  # one view of it, also while its daemon brings the tables to their last form
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in database.execute(f'SELECT * FROM "{table}"'):
                parts += [readable(value) for value in row if isinstance(value, (str, bytes))]
    return b"\n".join(parts)


def readable(value: str | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    try:
        return zlib.decompress(value)
    except zlib.error:
        return value
