"""The templates of `sub policy init` on the real servers that they are for.

First on paper: every tool that a server lists gets the decision that the template's words promise. Then in the flesh:
through a real shim, the real server does what is allowed, and never hears of what is not.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.real_servers import BROWSER, DATABASE, FILESYSTEM, GIT, GITHUB, SERVERS, RealServer, arguments_of
from harness.shim import Shim
from subluminal.contracts.identity import Identity
from subluminal.mcp.tools import ToolNotes
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.edit.template import TEMPLATES, template_files
from subluminal.policy.replay.simulate import Simulation

Args = dict[str, Any]
# Of each tool: arguments that are nothing special, and the actions that they meet under each template (else ALLOW).
ORDINARY: dict[str, dict[str, Args]] = {
    "filesystem": {
        "read_file": {"path": "a.txt"},
        "read_text_file": {"path": "a.txt"},
        "read_media_file": {"path": "a.png"},
        "read_multiple_files": {"paths": ["a.txt", "b.txt"]},
        "write_file": {"path": "a.txt", "content": "x"},
        "edit_file": {"path": "a.txt", "edits": [{"oldText": "x", "newText": "y"}]},
        "create_directory": {"path": "new"},
        "list_directory": {"path": "."},
        "list_directory_with_sizes": {"path": "."},
        "directory_tree": {"path": "."},
        "move_file": {"source": "a.txt", "destination": "b.txt"},
        "search_files": {"path": ".", "pattern": "*.txt"},
        "get_file_info": {"path": "a.txt"},
        "list_allowed_directories": {},
    },
    "git": {
        "git_status": {"repo_path": "."},
        "git_diff_unstaged": {"repo_path": "."},
        "git_diff_staged": {"repo_path": "."},
        "git_diff": {"repo_path": ".", "target": "main"},
        "git_commit": {"repo_path": ".", "message": "x"},
        "git_add": {"repo_path": ".", "files": ["a.txt"]},
        "git_reset": {"repo_path": "."},
        "git_log": {"repo_path": "."},
        "git_create_branch": {"repo_path": ".", "branch_name": "fix", "base_branch": "main"},
        "git_checkout": {"repo_path": ".", "branch_name": "fix"},
        "git_show": {"repo_path": ".", "revision": "HEAD"},
        "git_branch": {"repo_path": ".", "branch_type": "local"},
    },
    "github": {
        "create_or_update_file": {"owner": "a", "repo": "b", "path": "c", "content": "x", "branch": "fix"},
        "search_repositories": {"query": "x"},
        "create_repository": {"name": "x"},
        "get_file_contents": {"owner": "a", "repo": "b", "path": ".github/workflows/ci.yml"},
        "push_files": {"owner": "a", "repo": "b", "branch": "fix", "files": [{"path": "c", "content": "x"}]},
        "create_issue": {"owner": "a", "repo": "b", "title": "x"},
        "create_pull_request": {"owner": "a", "repo": "b", "title": "x", "head": "fix", "base": "main"},
        "fork_repository": {"owner": "a", "repo": "b"},
        "create_branch": {"owner": "a", "repo": "b", "branch": "fix", "from_branch": "main"},
        "list_commits": {"owner": "a", "repo": "b"},
        "list_issues": {"owner": "a", "repo": "b"},
        "update_issue": {"owner": "a", "repo": "b", "issue_number": 1},
        "add_issue_comment": {"owner": "a", "repo": "b", "issue_number": 1, "body": "x"},
        "search_code": {"q": "x"},
        "search_issues": {"q": "x"},
        "search_users": {"q": "x"},
        "get_issue": {"owner": "a", "repo": "b", "issue_number": 1},
        "get_pull_request": {"owner": "a", "repo": "b", "pull_number": 1},
        "list_pull_requests": {"owner": "a", "repo": "b"},
        "create_pull_request_review": {"owner": "a", "repo": "b", "pull_number": 1, "body": "x", "event": "COMMENT"},
        "merge_pull_request": {"owner": "a", "repo": "b", "pull_number": 1},
        "get_pull_request_files": {"owner": "a", "repo": "b", "pull_number": 1},
        "get_pull_request_status": {"owner": "a", "repo": "b", "pull_number": 1},
        "update_pull_request_branch": {"owner": "a", "repo": "b", "pull_number": 1},
        "get_pull_request_comments": {"owner": "a", "repo": "b", "pull_number": 1},
        "get_pull_request_reviews": {"owner": "a", "repo": "b", "pull_number": 1},
    },
    "browser": {
        "browser_close": {},
        "browser_resize": {"width": 800, "height": 600},
        "browser_console_messages": {"level": "error"},
        "browser_handle_dialog": {"accept": True},
        "browser_emulate_media": {"media": "print"},
        "browser_evaluate": {"function": "() => 1"},
        "browser_file_upload": {"paths": ["logo.png"]},
        "browser_drop": {"target": "e1", "paths": ["logo.png"]},
        "browser_find": {"text": "x"},
        "browser_fill_form": {"fields": [{"name": "x", "value": "y"}]},
        "browser_press_key": {"key": "Enter"},
        "browser_type": {"target": "e1", "text": "x"},
        "browser_navigate": {"url": "https://example.com/"},
        "browser_navigate_back": {},
        "browser_network_requests": {"static": False},
        "browser_network_request": {"index": 1},
        "browser_run_code_unsafe": {"code": "1"},
        "browser_take_screenshot": {"type": "png"},
        "browser_snapshot": {},
        "browser_click": {"target": "e1"},
        "browser_drag": {"startTarget": "e1", "endTarget": "e2"},
        "browser_hover": {"target": "e1"},
        "browser_select_option": {"target": "e1", "values": ["x"]},
        "browser_tabs": {"action": "list"},
        "browser_wait_for": {"time": 1},
    },
    "database": {
        "read_query": {"query": "SELECT * FROM users"},
        "write_query": {"query": "INSERT INTO users VALUES (1)"},
        "create_table": {"query": "CREATE TABLE users (id)"},
        "list_tables": {},
        "describe_table": {"table_name": "users"},
        "append_insight": {"insight": "x"},
    },
}
# The tools whose ordinary call a template refuses.
REFUSED: dict[tuple[str, str], set[str]] = {
    ("readonly", "filesystem"): {"write_file", "edit_file", "create_directory", "move_file"},
    ("readonly", "git"): {"git_commit", "git_add", "git_reset", "git_create_branch", "git_checkout"},
    ("readonly", "github"): {
        *("create_or_update_file", "create_repository", "push_files", "create_issue", "create_pull_request"),
        *("fork_repository", "create_branch", "update_issue", "add_issue_comment", "create_pull_request_review"),
        *("merge_pull_request", "update_pull_request_branch"),
    },
    # It drives a browser: nearly everything does something, and what only looks is not told by its name.
    ("readonly", "browser"): set(ORDINARY["browser"]) - {"browser_find"},
    ("readonly", "database"): {"write_query", "create_table", "append_insight"},
    ("git", "git"): {"git_reset"},
    ("github", "github"): {"create_repository", "fork_repository", "merge_pull_request"},
    ("browser", "browser"): {"browser_evaluate", "browser_run_code_unsafe"},
    ("ci", "github"): {"push_files", "merge_pull_request"},
    ("ci", "browser"): {"browser_file_upload"},
}
# What the words of a template forbid beside that: the server, the tool, and arguments that are not ordinary.
FORBIDDEN: dict[str, list[tuple[str, str, Args]]] = {
    "starter": [
        ("database", "write_query", {"query": "DROP TABLE users"}),
        ("database", "write_query", {"query": ["select 1", "drop table users"]}),
    ],
    "readonly": [],
    "filesystem": [
        ("filesystem", "write_file", {"path": "../a.txt"}),
        ("filesystem", "write_file", {"path": "elsewhere/a.txt"}),
        ("filesystem", "edit_file", {"path": "/etc/hosts"}),
        ("filesystem", "create_directory", {"path": "src/../../new"}),
        ("filesystem", "move_file", {"source": "a.txt", "destination": "../a.txt"}),
        ("filesystem", "move_file", {"source": "/etc/hosts", "destination": "a.txt"}),
        ("filesystem", "read_text_file", {"path": "~/.ssh/id_rsa"}),
        ("filesystem", "read_multiple_files", {"paths": ["a.txt", "~/.aws/credentials"]}),
        ("filesystem", "read_file", {"path": "config/.env"}),
        ("filesystem", "list_directory", {"path": "~/.ssh"}),
        ("filesystem", "write_file", {"path": ".subluminal/policy.yaml"}),
        ("filesystem", "move_file", {"source": "a", "destination": ".git/hooks/pre-commit"}),
    ],
    "git": [
        ("git", "git_checkout", {"repo_path": ".", "branch_name": "main"}),
        ("git", "git_checkout", {"repo_path": ".", "branch_name": "--orphan"}),
        ("git", "git_status", {"repo_path": "elsewhere"}),
        ("git", "git_diff", {"repo_path": ".", "target": "--output=a.txt"}),
        ("git", "git_add", {"repo_path": ".", "files": ["--all"]}),
    ],
    "github": [
        ("github", "push_files", {"branch": "main", "files": []}),
        ("github", "create_or_update_file", {"path": "a"}),
        ("github", "push_files", {"branch": "fix", "files": [{"path": ".github/workflows/x.yml"}]}),
        ("github", "create_pull_request_review", {"event": "APPROVE"}),
    ],
    "browser": [
        ("browser", "browser_navigate", {"url": "http://169.254.169.254/"}),
        ("browser", "browser_navigate", {"url": "http://127.1:9222/json"}),
        ("browser", "browser_navigate", {"url": "FILE:///etc/passwd"}),
        ("browser", "browser_tabs", {"action": "new", "url": "http://user@10.0.0.1"}),
        ("browser", "browser_file_upload", {"paths": ["elsewhere/a"]}),
        ("browser", "browser_drop", {"target": "e1", "paths": ["logo.png", "/etc/passwd"]}),
    ],
    "database": [
        ("database", "write_query", {"query": "drop table users"}),
        ("database", "read_query", {"query": "PRAGMA table_info(users)"}),
        ("database", "write_query", {"query": "DELETE\nFROM users"}),
        ("database", "write_query", {"query": "DELETE FROM users", "sql": "WHERE"}),
        ("database", "write_query", {"query": "insert into a values (1); delete from a where 1"}),
    ],
    # What they are for, the clients' own tools, is in tests/language.
    "shell": [],
    "coding": [
        ("filesystem", "read_file", {"path": "config/.env"}),
        ("filesystem", "read_multiple_files", {"paths": ["a.txt", "~/.aws/credentials"]}),
    ],
    "ci": [
        ("filesystem", "write_file", {"path": "../a.txt"}),
        ("filesystem", "edit_file", {"path": ".github/workflows/ci.yml"}),
        ("filesystem", "move_file", {"source": "a", "destination": "elsewhere/a"}),
        ("browser", "browser_navigate", {"url": "http://192.168.0.1/"}),
    ],
}
PAIRS = [(template, server) for template in TEMPLATES for server in SERVERS]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the agent was started; `elsewhere` leads out of it."""
    place = tmp_path / "repository"
    for name in (".git", "src", ".github/workflows"):
        (place / name).mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (place / "elsewhere").symlink_to(tmp_path / "other")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(place)
    return place


