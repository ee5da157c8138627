"""What an origin, or somebody between, can try: each is refused with its own word, and the last good stays in force."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")

import msgspec

from harness.fleet import Fleet, Machine, bundle
from harness.waiting import wait_for
from subluminal.contracts.errors import FleetError
from subluminal.fleet.machine.fetching import BoundedFetcher
from subluminal.fleet.machine.origin import Refused
from subluminal.fleet.published import STOP_ROLE, STOPS_PATH, Policies, Published, policies_path, tenant_role
from subluminal.fleet.repository.publishing import Repository
from subluminal.fleet.repository.roles import raise_version, sign
from subluminal.fleet.repository.store import Lives

FIRST, SECOND = bundle("first", deny="delete*"), bundle("second", deny="drop*")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, tenants=("pay", "lab")) as made:
        made.publish(FIRST)
        yield made


@pytest.fixture
def machine(fleet: Fleet) -> Machine:
    return fleet.join("machine", tenant="pay")


def test_an_older_state_that_was_once_good_is_refused_as_a_rollback(fleet: Fleet, machine: Machine) -> None:
    old = fleet.copy_of_origin("old")
    fleet.publish(SECOND)
    machine.refresh()
    fleet.origin.directory = old
    assert machine.refused() == "rollback"
    assert machine.policy_ids() == ["second"]


def test_an_origin_that_is_frozen_is_refused_when_its_timestamp_has_expired(tmp_path: Path) -> None:
    with Fleet(tmp_path, lives=Lives(timestamp=2)) as fleet:
        fleet.publish(FIRST)
        machine = fleet.join("machine")
        wait_for(lambda: _refusal(machine) == "expired", what="the timestamp to expire")
        assert machine.refused() == "expired"
        assert machine.policy_ids() == ["first"]


def test_metadata_of_different_publications_cannot_be_mixed(fleet: Fleet, machine: Machine) -> None:
    role = tenant_role("all")
    old = (fleet.metadata / f"{fleet.repository.trusted.version(role)}.{role}.json").read_bytes()
    fleet.publish(SECOND)
    fleet.origin.answers[f"/metadata/{fleet.repository.trusted.version(role)}.{role}.json"] = old
    assert machine.refused() == "altered"
    assert machine.policy_ids() == ["first"]


def test_a_new_timestamp_cannot_be_shown_with_an_old_snapshot(fleet: Fleet, machine: Machine) -> None:
    old = (fleet.metadata / f"{fleet.repository.trusted.version('snapshot')}.snapshot.json").read_bytes()
    fleet.publish(SECOND)
    fleet.origin.answers[f"/metadata/{fleet.repository.trusted.version('snapshot')}.snapshot.json"] = old
    assert machine.refused() == "altered"
    del fleet.origin.answers[f"/metadata/{fleet.repository.trusted.version('snapshot')}.snapshot.json"]
    assert machine.refresh()
    assert machine.policy_ids() == ["second"]


def test_what_other_keys_have_signed_is_refused(fleet: Fleet, machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "thief").mkdir()
    with Fleet(tmp_path / "thief", tenants=("pay",)) as theirs:
        for number in range(5):
            theirs.publish(bundle(f"loose-{number}"))
        fleet.origin.directory = theirs.directory / "origin"
        assert machine.refused() == "unsigned"
    assert machine.policy_ids() == ["first"]


def test_an_altered_target_is_refused(fleet: Fleet, machine: Machine) -> None:
    fleet.publish(SECOND)
    target = fleet.repository.trusted.read(tenant_role("all")).signed.targets[policies_path("all")]
    file = next(fleet.directory.glob(f"origin/targets/policy/all/{target.hashes['sha256']}.*"))
    file.write_bytes(file.read_bytes().replace(b"drop*", b"drip*"))
    assert machine.refused() == "altered"
    assert machine.policy_ids() == ["first"]


@pytest.mark.parametrize("which", ["timestamp", "snapshot", "target"])
def test_data_without_an_end_is_cut_at_its_limit(fleet: Fleet, machine: Machine, which: str) -> None:
    fleet.publish(SECOND)
    signed = fleet.repository.trusted.read(tenant_role("all")).signed
    digest = signed.targets[policies_path("all")].hashes["sha256"]
    paths = {
        "timestamp": "/metadata/timestamp.json",
        "snapshot": f"/metadata/{fleet.repository.trusted.version('snapshot')}.snapshot.json",
        "target": f"/targets/policy/all/{digest}.policies.json",
    }
    sent = [0]

    def endless() -> Iterator[bytes]:
        while sent[0] < 1 << 28:
            sent[0] += 1 << 16
            yield b" " * (1 << 16)

    fleet.origin.answers[paths[which]] = endless
    assert machine.refused() == "too_large"
    assert sent[0] < 1 << 26, "it was not read to its end"
    assert machine.policy_ids() == ["first"]


def test_a_length_that_is_signed_but_beyond_all_bounds_is_not_fetched(fleet: Fleet, machine: Machine) -> None:
    _publish_as(fleet, tenant_role("all"), policies_path("all"), b"x", length=1 << 40)
    assert machine.refused() == "too_large"
    assert not any("/targets/" in path for path in fleet.origin.asked[-1:])


def test_an_origin_that_sends_a_byte_now_and_then_is_given_up(fleet: Fleet, machine: Machine) -> None:
    fleet.publish(SECOND)
    ended = []

    def drip() -> Iterator[bytes]:
        try:
            for _ in range(1000):
                yield b" "
                time.sleep(0.05)
        finally:
            ended.append(True)

    fleet.origin.answers["/metadata/timestamp.json"] = drip
    machine.origin._fetcher = BoundedFetcher("test", file_s=0.3)
    assert machine.refused() == "slow"
    wait_for(lambda: ended, what="the answer to be given up")
    assert machine.policy_ids() == ["first"]


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets", "tenant-all"])
def test_metadata_whose_signatures_were_taken_off_is_refused(fleet: Fleet, machine: Machine, role: str) -> None:
    fleet.publish(SECOND)
    name = "timestamp.json" if role == "timestamp" else f"{fleet.repository.trusted.version(role)}.{role}.json"
    content = json.loads((fleet.metadata / name).read_text())
    content["signatures"] = []
    if role == "targets":
        fresh = fleet.join  # a machine that has the targets already does not ask for them again
        fleet.origin.answers[f"/metadata/{name}"] = json.dumps(content).encode()
        with pytest.raises(Refused) as refused:
            fresh("fresh")
        assert refused.value.code in ("unsigned", "altered")
        return
    fleet.origin.answers[f"/metadata/{name}"] = json.dumps(content).encode()
    assert machine.refused() in ("unsigned", "altered")
    assert machine.policy_ids() == ["first"]


def test_one_key_of_root_alone_makes_no_new_root(fleet: Fleet, machine: Machine) -> None:
    root = fleet.repository.trusted.read("root")
    raise_version(root, 1000)
    one = root.signed.roles["root"].keyids[:1]
    sign(root, "root", one, 1, fleet.repository.ring)
    fleet.origin.answers["/metadata/2.root.json"] = root.to_bytes()
    assert machine.refused() == "unsigned"
    assert machine.policy_ids() == ["first"]


def test_the_key_of_one_tenant_cannot_speak_for_another(fleet: Fleet, machine: Machine) -> None:
    """The author of `lab` signs a file at the place of `pay`: no machine looks for it there."""
    fleet.publish(bundle("of-pay", deny="x"), tenant="pay")
    loose = msgspec.json.encode(Policies([Published("loose.json", json.dumps(bundle("loose")))]))
    _publish_as(fleet, tenant_role("lab"), policies_path("pay"), loose)
    machine.refresh()
    assert machine.policy_ids() == ["first", "of-pay"]
    assert fleet.join("lab", tenant="pay").policy_ids() == ["first", "of-pay"]


def test_the_key_for_stops_cannot_publish_a_policy(fleet: Fleet, machine: Machine) -> None:
    loose = msgspec.json.encode(Policies([Published("loose.json", json.dumps(bundle("loose")))]))
    _publish_as(fleet, STOP_ROLE, policies_path("all"), loose)
    machine.refresh()
    assert machine.policy_ids() == ["first"]


@pytest.mark.parametrize(
    "content",
    [
        {"stops": [{"stop_id": "s", "reason": "r", "by": "b", "at": "t", "allow": "delete*"}], "format": 1},
        {"stops": [], "rules": [{"rule_id": "a", "kind": "allow", "match": {}}], "format": 1},
        {"policies": [{"name": "p.json", "source": json.dumps(bundle("loose"))}], "format": 1},
        {"stops": "none", "format": 1},
        [],
    ],
)
def test_the_key_for_stops_has_no_word_for_anything_but_forbidding(
    fleet: Fleet, machine: Machine, content: Any
) -> None:
    fleet.stop(tool="write*")
    machine.look_for_stops()
    _publish_as(fleet, STOP_ROLE, STOPS_PATH, msgspec.json.encode(content))
    with pytest.raises(FleetError):
        machine.look_for_stops()
    assert machine.stop_ids() == ["stop-0"], "the stop that was active stays"


def test_a_policy_that_does_not_compile_changes_nothing(fleet: Fleet, machine: Machine) -> None:
    broken = msgspec.json.encode(Policies([Published("broken.yaml", "policy_id: [")]))
    _publish_as(fleet, tenant_role("all"), policies_path("all"), broken)
    with pytest.raises(FleetError, match="does not compile"):
        machine.refresh()
    assert machine.policy_ids() == ["first"]


def test_an_origin_that_is_away_or_broken_changes_nothing(fleet: Fleet, machine: Machine) -> None:
    fleet.origin.answers["/metadata/timestamp.json"] = b"<html>maintenance</html>"
    assert machine.refused() == "invalid"
    fleet.origin.end()
    assert machine.refused() == "unreachable"
    assert machine.policy_ids() == ["first"]


def test_a_machine_does_not_join_what_its_root_does_not_vouch_for(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "thief").mkdir()
    with Fleet(tmp_path / "thief") as theirs:
        fleet.origin.directory = theirs.directory / "origin"
        with pytest.raises(Refused):
            fleet.join("fresh")
    assert not (tmp_path / "fresh" / "fleet" / "joined.json").exists()
    assert not (tmp_path / "fresh" / "fleet" / "policy").exists()


def test_a_revoked_key_signs_for_nobody(fleet: Fleet, machine: Machine) -> None:
    from subluminal.fleet.keys import new_key, tuf_key
    from subluminal.fleet.repository.revoking import revoke

    role = tenant_role("all")
    thief = Repository(str(fleet.directory))
    fresh = Repository(str(fleet.directory))
    revoke(fresh, role, tuf_key(new_key(str(fleet.directory / "keys" / "new.pem"))))
    machine.refresh()
    assert machine.policy_ids() == ["first"], "what was published stays, under the new key"
    (fleet.directory / "keys" / "new.pem").rename(fleet.tmp_path / "elsewhere.pem")
    with pytest.raises(FleetError, match="needs the key"):
        thief.publish("all", [])


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets", "root-1"])
def test_two_keys_of_root_replace_any_key_and_machines_follow(fleet: Fleet, machine: Machine, role: str) -> None:
    from subluminal.fleet.keys import new_key, tuf_key
    from subluminal.fleet.repository.revoking import revoke

    key = tuf_key(new_key(str(fleet.directory / "keys" / "new.pem")))
    revoke(Repository(str(fleet.directory)), role, key)
    machine.refresh()
    assert machine.policy_ids() == ["first"]
    fleet.repository = Repository(str(fleet.directory))
    fleet.publish(SECOND)
    machine.refresh()
    assert machine.policy_ids() == ["second"]


def test_what_somebody_lays_into_the_origin_is_never_signed_by_others(fleet: Fleet, machine: Machine) -> None:
    """Forged metadata of a higher version: whoever publishes next passes it over, and signs nothing of it."""
    fleet.stop(tool="write*")
    role = tenant_role("all")
    for each, path in ((role, policies_path("all")), (STOP_ROLE, STOPS_PATH)):
        forged = fleet.repository.trusted.read(each)
        forged.signed.version += 7
        forged.signed.targets = {path: fleet.repository.store.write_target(path, b"{}")}
        fleet.repository.store.write(forged, each)
    (fleet.metadata / "99.stop.json").write_text("{")
    fleet.stop(tool="drop*")
    fleet.publish(SECOND)
    machine.refresh()
    machine.look_for_stops()
    assert machine.policy_ids() == ["second"]
    assert machine.stop_ids() == ["stop-0", "stop-1"], "the stop from before was not lost"
    assert "99.stop.json" in fleet.repository.trusted.passed_over


def test_a_publisher_whose_origin_has_lost_something_signs_nothing_older(fleet: Fleet) -> None:
    fleet.stop(tool="write*")
    (fleet.metadata / f"{fleet.repository.trusted.version(STOP_ROLE)}.stop.json").unlink()
    for publish in (lambda: fleet.publish(SECOND), lambda: fleet.stop(tool="drop*")):
        with pytest.raises(FleetError, match="is gone from the origin"):
            publish()


def test_a_target_that_was_changed_in_the_origin_is_not_signed_again(fleet: Fleet) -> None:
    fleet.stop(tool="write*")
    for file in fleet.directory.glob("origin/targets/stop/*"):
        file.write_bytes(b'{"stops":[],"format":1}')
    with pytest.raises(FleetError, match="is not what stop has signed"):
        fleet.stop(tool="drop*")


def _refusal(machine: Machine) -> str | None:
    try:
        machine.refresh()
    except Refused as refused:
        return refused.code
    return None


def _publish_as(fleet: Fleet, role: str, path: str, data: bytes, length: int | None = None) -> None:
    """What the holder of one role's key can do, with the online keys going along."""
    repository = fleet.repository
    metadata = repository.trusted.read(role)
    raise_version(metadata, 1000)
    target = repository.store.write_target(path, data)
    if length is not None:
        target.length = length
    metadata.signed.targets[path] = target
    sign(metadata, role, list(metadata.signatures), 1, repository.ring)
    repository.store.write(metadata, role)
    repository.renew()
