"""The snapshot cache: fast when it can be believed, ignored when it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from subluminal.contracts.errors import PolicyError
from subluminal.policy.compile import snapshot as snapshots
from subluminal.policy.compile.bundle import compile_bundle, snapshot_bytes
from subluminal.policy.compile.snapshot import load_inline, load_snapshot
from subluminal.policy.lint.findings import InvalidPolicy, UnreadablePolicy

POLICY = """policy_id: p
version: "1"
mode: {mode}
defaults: {{decision_on_error: BLOCK}}
selectors: {{}}
rules:
  - rule_id: no-rm
    kind: deny
    enabled: true
    severity: critical
    match: {{args: {{numeric_range: {{size: {{min: 0.1, max: 1.0}}}}}}}}
    effect: {{action: BLOCK}}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(mode="guardrails"))
    return path


def cache_files() -> list[Path]:
    directory = Path(os.environ["SUB_HOME"]) / "snapshots"
    return sorted(directory.iterdir()) if directory.exists() else []


def only_cache_file() -> Path:
    (path,) = cache_files()
    return path


def test_a_warm_start_gives_the_same_snapshot_as_a_cold_one(policy: Path) -> None:
    cold = load_snapshot(str(policy))
    warm = load_snapshot(str(policy))
    assert cold == warm == compile_bundle(policy.read_bytes(), "policy.yaml")


def test_a_warm_start_imports_no_yaml_and_no_compiler(policy: Path) -> None:
    load_snapshot(str(policy))
    program = (
        "import sys\n"
        "from subluminal.policy.compile.snapshot import load_snapshot\n"
        "load_snapshot(sys.argv[1])\n"
        "heavy = {'yaml', 'ruamel', 're2', 'difflib'}\n"
        "heavy |= {'subluminal.policy.compile.bundle', 'subluminal.policy.lint.load'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(policy)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_cache_is_private_and_is_json(policy: Path) -> None:
    compiled = load_snapshot(str(policy))
    path = only_cache_file()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700
    content = json.loads(path.read_bytes())
    assert content["policy_hash"] == compiled["policy_hash"]


def forge(path: Path, source_hash: str, mode: str) -> None:
    """A cache file for the given source, right in every detail but that it is the snapshot of another policy."""
    other = compile_bundle(POLICY.format(mode=mode).encode(), "policy.yaml")
    body = snapshot_bytes(other)
    path.write_bytes(snapshots._frame(source_hash, other["policy_hash"]) + body[1:])
    path.chmod(0o600)


@pytest.mark.parametrize("spoil", ["changed", "truncated", "empty", "garbage", "old-compiler", "renamed"])
def test_a_spoilt_cache_is_ignored_and_rewritten(policy: Path, spoil: str) -> None:
    honest = load_snapshot(str(policy))
    path = only_cache_file()
    good = path.read_bytes()
    spoilt = {
        "changed": good.replace(b'"mode":"guardrails"', b'"mode":"observe"'),
        "truncated": good[:-10],
        "empty": b"",
        "garbage": b"\xff" * 500,
        "old-compiler": good.replace(b'{"compiled_by":"', b'{"compiled_by":"0'),
        "renamed": good.replace(path.stem.encode(), b"0" * 64),
    }[spoil]
    assert spoilt != good
    path.write_bytes(spoilt)
    assert load_snapshot(str(policy)) == honest
    assert path.read_bytes() == good


def test_a_cache_file_that_others_can_write_is_not_believed(policy: Path) -> None:
    load_snapshot(str(policy))
    path = only_cache_file()
    forge(path, path.stem, "observe")
    assert load_snapshot(str(policy))["mode"] == "observe", "the forgery must be good, or the next lines prove nothing"
    path.chmod(0o620)
    assert load_snapshot(str(policy))["mode"] == "guardrails"


def test_a_cache_file_of_another_user_is_not_believed(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_snapshot(str(policy))
    path = only_cache_file()
    forge(path, path.stem, "observe")
    monkeypatch.setattr(snapshots.os, "geteuid", lambda: os.getuid() + 1)
    assert load_snapshot(str(policy))["mode"] == "guardrails"


def test_a_symbolic_link_in_the_cache_is_not_followed(policy: Path, tmp_path: Path) -> None:
    load_snapshot(str(policy))
    path = only_cache_file()
    elsewhere = tmp_path / "elsewhere.json"
    forge(elsewhere, path.stem, "observe")
    path.unlink()
    path.symlink_to(elsewhere)
    assert load_snapshot(str(policy))["mode"] == "guardrails"
    assert not path.is_symlink()


def test_a_changed_source_is_compiled_anew(policy: Path) -> None:
    assert load_snapshot(str(policy))["mode"] == "guardrails"
    policy.write_text(POLICY.format(mode="control"))
    assert load_snapshot(str(policy))["mode"] == "control"


def test_a_home_that_cannot_be_written_costs_only_time(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("SUB_HOME", str(blocker / "home"))
    assert load_snapshot(str(policy))["policy_id"] == "p"


def test_old_snapshots_are_removed(policy: Path) -> None:
    for number in range(snapshots.MAX_CACHED + 5):
        policy.write_text(POLICY.format(mode="control") + f"# {number}\n")
        load_snapshot(str(policy))
    assert len(cache_files()) == snapshots.MAX_CACHED


def test_a_broken_policy_raises_all_findings_and_leaves_no_cache(policy: Path) -> None:
    policy.write_text(POLICY.format(mode="gaurdrails").replace("deny", "denny"))
    with pytest.raises(PolicyError) as raised:
        load_snapshot(str(policy))
    assert isinstance(raised.value, InvalidPolicy)
    assert [finding.code for finding in raised.value.findings] == ["bad-value", "unknown-kind"]
    assert "policy.yaml:3:7" in str(raised.value)
    assert cache_files() == []


def test_inline_json_is_compiled_and_cached(policy: Path) -> None:
    text = json.dumps({**json.loads(json.dumps(compile_source(policy))), "mode": "observe"})
    assert load_inline(text) == load_inline(text)
    assert load_inline(text)["mode"] == "observe"
    with pytest.raises(InvalidPolicy, match=r"SUB_POLICY_JSON.json:1:1"):
        load_inline("policy_id: yaml")


def compile_source(policy: Path) -> dict[str, object]:
    snapshot = compile_bundle(policy.read_bytes(), "policy.yaml")
    return {key: value for key, value in snapshot.items() if key not in ("snapshot_format", "policy_hash")}


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "device"])
def test_what_is_not_a_readable_file_is_an_error_and_never_hangs(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "policy.yaml"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    with pytest.raises(UnreadablePolicy) as raised:
        load_snapshot(str(path))
    assert raised.value.exit_code == 2