def decide(template: str, server: RealServer, tool: str, args: Args) -> str:
    """The action of a fresh run, with the classes that the server's own annotations give."""
    source = template_files(template, "policy.yaml")["policy.yaml"]
    notes = ToolNotes()
    notes.learn(server.recorded())
    env = "ci" if template == "ci" else "dev"
    simulation = Simulation(compile_bundle(source, "policy.yaml"), Identity("run", env=env))
    raw = json.dumps(args).encode()
    verdict, _ = simulation.call(server.name, tool, raw, 0, notes.risk_classes[tool])
    return verdict.decision.action


@pytest.mark.parametrize("server", SERVERS.values(), ids=lambda server: server.name)
def test_every_tool_of_the_list_is_promised_a_decision(server: RealServer) -> None:
    assert list(ORDINARY[server.name]) == [tool["name"] for tool in server.recorded()["tools"]]
    for tool in server.recorded()["tools"]:
        assert set(ORDINARY[server.name][tool["name"]]) <= set(tool["inputSchema"].get("properties", {}))


@pytest.mark.parametrize(("template", "server"), PAIRS)
def test_a_template_decides_on_every_tool_as_its_words_promise(template: str, server: str, repository: Path) -> None:
    refused = {
        tool for tool, args in ORDINARY[server].items() if decide(template, SERVERS[server], tool, args) != "ALLOW"
    }
    assert refused == REFUSED.get((template, server), set())


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_refuses_what_its_words_forbid(template: str, repository: Path) -> None:
    passed = [call for call in FORBIDDEN[template] if decide(template, SERVERS[call[0]], call[1], call[2]) == "ALLOW"]
    assert passed == []


