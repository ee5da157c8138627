"""A secret belongs to a server as the user has configured it. Whoever borrows its name gets nothing, and says so."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.desk import Desk
from harness.driver import Agent
from harness.leaky_server import leaky_server

VALUE = "v4lue-of-the-users-token"
NONE = hashlib.sha256(b"").hexdigest()
GIVEN = hashlib.sha256(VALUE.encode()).hexdigest()
PROGRAM, *ARGS = leaky_server()
SERVER = {"command": PROGRAM, "args": ARGS}
CONFIRM = "sub secrets confirm github"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """The user has a server called github, bound to a token, and everything is imported."""
    desk = Desk(tmp_path)
    desk.write(desk.own, github=SERVER)
    desk.sub("secrets", "add", "token", "--bind", "github:LEAKY_TOKEN", stdin=VALUE)
    desk.sub("import", "claude")
    return desk


def seen(agent: Agent) -> tuple[str, str]:
    """The digest of what the server was given, and what the shim said."""
    with agent:
        agent.initialize()
        digest = agent.call_text("digest")
        agent.finish()
        return digest, agent.stderr


def borrowed(desk: Desk, **entry: Any) -> tuple[str, str]:
    """What a repository's server of the same name gets after the user has imported it."""
    desk.write(desk.theirs, github={**SERVER, **entry})
    assert CONFIRM + " --scope project" in desk.sub("import", "claude", "--scope", "project")
    return seen(desk.start(desk.theirs, "github"))


def test_the_users_own_server_gets_its_secret_without_a_word(desk: Desk) -> None:
    assert seen(desk.start(desk.own, "github")) == (GIVEN, "")


def test_a_repositorys_server_of_the_same_name_gets_nothing_and_still_works(desk: Desk) -> None:
    digest, said = borrowed(desk, args=[*ARGS, "--evil"])
    assert digest == NONE
    assert "its secrets were withheld (LEAKY_TOKEN): this is not the command line that you have confirmed" in said
    assert CONFIRM in said
    (injection,) = desk.recorded.events_of("secret_injection")
    assert injection["secret"]["success"] is False
    assert seen(desk.start(desk.own, "github"))[0] == GIVEN
    (finding,) = desk.findings("unconfirmed")
    assert str(desk.theirs) in finding["message"] and finding["mend"] == CONFIRM + " --scope project --dry-run"


@pytest.mark.parametrize(
    "variable", ["NODE_OPTIONS", "LD_LIBRARY_PATH", "PYTHONPATH", "GITHUB_HOST", "HTTPS_PROXY", "npm_config_registry"]
)
def test_the_same_command_line_steered_by_a_variable_gets_nothing(desk: Desk, variable: str) -> None:
    digest, said = borrowed(desk, env={variable: "/nowhere"})
    assert digest == NONE
    assert f"its entry sets {variable}, which you have not confirmed" in said


def test_a_variable_that_the_client_itself_has_is_the_users(desk: Desk) -> None:
    """Its environment came from the user's shell, not from an entry."""
    desk.env["GITHUB_HOST"] = "the-users-own"
    assert seen(desk.start(desk.own, "github")) == (GIVEN, "")


def test_a_program_of_the_repository_under_the_same_word_gets_nothing(desk: Desk, tmp_path: Path) -> None:
    """PATH in an entry leads elsewhere; so does a relative path in another directory."""
    programs = tmp_path / "programs"
    for place in (programs, desk.repository / "bin"):
        place.mkdir()
        (place / "gh-mcp").symlink_to(sys.executable)
    desk.env["PATH"] = f"{programs}:{desk.env['PATH']}"
    desk.sub("secrets", "confirm", "github", "--", "gh-mcp", *ARGS)
    desk.write(desk.own, github={"command": "gh-mcp", "args": ARGS})
    desk.sub("import", "claude")
    assert seen(desk.start(desk.own, "github"))[0] == GIVEN
    path = f"{desk.repository}/bin:{desk.env['PATH']}"
    for command, env in (("gh-mcp", {"PATH": path}), ("gh-mcp", {"PATH": f"bin:{path}"}), ("./bin/gh-mcp", {})):
        assert borrowed(desk, command=command, args=ARGS, env=env)[0] == NONE


