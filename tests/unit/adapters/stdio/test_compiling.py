"""A shim that meets a policy first has it compiled by a child: it stays as small as those that come later."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness.fake_server import fake_server
from harness.processes import memory_kib
from harness.shim import Shim
from subluminal.contracts.digest import sha256_hex_once
from subluminal.host.home import snapshot_file
from subluminal.policy.compile import snapshot
from subluminal.policy.lint.findings import InvalidPolicy

POLICY = """policy_id: p
version: "1"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules: []
"""


def test_the_first_shim_of_a_policy_is_hardly_larger_than_the_second(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "store", fake_server(tools={"get": {}}), policy="deny_above_allow.yaml")
    sizes = []
    for _ in range(2):
        with setup.start() as agent:
            agent.initialize()
            agent.call("get", {})
            sizes.append(memory_kib(agent.pid))
            agent.finish()
    assert sizes[0] < 1.15 * sizes[1], "the compiler alone needs half as much again"


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


def test_what_a_child_compiles_is_what_would_be_compiled_here(policy: Path) -> None:
    apart = snapshot.load_snapshot(str(policy), apart=True)
    cached = Path(snapshot_file(sha256_hex_once(policy.read_bytes())))
    cached.unlink()
    assert apart == snapshot.load_snapshot(str(policy))


def test_an_invalid_policy_is_told_of_as_ever(policy: Path) -> None:
    policy.write_text(POLICY.replace("rules: []", "rules: 7"), encoding="utf-8")
    with pytest.raises(InvalidPolicy):
        snapshot.load_snapshot(str(policy), apart=True)


def test_a_home_that_takes_no_snapshot_costs_memory_only(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no directory", encoding="utf-8")
    assert snapshot.load_snapshot(str(policy), apart=True)["policy_id"] == "p"


def test_a_process_with_threads_does_not_fork(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot.os, "fork", lambda: pytest.fail("forked"))
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert snapshot.load_snapshot(str(policy), apart=True)["policy_id"] == "p"
    finally:
        done.set()
        thread.join()