@pytest.mark.parametrize("server", SERVERS.values(), ids=lambda server: server.name)
def test_the_list_is_what_the_server_says(server: RealServer, tmp_path: Path) -> None:
    if server.missing:
        pytest.skip(server.missing)
    recorded = server.recorded()
    assert (recorded["package"], recorded["version"]) == (server.package, server.version)
    assert recorded["tools"] == server.tools(*arguments_of(server, tmp_path), cwd=tmp_path)


# -- through a real shim ----------------------------------------------------------------------------------------------


def started(template: str, server: RealServer, place: Path, *arguments: object, **env: str) -> Shim:
    """A shim in `place` under the template, as `sub policy init` writes it there."""
    if server.missing:
        pytest.skip(server.missing)
    target = place / ".subluminal" / "policy.yaml"
    target.parent.mkdir(exist_ok=True)
    for path, content in template_files(template, str(target)).items():
        Path(path).write_bytes(content)
    command = server.command(*(arguments or arguments_of(server, place)))
    return Shim(place, server.name, command, env=env)


def results(shim: Shim, *calls: tuple[str, Args]) -> list[tuple[bool, str]]:
    """Whether each call was answered by the server without an error, and the text of the answer."""
    with shim.start() as agent:
        agent.initialize()
        agent.request("tools/list")
        replies = [agent.call(tool, args) for tool, args in calls]
        agent.finish()
    shim.events.wait_type("run_end")
    return [
        ("result" in reply and not reply["result"].get("isError"), json.dumps(reply.get("result") or reply["error"]))
        for reply in replies
    ]