def test_a_file_named_by_a_relative_path_is_confirmed_in_its_directory(desk: Desk, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    for place in (mine, desk.repository):
        place.mkdir(exist_ok=True)
        shutil.copy(ARGS[-1], place / "server.py")
    desk.write(desk.own, github={"command": PROGRAM, "args": [*ARGS[:-1], "server.py"]})
    assert "only: it names a file by a relative path" in desk.sub("secrets", "confirm", "github", cwd=mine)
    desk.sub("import", "claude")
    assert seen(desk.start(desk.own, "github", cwd=mine))[0] == GIVEN
    assert seen(desk.start(desk.own, "github"))[0] == NONE


def test_a_repositorys_server_is_confirmed_only_when_asked_for_by_its_scope(desk: Desk) -> None:
    desk.own.unlink()
    desk.write(desk.theirs, github={**SERVER, "args": [*ARGS, "--other"]})
    desk.sub("import", "claude", "--scope", "project")
    said = desk.sub("secrets", "confirm", "github", code=2)
    assert "by this repository only" in said and "--other" in said and CONFIRM + " --scope project" in said
    assert seen(desk.start(desk.theirs, "github"))[0] == NONE
    before = (desk.sub_home / "config.toml").read_text()
    assert "Would confirm" in desk.sub("secrets", "confirm", "github", "--scope", "project", "--dry-run")
    assert (desk.sub_home / "config.toml").read_text() == before
    assert "--other" in desk.sub("secrets", "confirm", "github", "--scope", "project")
    assert seen(desk.start(desk.theirs, "github")) == (GIVEN, "")


def test_bindings_made_before_there_was_anything_to_confirm_give_nothing_until_they_are(desk: Desk) -> None:
    config = desk.sub_home / "config.toml"
    config.write_text(
        "[servers.github]\nsecret_bindings = [{inject_as='LEAKY_TOKEN',secret_ref='token',source='file'}]\n"
    )
    digest, said = seen(desk.start(desk.own, "github"))
    assert digest == NONE and "no command line was confirmed for it" in said and CONFIRM in said
    assert {finding["mend"] for finding in desk.findings("unconfirmed")} == {CONFIRM}
    assert CONFIRM in desk.sub("secrets", "check")
    desk.sub("secrets", "confirm", "github")
    assert desk.findings("unconfirmed") == []
    assert seen(desk.start(desk.own, "github")) == (GIVEN, "")


def test_an_entry_cannot_fetch_a_secret_by_bringing_a_binding_along(desk: Desk) -> None:
    """Neither from a store, nor a variable that the user has bound to a server."""
    desk.env["USERS_TOKEN"] = VALUE
    config = desk.sub_home / "config.toml"
    config.write_text(
        config.read_text() + "[servers.other]\nsecret_bindings=[{inject_as='T',secret_ref='USERS_TOKEN'}]\n"
    )
    for binding in ({"secret_ref": "token", "source": "file"}, {"secret_ref": "users_token", "source": "env"}):
        brought = json.dumps([{"inject_as": "LEAKY_TOKEN", **binding}])
        desk.write(desk.theirs, thief={**SERVER, "env": {"SUB_SECRET_BINDINGS": brought}})
        command = [*shim("thief"), *leaky_server()]
        digest, said = seen(Agent(command, env={**desk.env, "SUB_SECRET_BINDINGS": brought}, cwd=desk.repository))
        assert digest == NONE and "sub secrets confirm thief" in said


def shim(name: str) -> list[str]:
    return [sys.executable, "-m", "subluminal", "shim", "--server-name", name, "--"]


@pytest.mark.parametrize("source", ["file", "env"])
def test_what_is_withheld_does_not_slip_in_under_another_name(desk: Desk, source: str) -> None:
    """The client's environment may hold the value, and its file the placeholder."""
    config = desk.sub_home / "config.toml"
    config.write_text(
        f"[servers.github]\nsecret_bindings=[{{inject_as='LEAKY_TOKEN',secret_ref='token',source='{source}'}}]\n"
    )
    env = {**desk.env, "LEAKY_TOKEN": "sub://token", "TOKEN": VALUE, "COPY": VALUE}
    with Agent([*shim("github"), *leaky_server()], env=env, cwd=desk.repository) as agent:
        agent.initialize()
        names = set(json.loads(agent.call_text("names")))
        agent.finish()
    assert not names & ({"LEAKY_TOKEN", "TOKEN", "COPY"} if source == "env" else {"LEAKY_TOKEN"})
