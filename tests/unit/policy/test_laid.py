"""What a fleet has laid: found before the user's, believed by its hash, and never taken for "no policy"."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from subluminal.contracts.errors import PolicyError
from subluminal.contracts.identity import Identity
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.laid import POLICIES, STOPS, Laid, NotLaid, lay, read_list
from subluminal.policy.sources import find_for_entry, find_for_visitor, find_policies
from subluminal.producer.policies import PolicyWatch

FUTURE_MS = 1 << 45


def compiled(policy_id: str, deny: str = "x", **more: Any) -> dict[str, Any]:
    rule = {"rule_id": "no", "kind": "deny", "match": {"tool_name": {"glob": [deny]}}, "effect": {"action": "BLOCK"}}
    head = {"policy_id": policy_id, "version": "1", "mode": "guardrails", "defaults": {"decision_on_error": "BLOCK"}}
    return compile_bundle(json.dumps({**head, "selectors": {}, "rules": [rule], **more}).encode(), "p.json")


def joined(home: Path, *snapshots: dict[str, Any], good_until_ms: int = FUTURE_MS) -> dict[str, str]:
    """A home that has joined, and its environment."""
    lay(POLICIES, list(snapshots), Laid([], good_until_ms=good_until_ms, max_offline_ms=1000), str(home))
    lay(STOPS, [], Laid([]), str(home))
    (home / "fleet" / "joined.json").write_text("{}")
    return {"SUB_HOME": str(home), "HOME": str(home)}


def origins(environ: dict[str, str], cwd: Path) -> list[str]:
    return [source.origin for source in find_policies(environ, str(cwd))]


def test_what_is_laid_stands_before_the_users_and_before_what_is_named(tmp_path: Path) -> None:
    environ = joined(tmp_path, compiled("a"), compiled("b"))
    (tmp_path / "policy.yaml").write_text("x")
    assert origins(environ, tmp_path) == ["fleet", "fleet", "user"]
    assert origins({**environ, "SUB_POLICY": "p.yaml"}, tmp_path) == ["fleet", "fleet", "SUB_POLICY"]
    loaded = [source.load()["policy_id"] for source in find_policies(environ, str(tmp_path))[:2]]
    assert loaded == ["a", "b"]


def test_a_home_that_has_joined_nothing_has_nothing_of_a_fleet(tmp_path: Path) -> None:
    environ = joined(tmp_path, compiled("a"))
    (tmp_path / "fleet" / "joined.json").unlink()
    assert origins(environ, tmp_path) == ["builtin"]


def test_an_entry_that_names_another_home_sheds_nothing(tmp_path: Path) -> None:
    client = joined(tmp_path / "own", compiled("a"))
    elsewhere = {**client, "SUB_HOME": str(tmp_path / "empty")}
    found = find_for_entry(elsewhere, str(tmp_path), None, client)
    assert [source.origin for source in found] == ["fleet"]


def test_visitors_of_a_process_are_under_the_fleet_too(tmp_path: Path) -> None:
    environ = joined(tmp_path, compiled("a"))
    assert [source.origin for source in find_for_visitor(environ, "/", None, {}, None)] == ["fleet"]


@pytest.mark.parametrize("harm", ["gone", "cut", "changed", "empty", "not ours"])
def test_a_list_that_is_not_whole_is_an_invalid_policy(tmp_path: Path, harm: str) -> None:
    environ = joined(tmp_path, compiled("a"))
    path = tmp_path / "fleet" / "policy" / "policies.laid"
    content = path.read_bytes()
    path.unlink()
    if harm == "not ours":
        path.symlink_to("/etc/hostname")
    elif harm != "gone":
        path.write_bytes({"cut": content[:-9], "changed": content.replace(b"1", b"2"), "empty": b""}[harm])
    source = find_policies(environ, str(tmp_path))[0]
    assert source.origin == "fleet"
    with pytest.raises(PolicyError) as told:
        source.load()
    assert str(path) in str(told.value) and told.value.hint


def test_a_list_can_name_nothing_but_hashes(tmp_path: Path) -> None:
    lay(POLICIES, [], Laid([]), str(tmp_path))
    from subluminal.contracts.digest import sha256_hex

    for names in ([".." * 32], ["/etc/passwd"], [7], "x", None):
        body = json.dumps({"names": names}).encode()
        path = tmp_path / "fleet" / "policy" / "policies.laid"
        path.write_bytes(sha256_hex(body).encode() + b"\n" + body)
        with pytest.raises(NotLaid):
            read_list(POLICIES, str(tmp_path))


def test_snapshots_that_no_list_names_go_and_others_stay(tmp_path: Path) -> None:
    home = str(tmp_path)
    old, new, stop = compiled("old"), compiled("new"), compiled("stop")
    lay(STOPS, [stop], Laid([]), home)
    lay(POLICIES, [old], Laid([]), home)
    lay(POLICIES, [new], Laid([]), home)
    names = {path.stem for path in (tmp_path / "fleet" / "policy").glob("*.json")}
    assert names == {new["policy_hash"], stop["policy_hash"]}


def test_nothing_is_laid_where_the_home_cannot_be_written(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    environ = joined(tmp_path, compiled("a"))
    directory = tmp_path / "fleet" / "policy"
    directory.chmod(0o500)
    try:
        with pytest.raises(OSError):
            lay(POLICIES, [compiled("b")], Laid([]), str(tmp_path))
    finally:
        directory.chmod(0o700)
    assert find_policies(environ, str(tmp_path))[0].load()["policy_id"] == "a"


def test_an_overdue_policy_is_told_apart_and_a_watch_notices_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = joined(tmp_path, compiled("a"), good_until_ms=5_000_000)
    now_ms = [4_999_000]
    monkeypatch.setattr("subluminal.policy.laid.time", lambda: now_ms[0] / 1000)
    monkeypatch.setenv("SUB_HOME", str(tmp_path))
    watch = PolicyWatch(environ, str(tmp_path), None, Identity("run"))
    assert not watch.changed() and watch.stack.engines[0].overdue is None
    now_ms[0] = 5_000_000
    assert watch.changed()
    watch.reload()
    assert not watch.changed()
    assert "has not confirmed its policy since 1970-01-01T01:23Z" in (watch.stack.engines[0].overdue or "")
    lay(POLICIES, [compiled("a")], Laid([], good_until_ms=9_000_000, max_offline_ms=1000), str(tmp_path))
    assert watch.changed()


def test_a_list_that_only_holds_longer_makes_nobody_load_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = joined(tmp_path, compiled("a"))
    monkeypatch.setenv("SUB_HOME", str(tmp_path))
    watch = PolicyWatch(environ, str(tmp_path), None, Identity("run"))
    lay(POLICIES, [compiled("a")], Laid([], version=7, good_until_ms=FUTURE_MS + 1), str(tmp_path))
    assert not watch.changed()


def test_a_broken_policy_beside_it_keeps_nothing_of_the_fleet_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = joined(tmp_path, compiled("a"))
    monkeypatch.setenv("SUB_HOME", str(tmp_path))
    user = tmp_path / "policy.yaml"
    user.write_text(_source("mine"))
    watch = PolicyWatch(environ, str(tmp_path), None, Identity("run"))
    assert [policy.policy_id for policy in watch.stack.policies] == ["a", "mine"]
    user.write_text("policy_id: [")
    lay(STOPS, [compiled("stop")], Laid([]), str(tmp_path))
    watch.reload()
    assert watch.error is not None
    assert [policy.policy_id for policy in watch.stack.policies] == ["a", "stop", "mine"]
    lay(STOPS, [], Laid([]), str(tmp_path))
    watch.reload()
    assert [policy.policy_id for policy in watch.stack.policies] == ["a", "mine"]


def _source(policy_id: str) -> str:
    head = {"policy_id": policy_id, "version": "1", "mode": "observe", "defaults": {"decision_on_error": "BLOCK"}}
    return json.dumps({**head, "selectors": {}, "rules": []})