def test_filesystem_writes_here_and_nowhere_else(repository: Path) -> None:
    outside = repository.parent / "other"
    secret = repository / ".env"
    secret.write_text("KEY=hunter2")
    shim = started("filesystem", FILESYSTEM, repository, repository, outside)
    written, refused, linked, read = results(
        shim,
        ("write_file", {"path": str(repository / "a.txt"), "content": "x"}),
        ("write_file", {"path": str(outside / "a.txt"), "content": "x"}),
        ("write_file", {"path": str(repository / "elsewhere" / "b.txt"), "content": "x"}),
        ("read_multiple_files", {"paths": [str(repository / "a.txt"), str(secret)]}),
    )
    assert written[0] and (repository / "a.txt").read_text() == "x"
    assert not refused[0] and "OUTSIDE" in refused[1]
    assert not linked[0] and "OUTSIDE" in linked[1]
    assert list(outside.iterdir()) == []
    assert not read[0] and "SECRET" in read[1] and "hunter2" not in read[1]


def test_the_server_itself_would_have_written_there(repository: Path) -> None:
    """Else the test above could not fail."""
    outside = repository.parent / "other"
    shim = started("starter", FILESYSTEM, repository, repository, outside)
    (written,) = results(shim, ("write_file", {"path": str(outside / "a.txt"), "content": "x"}))
    assert written[0] and (outside / "a.txt").read_text() == "x"


def test_a_first_large_write_passes_under_the_starter(repository: Path) -> None:
    content = "x" * 1_200_000
    shim = started("starter", FILESYSTEM, repository)
    (written,) = results(shim, ("write_file", {"path": str(repository / "large.txt"), "content": content}))
    assert written[0], written[1][:500]
    assert (repository / "large.txt").read_text() == content


