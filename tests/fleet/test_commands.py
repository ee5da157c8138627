"""`sub fleet`, `sub policy sign` and `verify` as people use them: what is told, exit codes, and mistakes."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

from harness.collector import collector
from harness.command_line import run_sub, stored
from harness.fleet import StaticOrigin, bundle
from harness.fleet_names import run_id, shim_id
from harness.ledger import EventMaker
from harness.waiting import wait_for

POLICY = bundle("base", deny="delete*")


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "base.json"
    path.write_text(json.dumps(POLICY))
    return str(path)


@pytest.fixture
def repository(tmp_path: Path, policy: str) -> str:
    directory = str(tmp_path / "fleet")
    assert run_sub(tmp_path / "publisher", "fleet", "init", directory, "--tenant", "pay").returncode == 0
    assert run_sub(tmp_path / "publisher", "fleet", "publish", policy, "--repository", directory).returncode == 0
    return directory


@pytest.fixture
def origin(repository: str) -> Iterator[StaticOrigin]:
    served = StaticOrigin(Path(repository) / "origin")
    yield served
    served.end()


def test_from_init_to_a_joined_machine_and_out_again(tmp_path: Path, repository: str, origin: StaticOrigin) -> None:
    home = tmp_path / "sub"
    root = str(Path(repository) / "root.json")
    told = run_sub(home, "fleet", "join", origin.url, "--root", root, "--tenant", "pay", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["policies"][0]["policy_id"] == "base"
    assert stat.S_IMODE((home / "fleet" / "joined.json").stat().st_mode) == 0o600
    status = run_sub(home, "fleet", "status")
    assert status.returncode == 0 and "base 1" in status.stdout
    in_force = json.loads(run_sub(home, "policy", "in-force", "--json").stdout)
    assert [one["origin"] for one in in_force["policies"]] == ["fleet"]
    areas = json.loads(run_sub(home, "doctor", "--json").stdout)["areas"]
    assert [area["level"] for area in areas if area["area"] == "fleet"] == ["ok"]
    again = run_sub(home, "fleet", "join", origin.url, "--root", root)
    assert again.returncode == 2 and "already" in again.stderr
    run_sub(home, "ledgerd", "--stop")
    assert "would remove" in run_sub(home, "fleet", "leave", "--dry-run").stdout
    assert run_sub(home, "fleet", "status").returncode == 0
    assert run_sub(home, "fleet", "leave").returncode == 0
    gone = run_sub(home, "fleet", "status")
    assert gone.returncode == 2 and "joined no fleet" in gone.stderr


def test_a_stop_is_seen_at_the_next_look_and_gone_after_resume(
    tmp_path: Path, repository: str, origin: StaticOrigin
) -> None:
    home, publisher = tmp_path / "sub", tmp_path / "publisher"
    run_sub(home, "fleet", "join", origin.url, "--root", str(Path(repository) / "root.json"))
    run_sub(home, "ledgerd", "--stop")
    words = ("fleet", "stop", "--tool", "write*", "--reason", "drill", "--by", "ada", "--repository", repository)
    stop = json.loads(run_sub(publisher, *words, "--json").stdout)
    assert run_sub(home, "fleet", "keep", "--once").returncode == 0
    status = json.loads(run_sub(home, "fleet", "status", "--json").stdout)
    assert status["stops"] == [stop]
    assert "drill" in run_sub(publisher, "fleet", "status", "--repository", repository).stdout
    lifted = run_sub(publisher, "fleet", "resume", stop["stop_id"], "--repository", repository)
    assert lifted.returncode == 0
    run_sub(home, "fleet", "keep", "--once")
    assert json.loads(run_sub(home, "fleet", "status", "--json").stdout)["stops"] == []


def test_only_who_has_the_key_for_stops_stops_and_resumes(tmp_path: Path, repository: str) -> None:
    publisher, key = tmp_path / "publisher", Path(repository) / "keys" / "stop.pem"
    stopping = ("fleet", "stop", "--all", "--reason", "drill", "--by", "ada", "--repository", repository, "--json")
    stop = json.loads(run_sub(publisher, *stopping).stdout)
    key.rename(tmp_path / "on-call.pem")
    for words in (stopping, ("fleet", "resume", stop["stop_id"], "--repository", repository, "--json")):
        refused = run_sub(publisher, *words)
        assert refused.returncode == 2 and "needs the key" in refused.stderr, refused.stderr
    status = json.loads(run_sub(publisher, "fleet", "status", "--repository", repository, "--json").stdout)
    assert [each["stop_id"] for each in status["stops"]] == [stop["stop_id"]]
    (tmp_path / "on-call.pem").rename(key)
    assert run_sub(publisher, "fleet", "resume", stop["stop_id"], "--repository", repository).returncode == 0


def test_what_went_wrong_is_in_the_status_and_the_last_good_stays(
    tmp_path: Path, repository: str, origin: StaticOrigin
) -> None:
    home = tmp_path / "sub"
    run_sub(home, "fleet", "join", origin.url, "--root", str(Path(repository) / "root.json"))
    run_sub(home, "ledgerd", "--stop")
    origin.end()
    once = run_sub(home, "fleet", "keep", "--once", "--json")
    assert once.returncode == 1 and "cannot be reached" in json.loads(once.stdout)["tasks"]["refresh"]
    status = json.loads(run_sub(home, "fleet", "status", "--json").stdout)
    assert status["tasks"]["refresh"]["code"] == "unreachable"
    assert [each["policy_id"] for each in status["policies"]] == ["base"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["join", "ftp://x", "--root", "r"], "no address"),
        (["join", "https://a:b@x", "--root", "r"], "no password"),
        (["join", "https://x", "--root", "missing.json"], "missing.json cannot be read"),
        (["join", "https://x", "--root", "r", "--max-offline", "soon"], "no length of time"),
        (["join", "https://x", "--root", "r", "--token-env", "T"], "--collector"),
        (["status"], "joined no fleet"),
        (["keep"], "joined no fleet"),
        (["publish", "x.yaml", "--repository", "."], "no repository"),
        (["publish"], "name the policies"),
        (["stop", "--reason", "x"], "name what to stop"),
        (["stop", "--all", "--tool", "x", "--reason", "x"], "name what to stop"),
        (["stop", "--tool", "", "--reason", "x"], "may be empty"),
        (["resume"], "--all"),
        (["tenant", "Not A Name"], "no name of a tenant"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(tmp_path: Path, words: list[str], told: str) -> None:
    done = run_sub(tmp_path / "sub", "fleet", *words)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_policy_that_does_not_compile_is_not_published(tmp_path: Path, repository: str) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("policy_id: [")
    done = run_sub(tmp_path / "publisher", "fleet", "publish", str(bad), "--repository", repository)
    assert done.returncode == 2 and "does not compile" in done.stderr
    status = run_sub(tmp_path / "publisher", "fleet", "status", "--repository", repository, "--json")
    assert json.loads(status.stdout)["policies"]["all"] == ["base.json"]


def test_an_author_without_the_online_keys_signs_and_leaves_it_to_renew(
    tmp_path: Path, repository: str, policy: str
) -> None:
    publisher, keys = tmp_path / "publisher", Path(repository) / "keys"
    away = tmp_path / "away"
    away.mkdir()
    for name in ("snapshot", "timestamp"):
        (keys / f"{name}.pem").rename(away / f"{name}.pem")
    done = run_sub(publisher, "fleet", "publish", policy, "--tenant", "pay", "--repository", repository)
    assert done.returncode == 2 and "sub fleet renew" in done.stderr
    status = json.loads(run_sub(publisher, "fleet", "status", "--repository", repository, "--json").stdout)
    assert [role["role"] for role in status["roles"] if role["pending"]] == ["tenant-pay"]
    online = [word for name in ("snapshot", "timestamp") for word in ("--key", str(away / f"{name}.pem"))]
    assert run_sub(publisher, "fleet", "renew", "--repository", repository, *online).returncode == 0
    status = json.loads(run_sub(publisher, "fleet", "status", "--repository", repository, "--json").stdout)
    assert not any(role["pending"] for role in status["roles"])


def test_a_tenant_brings_its_own_key(tmp_path: Path, repository: str, policy: str, origin: StaticOrigin) -> None:
    publisher = tmp_path / "publisher"
    run_sub(publisher, "fleet", "key", str(tmp_path / "lab.pem"))
    words = ("--public-key", str(tmp_path / "lab.pub"), "--repository", repository)
    assert run_sub(publisher, "fleet", "tenant", "lab", *words).returncode == 0
    without = run_sub(publisher, "fleet", "publish", policy, "--tenant", "lab", "--repository", repository)
    assert without.returncode == 2 and "needs the key" in without.stderr
    mine = ("--key", str(tmp_path / "lab.pem"), "--repository", repository)
    done = run_sub(publisher, "fleet", "publish", policy, "--tenant", "lab", *mine)
    assert done.returncode == 0, done.stderr
    root = str(Path(repository) / "root.json")
    told = run_sub(tmp_path / "sub", "fleet", "join", origin.url, "--root", root, "--tenant", "lab", "--json")
    assert len(json.loads(told.stdout)["policies"]) == 2
    run_sub(tmp_path / "sub", "ledgerd", "--stop")


def test_a_stolen_key_is_revoked_and_the_new_one_publishes(tmp_path: Path, repository: str, policy: str) -> None:
    publisher = tmp_path / "publisher"
    stolen = Path(repository) / "keys" / "tenant-pay.pem"
    done = run_sub(publisher, "fleet", "revoke", "tenant-pay", "--repository", repository, "--json")
    assert done.returncode == 0, done.stderr
    fresh = Path(json.loads(done.stdout)["key"])
    assert run_sub(publisher, "fleet", "publish", policy, "--tenant", "pay", "--repository", repository).returncode == 0
    fresh.rename(tmp_path / "fresh.pem")
    assert stolen.exists()
    refused = run_sub(publisher, "fleet", "publish", policy, "--tenant", "pay", "--repository", repository)
    assert refused.returncode == 2 and "needs the key" in refused.stderr
    assert run_sub(publisher, "fleet", "revoke", "nobody", "--repository", repository).returncode == 2


def test_keys_under_a_passphrase_and_keys_that_others_can_read(tmp_path: Path, policy: str) -> None:
    directory, publisher = str(tmp_path / "locked"), tmp_path / "publisher"
    made = run_sub(publisher, "fleet", "init", directory, "--passphrase-env", "P", P="secret words")
    assert made.returncode == 0, made.stderr
    assert b"ENCRYPTED" in (Path(directory) / "keys" / "stop.pem").read_bytes()
    assert stat.S_IMODE((Path(directory) / "keys" / "stop.pem").stat().st_mode) == 0o600
    closed = run_sub(publisher, "fleet", "publish", policy, "--repository", directory)
    assert closed.returncode == 2 and "could not be opened" in closed.stderr
    words = ("fleet", "publish", policy, "--repository", directory, "--passphrase-env", "P")
    assert run_sub(publisher, *words, P="wrong").returncode == 2
    assert run_sub(publisher, *words, P="secret words").returncode == 0
    run_sub(publisher, "fleet", "key", str(tmp_path / "k.pem"))
    os.chmod(tmp_path / "k.pem", 0o644)
    signed = run_sub(publisher, "policy", "sign", policy, "--key", str(tmp_path / "k.pem"))
    assert signed.returncode == 2 and "read by others" in signed.stderr


def test_a_signed_policy_is_verified_and_an_altered_one_is_not(tmp_path: Path, policy: str) -> None:
    home, key = tmp_path / "sub", str(tmp_path / "author.pem")
    public, other = str(tmp_path / "author.pub"), str(tmp_path / "other.pem")
    run_sub(home, "fleet", "key", key)
    run_sub(home, "fleet", "key", other)
    assert run_sub(home, "policy", "sign", policy, "--key", key).returncode == 0
    good = run_sub(home, "policy", "verify", policy, "--key", public, "--json")
    assert good.returncode == 0 and json.loads(good.stdout)["policy_id"] == "base"
    wrong = run_sub(home, "policy", "verify", policy, "--key", str(tmp_path / "other.pub"))
    assert wrong.returncode == 1 and "another key" in wrong.stderr
    Path(policy).write_text(json.dumps(bundle("base")))
    altered = run_sub(home, "policy", "verify", policy, "--key", public)
    assert altered.returncode == 1 and "not what was signed" in altered.stderr
    Path(policy + ".sig").write_text("{}")
    assert run_sub(home, "policy", "verify", policy, "--key", public).returncode == 1
    Path(policy + ".sig").unlink()
    assert run_sub(home, "policy", "verify", policy, "--key", public).returncode == 2


# What scripts read: a key that goes away breaks one.
KEYS = {
    "init": "keys origin root",
    "tenant": "new_key tenant",
    "publish": "policies published tenant",
    "renew": "renewed snapshot timestamp",
    "stop": "at by reason stop_id tool",
    "resume": "at by reason stop_id tool",
    "join": "joined policies stops tenant url version",
    "keep": "tasks",
    "status": "age_s clock clock_ahead_s collector confirmed_at error good_until joined_at keeper max_offline_ms"
    " no_room overdue policies put_back shipping stops tasks tenant url version",
    "leave": "left removed",
    "key": "private public",
}


def test_every_command_prints_the_keys_that_were_promised(tmp_path: Path, policy: str) -> None:
    home, at = tmp_path / "sub", str(tmp_path / "fleet")
    there = ["--repository", at]
    origin = StaticOrigin(tmp_path / "fleet" / "origin")
    root = str(tmp_path / "fleet" / "root.json")
    scenes: dict[str, list[str]] = {
        "init": [at],
        "tenant": ["lab", *there],
        "publish": [policy, *there],
        "renew": there,
        "stop": ["--tool", "x", "--reason", "drill", *there],
        "resume": ["--all", *there],
        "join": [origin.url, "--root", root],
        "keep": ["--once"],
        "status": [],
        "leave": [],
        "key": [str(tmp_path / "k.pem")],
    }
    try:
        for name, words in scenes.items():
            done = run_sub(home, "fleet", name, *words, "--json")
            assert done.returncode == 0, (name, done.stderr)
            assert sorted(json.loads(done.stdout)) == KEYS[name].split(), name
            if name == "join":
                run_sub(home, "ledgerd", "--stop")
    finally:
        origin.end()


def test_the_doctor_says_how_shipping_fares(
    tmp_path: Path, repository: str, origin: StaticOrigin, one_store: str
) -> None:
    """A collector that is away, a credential that is not there, and all well again."""
    home, token = tmp_path / "sub", tmp_path / "token"

    def of_doctor() -> tuple[dict[str, Any], dict[str, str]]:
        # The one that ledgerd had started may still be about to end.
        wait_for(lambda: "already" not in run_sub(home, "fleet", "keep", "--once").stderr, what="a step of the keeper")
        told = json.loads(run_sub(home, "doctor", "--json").stdout)
        (area,) = (area for area in told["areas"] if area["area"] == "fleet")
        return area["shipping"], {one["code"]: one["message"] for one in told["findings"] if one["area"] == "fleet"}

    with collector(tmp_path / "collector", one_store) as fleet:
        fleet.kill()
        token.write_text(fleet.token("acme", "m1"))
        words = ("--collector", fleet.url, "--token-file", str(token))
        root = str(Path(repository) / "root.json")
        assert run_sub(home, "fleet", "join", origin.url, "--root", root, *words).returncode == 0
        run_sub(home, "ledgerd", "--stop")
        stored(home, EventMaker(run_id(1), shim_id(1)).whole_run(2))
        shipping, findings = of_doctor()
        assert (shipping["unacked_events"], shipping["waits"]) == (8, 1)
        assert "shipping   " + fleet.url + ", 8 events behind, since" in run_sub(home, "fleet", "status").stdout
        assert shipping["behind_s"] > 600 and "cannot be reached" in shipping["last_error"]
        assert findings["fleet-behind"].startswith("the collector is 8 events behind, since 2023-11-14T22:13:20.")
        assert "cannot be reached" in findings["fleet-behind"]

        fleet.start()
        token.rename(tmp_path / "elsewhere")
        shipping, findings = of_doctor()
        assert shipping["no_credential"] and f"{token} cannot be read." in findings["fleet-no-credential"]

        (tmp_path / "elsewhere").rename(token)
        shipping, findings = of_doctor()
        assert (shipping["unacked_events"], shipping["behind_s"], shipping["last_error"], findings) == (
            0,
            None,
            None,
            {},
        )
        assert shipping["acked_at"] and not shipping["no_credential"]
