"""A home that somebody else has prepared: nothing of it is obeyed, nothing hangs on it, and it is said."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.desk import SUB, Desk
from harness.driver import Agent
from harness.fake_server import fake_server
from harness.waiting import wait_for
from subluminal.host import home

DIRECTORIES = ["backups", "headless", "run", "secrets", "snapshots", "spool"]
FILES = ["host_id", "http_token", "ledger.heads", "ledgerd.log", "ledgerd.pid"]
# The session records to the ledger, so that the whole home is used.
LEDGER = {"SUB_EVENTS": "ledger", "SUB_LEDGER_IDLE_S": "1"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.env.update(LEDGER)
    desk.sub_home.mkdir(mode=0o700)
    return desk


def session(desk: Desk) -> str:
    """One call through a shim, which has to be answered whatever the home is; what the shim said."""
    command = [*SUB, "shim", "--server-name", "fs", "--", *fake_server()]
    with Agent(command, env=desk.env, cwd=desk.repository) as agent:
        agent.initialize()
        assert "result" in agent.call("echo", {})
        agent.finish()
        return agent.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory another user's")
@pytest.mark.parametrize("command", [("shim", "--server-name", "s", "--", "true"), ("secrets", "list"), ("ledgerd",)])
def test_a_home_of_another_user_is_refused_with_a_sentence(desk: Desk, command: tuple[str, ...]) -> None:
    (desk.sub_home / "config.toml").write_text("[servers.s]\nenv_allowlist = []\n")
    os.chown(desk.sub_home, 12345, 12345)
    said = desk.sub(*command, code=2)
    assert f"{desk.sub_home}" in said and "belongs to another user (uid 12345)" in said and "SUB_HOME" in said
    assert os.listdir(desk.sub_home) == ["config.toml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file another user's")
def test_settings_of_another_user_in_ones_own_home_are_refused(desk: Desk) -> None:
    config = desk.sub_home / "config.toml"
    config.write_text("[shim]\ntimeout_ms = 5\n")
    os.chown(config, 12345, 12345)
    said = desk.sub("shim", "--server-name", "s", "--", "true", code=2)
    assert f"{config} belongs to another user" in said and "secret" in said


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o775])
def test_a_home_that_others_could_change_is_closed_and_it_is_said_once(desk: Desk, mode: int) -> None:
    desk.sub_home.chmod(mode)
    assert f"could be changed by other users ({mode:04o}); they no longer can ({mode & ~0o022:04o})" in session(desk)
    assert stat.S_IMODE(desk.sub_home.stat().st_mode) == mode & ~0o022
    assert "other users" not in session(desk)


def test_a_directory_that_is_there_for_all_users_is_no_home_and_is_left_as_it_is(desk: Desk) -> None:
    """`SUB_HOME=/tmp`, as root."""
    desk.sub_home.chmod(0o1777)
    said = desk.sub("shim", "--server-name", "s", "--", "true", code=2)
    assert "is open to all users (1777); set SUB_HOME to a directory of yours" in said
    assert stat.S_IMODE(desk.sub_home.stat().st_mode) == 0o1777 and os.listdir(desk.sub_home) == []


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_link_in_place_of_a_directory_is_not_written_through(desk: Desk, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (desk.sub_home / name).symlink_to(elsewhere)
    session(desk)
    desk.write(desk.own, fs={"command": "x"})
    for command in (("import", "claude"), ("secrets", "add", "ref"), ("policy", "init", "--user")):
        subprocess.run([*SUB, *command], input=b"a value of some length", env=desk.env, cwd=desk.repository, timeout=60)
    subprocess.run([*SUB, "run", "--", "true"], env=desk.env, cwd=desk.repository, timeout=60)
    assert os.listdir(elsewhere) == []
    (finding,) = desk.findings("not-ours")
    assert str(desk.sub_home / name) in finding["message"] and "symbolic link" in finding["message"]


@pytest.mark.parametrize("name", ["ledgerd.pid", "ledgerd.log", "ledger.heads", "host_id", "hard ledgerd.pid"])
def test_a_link_in_place_of_a_file_is_not_written_through(desk: Desk, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("the user's own\n")
    if name.startswith("hard "):
        (desk.sub_home / name.removeprefix("hard ")).hardlink_to(precious)
    else:
        (desk.sub_home / name).symlink_to(precious)
    session(desk)
    subprocess.run([*SUB, "runs"], env=desk.env, cwd=desk.repository, timeout=60, capture_output=True)
    assert precious.read_text() == "the user's own\n"


def test_a_linked_lock_of_the_daemon_is_an_error_with_a_sentence(desk: Desk, tmp_path: Path) -> None:
    (desk.sub_home / "ledgerd.pid").symlink_to(tmp_path / "precious")
    said = desk.sub("ledgerd", "--foreground", code=2)
    assert "ledgerd.pid: is a symbolic link, which is not followed here; remove it" in said
    assert not (tmp_path / "precious").exists()


def test_a_link_in_place_of_the_witness_leaves_the_events_in_the_ledger(desk: Desk, tmp_path: Path) -> None:
    (desk.sub_home / "ledger.heads").symlink_to(tmp_path / "precious")
    session(desk)
    assert "1 run" in wait_for(lambda: desk.sub("doctor", code=1), what="the run", enough=lambda said: "1 run" in said)
    assert not (tmp_path / "precious").exists()


@pytest.mark.parametrize("name", [*FILES, "config.toml", "policy.yaml", *DIRECTORIES])
def test_a_fifo_in_place_of_anything_hangs_nothing(desk: Desk, name: str) -> None:
    os.mkfifo(desk.sub_home / name)
    command: list[Any] = [*SUB, "shim", "--server-name", "fs", "--", *fake_server()]
    subprocess.run(command, env=desk.env, cwd=desk.repository, timeout=60, stdin=subprocess.DEVNULL, check=False)
    if name not in ("config.toml", "policy.yaml"):  # which stop the calls, as any settings that cannot be read
        session(desk)
        (finding,) = desk.findings("not-ours")
        assert str(desk.sub_home / name) in finding["message"]


def test_a_directory_outside_of_the_home_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--events dir:PATH` may name any place that the user has chosen."""
    monkeypatch.setenv("SUB_HOME", str(tmp_path / "home"))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert home.ensure_private_dir(str(shared)) == str(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o777