def test_readonly_reads(repository: Path) -> None:
    (repository / "a.txt").write_text("hello")
    read, refused = results(
        started("readonly", FILESYSTEM, repository),
        ("read_text_file", {"path": str(repository / "a.txt")}),
        ("edit_file", {"path": str(repository / "a.txt"), "edits": [{"oldText": "hello", "newText": "bye"}]}),
    )
    assert read[0] and "hello" in read[1]
    assert not refused[0] and "READ_ONLY" in refused[1]
    assert (repository / "a.txt").read_text() == "hello"


def git(place: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    place = tmp_path / "committed"
    place.mkdir()
    (place / "a.txt").write_text("one\n")
    for words in (["init", "-q"], ["add", "a.txt"], ["commit", "-qm", "first"], ["checkout", "-qb", "fix"]):
        git(place, *words)
    (place / "a.txt").write_text("two\n")
    git(place, "add", "a.txt")
    return place


def test_git_looks_and_loses_nothing(committed: Path) -> None:
    status, reset, checkout, option = results(
        started("git", GIT, committed, "--repository", committed),
        ("git_status", {"repo_path": str(committed)}),
        ("git_reset", {"repo_path": str(committed)}),
        ("git_checkout", {"repo_path": str(committed), "branch_name": "main"}),
        ("git_diff", {"repo_path": str(committed), "target": f"--output={committed}/x"}),
    )
    assert status[0] and "a.txt" in status[1]
    assert not reset[0] and "no-loss" in reset[1]
    assert git(committed, "diff", "--cached", "--name-only") == "a.txt\n"
    assert not checkout[0] and git(committed, "branch", "--show-current") == "fix\n"
    assert not option[0] and "OPTION" in option[1]


def test_ci_changes_the_checkout_only(committed: Path) -> None:
    shim = started("ci", FILESYSTEM, committed, committed, committed.parent, CI="true")
    written, refused, workflow = results(
        shim,
        ("write_file", {"path": str(committed / "b.txt"), "content": "x"}),
        ("write_file", {"path": str(committed.parent / "b.txt"), "content": "x"}),
        ("create_directory", {"path": str(committed / ".github" / "workflows")}),
    )
    assert written[0] and (committed / "b.txt").exists()
    assert not refused[0] and not (committed.parent / "b.txt").exists()
    assert not workflow[0] and not (committed / ".github").exists()


def test_database_keeps_its_tables(repository: Path) -> None:
    made, written, dropped, emptied, read = results(
        started("database", DATABASE, repository),
        ("create_table", {"query": "CREATE TABLE users (name TEXT)"}),
        ("write_query", {"query": "INSERT INTO users VALUES ('ann')"}),
        ("write_query", {"query": "DROP TABLE users"}),
        ("write_query", {"query": "DELETE FROM users"}),
        ("read_query", {"query": "SELECT name FROM users"}),
    )
    assert made[0] and written[0]
    assert not dropped[0] and "SCHEMA_CHANGE" in dropped[1]
    assert not emptied[0] and "WHERE" in emptied[1]
    assert read[0] and "ann" in read[1]


def test_browser_refuses_before_a_browser_is_needed(repository: Path) -> None:
    """What is allowed reaches the server, which may have no browser here; what is refused does not."""
    shim = started("browser", BROWSER, repository)
    inside, code, tabs = results(
        shim,
        ("browser_navigate", {"url": "http://169.254.169.254/latest/meta-data/"}),
        ("browser_evaluate", {"function": "() => 1"}),
        ("browser_tabs", {"action": "list"}),
    )
    assert not inside[0] and "PRIVATE_NETWORK" in inside[1]
    assert not code[0] and "no-code" in code[1]
    assert "no-code" not in tabs[1] and "PRIVATE_NETWORK" not in tabs[1]
    decisions = [event["decision"]["action"] for event in shim.events.events_of("tool_call_decision")]
    assert decisions == ["BLOCK", "REJECT_WITH_HINT", "ALLOW"]


def test_github_merges_nothing(repository: Path) -> None:
    shim = started("github", GITHUB, repository)
    merge, main = results(
        shim,
        ("merge_pull_request", {"owner": "a", "repo": "b", "pull_number": 1}),
        ("push_files", {"owner": "a", "repo": "b", "branch": "main", "files": [], "message": "x"}),
    )
    assert not merge[0] and "PEOPLE_DECIDE" in merge[1]
    assert not main[0] and "PROTECTED_BRANCH" in main[1]
