"""`sub doctor` as a user types it: each fault is found, and its command mends it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import places
from harness.client_files import ClientHome
from harness.command_line import stored
from harness.ledger import EventMaker
from harness.waiting import wait_for
from subluminal.cli.commands import COMMANDS
from subluminal.doctor import clients, self_test, tools
from subluminal.doctor.ledger import check_ledger

BIN = os.path.dirname(sys.executable)
SUB = os.path.join(BIN, "sub")
TOKEN = "ghp_ThisIsNotARealTokenAtAll0000000000"
POLICY = """\
policy_id: team
version: "3"
mode: guardrails
defaults: {decision_on_error: BLOCK}
selectors: {}
rules: []
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHome:
    for name in [name for name in os.environ if name.startswith("SUB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{BIN}:/usr/bin:/bin")
    monkeypatch.setenv("EDITOR", "true")
    return ClientHome(tmp_path, monkeypatch)


def sub(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SUB, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def examined(*options: str, code: int | None = None) -> dict[str, Any]:
    done = sub("doctor", "--json", *options)
    assert done.returncode == code or code is None, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def finding(report: dict[str, Any], code: str) -> dict[str, Any]:
    found = [each for each in report["findings"] if each["code"] == code]
    assert len(found) == 1, report["findings"]
    return found[0]


def area(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in report["areas"] if each["area"] == name)


def mend(found: dict[str, Any]) -> None:
    """Type the command that was proposed."""
    done = subprocess.run(["sh", "-c", found["mend"]], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def test_on_a_fresh_machine_all_is_well_and_nothing_is_made(home: ClientHome) -> None:
    done = sub("doctor")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("All is well.\n")
    assert "✗" not in done.stdout and "!" not in done.stdout
    assert done.stderr == ""
    assert not home.sub_home.exists()


def test_without_a_terminal_there_is_no_colour(home: ClientHome) -> None:
    assert "\x1b" not in sub("doctor").stdout


def test_a_routed_client_is_well_and_its_version_is_told(home: ClientHome, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    claude = tmp_path / "bin" / "claude"
    claude.write_text("#!/bin/sh\necho '2.1.7 (Claude Code)'\n")
    claude.chmod(0o755)
    home.write("claude", '{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}')
    assert sub("import", "claude").returncode == 0
    report = examined(code=0)
    assert area(report, "claude")["summary"] == "Claude Code 2.1.7: 2 of 2 servers routed"
    assert not report["findings"]


def test_a_client_that_hangs_does_not_hang_the_doctor(
    home: ClientHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    codex = tmp_path / "bin" / "codex"
    codex.write_text("#!/bin/sh\nexec sleep 60\n")
    codex.chmod(0o755)
    monkeypatch.setattr(clients, "_VERSION_TIMEOUT_S", 0.2)
    [found] = clients.check_clients(str(home.project), SUB)
    assert found.facts["version"] == ""
    assert found.summary == "Codex: no servers"


def test_servers_added_since_the_import_are_named_and_imported_by_the_command(home: ClientHome) -> None:
    path = home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}')
    assert sub("import", "claude").returncode == 0
    config = json.loads(path.read_bytes())
    config["mcpServers"]["late"] = {"command": "y"}
    path.write_text(json.dumps(config))
    found = finding(examined(code=0), "unwrapped")
    assert found["level"] == "warning"
    assert "since the import" in found["message"] and "late" in found["message"]
    assert examined("--strict", code=1)["ok"] is False
    mend(found)
    assert not examined("--strict", code=0)["findings"]


def test_a_sub_that_has_gone_is_an_error_and_import_mends_it(home: ClientHome) -> None:
    path = home.write("codex", '[mcp_servers.a]\ncommand = "x"\n')
    assert sub("import", "codex").returncode == 0
    path.write_text(path.read_text().replace(SUB, "/opt/gone/sub"))
    found = finding(examined(code=1), "sub-missing")
    assert "/opt/gone/sub" in found["message"]
    mend(found)
    assert not examined(code=0)["findings"]


def test_a_file_imported_in_another_project_is_looked_at_too(
    home: ClientHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}', "project")
    assert sub("import", "claude", "--scope", "project").returncode == 0
    path.write_text(path.read_text().replace('"sub"', '"/opt/gone/sub"'))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    found = finding(examined(code=1), "sub-missing")
    assert str(path) in found["mend"]
    mend(found)
    assert examined(code=0)["ok"]


def test_an_entry_of_another_installation_is_pointed_out(home: ClientHome, tmp_path: Path) -> None:
    other = tmp_path / "other" / "sub"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}')
    home.imported("claude", sub=str(other))
    mend(finding(examined(code=0), "other-sub"))
    assert not examined(code=0)["findings"]


def test_servers_behind_urls_are_routed_as_others(home: ClientHome) -> None:
    entry = {"type": "http", "url": "https://example.test/mcp?key=abcd1234", "headers": {"X-A": "b"}}
    home.write("claude", json.dumps({"mcpServers": {"h": entry}}))
    assert finding(examined(code=0), "unwrapped")["message"].endswith("not routed: h")
    home.imported("claude", sub=SUB)
    report = examined(code=0)
    assert area(report, "claude")["summary"] == "Claude Code: 1 of 1 server routed"
    assert not report["findings"]


def test_a_server_that_stays_with_its_client_is_named_with_the_reason(home: ClientHome) -> None:
    entry = {"type": "http", "url": "https://example.test/mcp", "headersHelper": "make-headers"}
    home.write("claude", json.dumps({"mcpServers": {"h": entry}}))
    found = finding(examined(code=0), "http")
    assert found["level"] == "note" and 'is not governed: it has "headersHelper"' in found["message"]


@pytest.mark.parametrize("entry", [{}, {"oauth": {"clientId": "x"}}])
def test_a_server_without_credentials_is_named_with_its_login(home: ClientHome, entry: dict[str, Any]) -> None:
    home.write(
        "claude", json.dumps({"mcpServers": {"h": {"type": "http", "url": "https://example.test/mcp", **entry}}})
    )
    home.imported("claude", sub=SUB)
    found = finding(examined(code=0), "http" if entry else "no-login")
    assert found["mend"] == "sub login h --url https://example.test/mcp"


def test_variables_that_a_routed_url_needs_must_be_there(home: ClientHome, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["[mcp_servers.a]", 'url = "https://example.test/mcp"', 'bearer_token_env_var = "A_TOKEN"']
    path = home.write("codex", "\n".join([*lines, 'http_headers = { X-B = "c" }']))
    home.imported("codex", sub=SUB)
    assert "A_TOKEN is not set" in finding(examined(code=0), "variable-missing")["message"]
    assert sub("doctor").stdout.endswith("\n1 warning.\n"), "no command mends that"
    monkeypatch.setenv("A_TOKEN", "t")
    assert not examined(code=0)["findings"]
    path.write_text(path.read_text().replace("env = { SUB_HEADER_X_B", "env = { OTHER"))
    found = finding(examined(code=1), "variable-missing")
    assert "SUB_HEADER_X_B is not set in its entry" in found["message"]


def test_a_repository_that_steers_the_shim_is_an_error(home: ClientHome) -> None:
    entry = {"command": "x", "env": {"SUB_POLICY": "/tmp/lax.yaml"}}
    home.write("claude", json.dumps({"mcpServers": {"a": entry}}), "project")
    for _ in range(2):  # whether or not anybody has tried to import it
        found = finding(examined(code=1), "steering")
        assert "SUB_POLICY" in found["message"] and "lax" not in found["message"]
        assert sub("import", "claude").returncode == 1


def test_a_repository_that_gives_the_shim_options_is_an_error_until_it_is_imported(home: ClientHome) -> None:
    args = ["shim", "--policy", "/tmp/lax.yaml", "--server-name", "a", "--", "x"]
    home.write("claude", json.dumps({"mcpServers": {"a": {"command": "sub", "args": args}}}), "project")
    found = finding(examined(code=1), "steering")
    assert "--policy" in found["message"] and found["mend"] == "sub import claude --scope project"
    left = sub("import", "claude")
    assert left.returncode == 1 and "left       a" in left.stdout
    assert sub("import", "claude", "--scope", "project").returncode == 1
    assert not [finding for finding in examined(code=0)["findings"] if finding["code"] == "steering"]


def test_a_broken_client_file_is_opened_at_its_line(home: ClientHome) -> None:
    path = home.write("codex", 'model = "x"\n[broken\n')
    found = finding(examined(code=1), "unreadable")
    assert found["mend"] == f"true +2 {path}"


def test_a_secret_written_out_is_pointed_out_without_its_value(home: ClientHome) -> None:
    entry = {"command": "x", "env": {"GITHUB_TOKEN": TOKEN}}
    home.write("claude", json.dumps({"mcpServers": {"git hub": entry}}))
    shown = sub("doctor", "--json").stdout + sub("doctor").stdout
    assert TOKEN not in shown
    assert "sub secrets adopt 'git hub' GITHUB_TOKEN" in shown


def test_names_from_a_hostile_file_cannot_drive_the_terminal(home: ClientHome) -> None:
    home.write("claude", json.dumps({"mcpServers": {"a\x1b[2J\nb": {"command": "x"}}}), "project")
    shown = sub("doctor").stdout
    assert "\x1b" not in shown and "\\x1b[2J\\nb" in shown


def test_every_policy_in_force_is_listed_with_how_it_was_found(home: ClientHome) -> None:
    home.sub_home.mkdir(mode=0o700)
    (home.sub_home / "policy.yaml").write_text(POLICY)
    (home.project / ".subluminal").mkdir()
    (home.project / ".subluminal" / "policy.yaml").write_text(POLICY.replace("team", "repo"))
    sources = area(examined(code=0), "policy")["sources"]
    assert [(each["origin"], each["policy_id"], each["mode"]) for each in sources] == [
        ("user", "team", "guardrails"),
        ("repository", "repo", "guardrails"),
    ]


def test_a_policy_that_does_not_load_is_an_error_and_the_others_are_still_shown(home: ClientHome) -> None:
    home.sub_home.mkdir(mode=0o700)
    (home.sub_home / "policy.yaml").write_text("policy_id: [")
    (home.project / ".subluminal").mkdir()
    (home.project / ".subluminal" / "policy.yaml").write_text(POLICY)
    report = examined(code=1)
    found = finding(report, "policy-invalid")
    assert "every tool call is refused" in found["message"]
    assert found["mend"] == f"sub policy lint {home.sub_home / 'policy.yaml'}"
    assert [each["error"] is None for each in area(report, "policy")["sources"]] == [False, True]


def test_a_policy_given_in_the_environment_is_told_as_such(home: ClientHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUB_POLICY_JSON", "{nonsense")
    assert finding(examined(code=1), "policy-invalid")["mend"] == "unset SUB_POLICY_JSON"


def test_locks_of_tools_that_cannot_be_read_are_errors_with_a_sentence_each(home: ClientHome) -> None:
    home.sub_home.mkdir(mode=0o700)
    mine, shared = home.sub_home / "tools.lock", home.project / ".subluminal" / "tools.lock"
    shared.parent.mkdir()
    mine.write_text("{")
    mine.chmod(0o600)
    shared.write_text('{"format": "other", "format_version": 1, "servers": {}}')
    report = examined(code=1)
    found = {each["message"]: each["mend"] for each in report["findings"] if each["code"] == "lock-unreadable"}
    assert [message.startswith((f"{mine} is no lock", f"{shared} is of another format")) for message in found] == [
        True
    ] * 2
    assert all("every tool counts as changed" in message for message in found)
    assert [lock["error"] is None for lock in area(report, "tools")["locks"]] == [False, False]
    for command in found.values():
        assert command.startswith(("mv ", "git checkout"))
    mine.unlink()
    shared.unlink()
    assert area(examined(code=0), "tools")["summary"] == "none seen yet"


def test_a_policy_that_checks_schemas_needs_its_library(home: ClientHome, monkeypatch: pytest.MonkeyPatch) -> None:
    home.sub_home.mkdir(mode=0o700)
    (home.sub_home / "policy.yaml").write_text(POLICY.replace("BLOCK}", "BLOCK, check_schemas: listed}"))
    assert not tools.check_tools(str(home.project)).findings
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    (found,) = tools.check_tools(str(home.project)).findings
    assert (found.code, found.mend) == ("schemas-missing", "pip install jsonschema")


def test_settings_that_cannot_be_read_are_an_error(home: ClientHome) -> None:
    home.sub_home.mkdir(mode=0o700)
    (home.sub_home / "config.toml").write_text("[shim]\nmax_previw_bytes = 1\n")
    found = finding(examined(code=1), "config-invalid")
    assert "max_previw_bytes" in found["message"] and "max_preview_bytes" in found["message"]


def test_a_binding_without_its_secret_is_an_error_until_it_is_added(home: ClientHome) -> None:
    home.sub_home.mkdir(mode=0o700)
    binding = '{ inject_as = "GH", secret_ref = "gh-token", source = "file" }'
    (home.sub_home / "config.toml").write_text(f"[servers.github]\nsecret_bindings = [{binding}]\n")
    report = examined(code=1)
    assert area(report, "secrets")["summary"] == "0 of 1 binding resolved"
    found = finding(report, "secret-unresolved")
    assert found["mend"] == "sub secrets add gh-token --source file"
    added = subprocess.run(["sh", "-c", found["mend"]], input=TOKEN, text=True, capture_output=True)
    assert added.returncode == 0, added.stderr
    report = examined(code=0)
    assert area(report, "secrets")["resolved"] == 1
    assert TOKEN not in json.dumps(report)


@pytest.mark.parametrize(("mode", "level"), [(0o755, "warning"), (0o777, "error")])
def test_a_home_that_is_open_to_others_is_closed_by_the_command(home: ClientHome, mode: int, level: str) -> None:
    home.sub_home.mkdir()
    home.sub_home.chmod(mode)
    found = finding(examined(), "open-to-others")
    assert found["level"] == level
    mend(found)
    assert not examined(code=0)["findings"]


def test_a_home_that_is_a_file_is_an_error(home: ClientHome) -> None:
    home.sub_home.write_text("")
    report = examined()
    assert area(report, "home")["summary"] == f"{home.sub_home} cannot be used"
    mend(finding(report, "home-no-directory"))
    assert examined(code=0)["ok"]


def test_what_is_safe_is_mended_by_fix_and_nothing_else(home: ClientHome) -> None:
    home.sub_home.mkdir()
    home.sub_home.chmod(0o755)
    (home.sub_home / "config.toml").write_text("[shim]\nnonsense = 1\n")
    assert "`sub doctor --fix` mends what is safe" in sub("doctor").stdout
    report = examined("--fix", code=1)
    assert report["fixed"] and all(command.startswith("chmod ") for command in report["fixed"])
    assert {found["code"] for found in report["findings"]} == {"config-invalid"}
    assert home.sub_home.stat().st_mode & 0o777 == 0o700


def test_a_policy_that_does_not_load_is_told_in_its_line(home: ClientHome) -> None:
    home.sub_home.mkdir(mode=0o700)
    (home.sub_home / "policy.yaml").write_text("rules: 5\n")
    assert "so every call is refused" in area(examined(code=1), "policy")["summary"]


def test_runs_that_were_not_checked_are_not_called_intact(home: ClientHome) -> None:
    for name in ("run-1", "run-2", "run-3"):
        maker = EventMaker(name, f"shim-of-{name}")
        stored(home.sub_home, [maker.run_start(), maker.start(), maker.run_end()])
    assert "(2 others not checked: sub verify --all)" in area(examined(code=0), "ledger")["summary"]


def test_the_ledger_is_summed_up_and_its_chain_checked(home: ClientHome) -> None:
    maker = EventMaker("run-1", "shim-1")
    stored(home.sub_home, [maker.run_start(), maker.start(), maker.run_end()])
    report = examined(code=0)
    told = area(report, "ledger")
    assert (told["runs"], told["events"], told["last_run"], told["last_run_intact"]) == (1, 3, "run-1", True)
    assert "chain intact" in told["summary"]


def test_a_changed_record_is_an_error(home: ClientHome) -> None:
    maker = EventMaker("run-1", "shim-1")
    stored(home.sub_home, [maker.run_start(), maker.start(), maker.run_end()])
    with sqlite3.connect(home.sub_home / "ledger.db") as database:
        database.execute("DELETE FROM segments WHERE id = (SELECT min(id) FROM segments)")
    found = finding(examined(code=1), "chain-broken")
    assert found["mend"] == "sub verify run-1"


def test_what_was_checked_of_the_ledger_is_said_and_no_more(home: ClientHome, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = EventMaker("run-1", "shim-1")
    stored(home.sub_home, [maker.run_start(), maker.start(), maker.run_end()])
    told = area(examined(code=0), "ledger")
    assert told["integrity_check"] == "full" and told["conflicts"] == []
    assert "last run: chain intact and rows agree, database: schema and full integrity check" in told["summary"]
    monkeypatch.setattr("subluminal.doctor.ledger.MAX_CHAIN_EVENTS", 2)
    monkeypatch.setattr("subluminal.ledger.trace.database.FULL_BELOW_BYTES", 1)
    seen = check_ledger()
    assert seen.facts["last_run_intact"] is None and seen.facts["integrity_check"] == "quick"
    assert "last run too long to be checked here" in seen.summary and "quick integrity check" in seen.summary
    assert "intact" not in seen.summary


def test_an_index_that_was_changed_is_an_error(home: ClientHome) -> None:
    stored(home.sub_home, [EventMaker("run-1", "shim-1").run_start()])
    with sqlite3.connect(home.sub_home / "ledger.db") as database:
        database.execute("DROP INDEX tool_calls_decision")
    found = finding(examined(code=1), "ledger-changed")
    assert "the index tool_calls_decision is missing" in found["message"] and found["mend"] == "sub verify --all"


def test_a_ledger_that_is_no_database_can_be_moved_away(home: ClientHome) -> None:
    home.sub_home.mkdir(mode=0o700)
    (home.sub_home / "ledger.db").write_bytes(b"this is not a database" * 1000)
    (home.sub_home / "ledger.db").chmod(0o600)
    mend(finding(examined(code=1), "ledger-unreadable"))
    assert examined(code=0)["ok"]


def test_a_daemon_that_does_not_start_is_an_error_while_events_wait(home: ClientHome) -> None:
    spool = home.sub_home / "spool"
    spool.mkdir(parents=True, mode=0o700)
    home.sub_home.chmod(0o700)
    (spool / "shim-1.jsonl").write_bytes(EventMaker("run-1", "shim-1").run_start() + b"\n")
    (home.sub_home / "ledgerd.pid").mkdir()
    assert finding(examined(code=1), "ledgerd-absent")["mend"] == "sub ledgerd --foreground"


def test_lines_that_were_no_events_are_told_with_where_they_lie(home: ClientHome) -> None:
    spool = home.sub_home / "spool"
    spool.mkdir(parents=True, mode=0o700)
    home.sub_home.chmod(0o700)
    (spool / "shim-1.jsonl").write_bytes(EventMaker("run-1", "shim-1").run_start() + b"\nthis is no event\n")
    report = wait_for(
        lambda: next((told for told in [examined()] if "rejected-lines" in str(told["findings"])), None),
        what="the line set aside",
    )
    found = finding(report, "rejected-lines")
    assert "1 line in journals" in found["message"]
    done = subprocess.run(["sh", "-c", found["mend"]], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert "this is no event" in done.stdout


def test_what_a_killed_run_left_behind_is_cleared_by_the_command(home: ClientHome) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    run = home.sub_home / "run"
    run.mkdir(parents=True, mode=0o700)
    home.sub_home.chmod(0o700)
    (run / f"{gone.pid}.json").write_text(json.dumps({"pid": gone.pid, "start": "1", "environ": {}}))
    mend(finding(examined(code=0), "stale-registration"))
    assert not list(run.iterdir())
    assert not examined(code=0)["findings"]


def test_another_program_called_sub_on_the_path_is_pointed_out(home: ClientHome, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "sub")
    assert str(tmp_path / "bin" / "sub") in finding(examined(code=0), "other-sub")["message"]


def test_the_self_test_sends_a_call_and_leaves_nothing_behind(
    home: ClientHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    told = area(examined("--self-test", code=0), "self-test")
    assert told["decision"] == "ALLOW"
    assert 0 <= told["overhead_ms"] < 500 * told["direct_ms"], "of a call, not of a start"
    assert told["gone_ms"] >= 0
    assert not home.sub_home.exists(), "the user's own home is not touched"
    assert not list((tmp_path / "tmp").iterdir())


def test_a_self_test_that_fails_says_so(home: ClientHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "_SERVER", ["false"])
    found = self_test.check_self()
    assert [each.code for each in found.findings] == ["self-test-failed"]


def test_a_socket_that_nobody_answers_does_not_hang_the_doctor(home: ClientHome) -> None:
    home.sub_home.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(home.sub_home / "ledgerd.sock"))
        (home.sub_home / "ledgerd.sock").chmod(0o600)
        deaf.listen()
        report = examined(code=1)
    assert "does not answer" in finding(report, "ledgerd-deaf")["message"]


def test_ctrl_c_ends_it_without_a_traceback(home: ClientHome, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    claude = tmp_path / "bin" / "claude"
    ready = tmp_path / "ready"
    claude.write_text(f"#!/bin/sh\ntouch {ready}\nexec sleep 3\n")
    claude.chmod(0o755)
    process = subprocess.Popen([SUB, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    wait_for(ready.exists, what="the client to be asked")
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGINT)
    assert b"Traceback" not in stderr


def test_the_page_on_troubleshooting_names_only_commands_that_there_are() -> None:
    page = (places.ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`sub ([a-z]+)|^ +sub ([a-z]+)", page, re.MULTILINE))
    words = {first or second for first, second in named}
    assert words and words <= set(COMMANDS)
