"""What an import does to single entries, and what it says about them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.client_files import SUB, ClientHome, entries
from harness.effort import calls_made, growth, growth_of_calls
from subluminal.adapters.stdio.options import parse
from subluminal.clients import importing, routed
from subluminal.clients.importing import Choice
from subluminal.clients.literals import looks_secret
from subluminal.clients.registry import CLIENTS
from subluminal.contracts.errors import UsageError
from subluminal.host.secrets.bindings import CONTROL_VARIABLES

TOKEN = "ghp_ThisIsNotARealTokenAtAll0000000000"


def servers(path: Path) -> Any:
    return json.loads(path.read_bytes())["mcpServers"]


def test_a_stdio_entry_is_started_by_the_shim_with_its_own_command_behind(home: ClientHome) -> None:
    path = home.write("claude", '{"mcpServers": {"gh": {"command": "npx", "args": ["-y", "gh"], "env": {"A": "1"}}}}')
    home.imported("claude")
    args = ["shim", "--server-name", "gh", "--client", "claude", "--", "npx", "-y", "gh"]
    assert servers(path) == {"gh": {"command": SUB, "args": args, "env": {"A": "1"}}}


@pytest.mark.parametrize(
    ("client", "word"),
    [("claude", "claude"), ("claude-desktop", "claude"), ("gemini", "custom"), ("cursor", "custom")],
)
def test_the_client_is_named_in_the_words_of_the_contract(home: ClientHome, client: str, word: str) -> None:
    path = home.write(client, '{"mcpServers": {"a": {"command": "x"}}}')
    home.imported(client)
    assert servers(path)["a"]["args"][3:5] == ["--client", word]


@pytest.mark.parametrize("name", ["-x", "--", "--client", "a b", "a=b", "é", "😀", '"', "\\", "\n", "x" * 500])
def test_odd_names_reach_the_shim_unchanged(home: ClientHome, name: str) -> None:
    path = home.write("claude", json.dumps({"mcpServers": {name: {"command": "x", "args": ["--", "y"]}}}))
    home.imported("claude")
    options = parse(servers(path)[name]["args"][1:])
    assert (options.server_name, options.client, options.command) == (name, "claude", ["x", "--", "y"])
    assert home.imported("claude").status == "unchanged"


@pytest.mark.parametrize("name", ["nul\\u0000", "half\\ud800", ""])
def test_a_name_no_process_can_be_given_is_skipped(home: ClientHome, name: str) -> None:
    data = '{"mcpServers": {"NAME": {"command": "x"}}}'.replace("NAME", name)
    path = home.write("claude", data)
    (server,) = home.imported("claude").servers
    assert server.status == "skipped"
    assert path.read_text() == data


def test_a_hostile_entry_cannot_pass_as_another_server(home: ClientHome) -> None:
    """A repository may come with an entry that pretends to be routed already, under a harmless name."""
    args = ["shim", "--server-name", "harmless", "--client", "claude", "--", "evil"]
    path = home.write("claude", json.dumps({"mcpServers": {"fs": {"command": "/tmp/x/sub", "args": args}}}), "project")
    (server,) = home.imported("claude", "project").servers
    assert server.status == "updated"
    assert servers(path)["fs"]["command"] == SUB
    assert servers(path)["fs"]["args"][1:3] == ["--server-name", "fs"]


@pytest.mark.parametrize(
    "args",
    [
        ["shim", "--server-name", "fs", "--server-name", "harmless", "--", "evil"],
        ["shim", "--policy", "--", "--server-name", "harmless", "--", "evil"],
        ["shim", "--server-name=fs", "--events", "--server-name=fs", "--server-name=harmless", "--", "evil"],
        ["shim", "--", "evil"],
    ],
)
def test_after_an_import_the_shim_reads_the_name_the_client_knows(home: ClientHome, args: list[str]) -> None:
    path = home.write("claude", json.dumps({"mcpServers": {"fs": {"command": SUB, "args": args}}}), "project")
    assert home.imported("claude", "project").servers[0].status in ("updated", "corrected")
    options = parse(servers(path)["fs"]["args"][1:])
    assert (options.server_name, options.command) == ("fs", ["evil"])
    assert (options.policy, options.events) == (None, None)


def test_an_entry_with_both_a_command_and_an_address_is_routed(home: ClientHome) -> None:
    """Some clients go by `type`, some by the presence of `command`: claiming to be http is no way around the shim."""
    path = home.write("cursor", '{"mcpServers": {"a": {"type": "http", "url": "https://e.test", "command": "evil"}}}')
    (server,) = home.imported("cursor").servers
    assert server.status == "wrapped" and servers(path)["a"]["command"] == SUB


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("variable", ["SUB_POLICY", "SUB_HOME", "SUB_EVENTS", "SUB_TITLE", "PYTHONPATH", "LD_PRELOAD"])
def test_variables_that_would_steer_the_shim_are_pointed_out(home: ClientHome, variable: str, scope: str) -> None:
    home.write("claude", json.dumps({"mcpServers": {"a": {"command": "x", "env": {variable: "/tmp/evil"}}}}), scope)
    report = home.imported("claude", scope)
    said = [*report.warnings, *(f"{server.name} {server.detail}" for server in report.servers)]
    assert any(f"a sets {variable}" in sentence for sentence in said)


@pytest.mark.parametrize("name", ["builtin", "provider"])
def test_a_server_under_a_name_that_is_reserved_is_pointed_out(home: ClientHome, name: str) -> None:
    home.write("claude", json.dumps({"mcpServers": {name: {"command": "x"}, "other": {"command": "y"}}}))
    report = home.imported("claude")
    assert [warning for warning in report.warnings if f"a server is named {name}" in warning] == report.warnings != []
    assert [server.status for server in report.servers] == ["wrapped", "wrapped"]


CONTROLS = sorted([*CONTROL_VARIABLES, "SUB_SECRET_BINDINGS", "SUB_SECRET_TOKEN"])


@pytest.mark.parametrize("command", [("x", []), (SUB, ["shim", "--server-name", "a", "--", "x"])])
@pytest.mark.parametrize("variable", CONTROLS)
def test_a_repository_that_sets_our_own_variables_is_refused(
    home: ClientHome, variable: str, command: tuple[str, list[str]]
) -> None:
    entry = {"command": command[0], "args": command[1], "env": {variable: "x"}}
    path = home.write("claude", json.dumps({"mcpServers": {"a": entry, "b": {"command": "y"}}}), "project")
    refused, routed = home.imported("claude", "project").servers
    assert refused.status == "skipped" and variable in (refused.detail or "")
    assert servers(path)["a"] == entry
    assert routed.status == "wrapped", "the rest of the file is not held up"


def test_a_variable_of_ours_cannot_hide_behind_a_second_table_of_variables(home: ClientHome) -> None:
    text = '{"mcpServers": {"a": {"command": "x", "env": {"SUB_POLICY": "weak"}, "env": {}}}}'
    home.write("claude", text, "project")
    assert home.imported("claude", "project").servers[0].status == "skipped"


@pytest.mark.parametrize(
    ("client", "table"),
    [("claude", "mcpServers"), ("cursor", "mcpServers"), ("gemini", "mcpServers"), ("vscode", "servers"),
     ("zed", "context_servers")],
)  # fmt: skip
@pytest.mark.parametrize(
    "options",
    [
        ["--policy", "./weak.yaml"], ["--policy=./weak.yaml"], ["--events", "none"], ["--events=none"],
        ["--client", "headless"], ["--client=headless"], ["--policy", "a", "--events", "none", "--client", "headless"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_a_repositorys_own_options_of_the_shim_are_taken_out(
    home: ClientHome, client: str, table: str, options: list[str], first: bool
) -> None:
    name = ["--server-name", "fs"]
    args = ["shim", *(options + name if first else name + options), "--", "x", "--policy", "mine"]
    path = home.write(client, json.dumps({table: {"fs": {"command": SUB, "args": args}}}, indent=2), "project")
    (server,) = home.imported(client, "project").servers
    assert server.status == "corrected" and options[0].partition("=")[0] in (server.detail or "")
    entry = json.loads(path.read_text())[table]["fs"]
    options_now = parse(entry["args"][1:])
    assert (options_now.policy, options_now.events, options_now.client) == (None, None, CLIENTS[client].word)
    assert (options_now.server_name, options_now.command) == ("fs", ["x", "--policy", "mine"])
    assert home.imported(client, "project").servers[0].status == "already"
    home.restored(client, "project")
    assert json.loads(path.read_text())[table]["fs"]["args"] == args, "a restore brings back what was there"


def test_codex_and_opencode_are_corrected_in_their_own_ways(home: ClientHome) -> None:
    words = [SUB, "shim", "--policy", "weak", "--server-name", "fs", "--", "x"]
    toml = f"[mcp_servers.fs]\ncommand = {words[0]!r}\nargs = {words[1:]!r}\n"
    path = home.write("codex", toml, "project")
    assert home.imported("codex", "project").servers[0].status == "corrected"
    assert parse(tomllib.loads(path.read_text())["mcp_servers"]["fs"]["args"][1:]).policy is None
    path = home.write("opencode", json.dumps({"mcp": {"fs": {"type": "local", "command": words}}}), "project")
    assert home.imported("opencode", "project").servers[0].status == "corrected"
    assert parse(json.loads(path.read_text())["mcp"]["fs"]["command"][2:]).policy is None


@pytest.mark.parametrize(
    "words",
    [
        ["env", "SUB_POLICY=weak", SUB, "shim", "--server-name", "fs", "--", "x"],
        ["sh", "-c", f"SUB_HOME=. {SUB} shim --server-name fs --policy weak -- x"],
        ["./sub", "shim", "anything"],
        ["./sub", "shim"],
    ],
)
def test_a_repositorys_entry_that_only_looks_routed_is_routed(home: ClientHome, words: list[str]) -> None:
    entry = {"command": words[0], "args": words[1:]}
    path = home.write("claude", json.dumps({"mcpServers": {"fs": entry}}), "project")
    assert home.imported("claude", "project").servers[0].status == "wrapped"
    options = parse(servers(path)["fs"]["args"][1:])
    assert (servers(path)["fs"]["command"], options.command, options.policy) == (SUB, words, None)


def test_a_value_made_to_stall_the_search_for_secrets_does_not(home: ClientHome) -> None:
    def look(size: int) -> None:
        home.write("claude", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"A": "a" * size}}}}))
        assert home.imported("claude", dry_run=True).status == "changed"

    assert growth(look, 200_000, 2_000_000, limit=3) < 3


def many(count: int) -> str:
    return json.dumps({"mcpServers": {f"s{n}": {"command": "x", "env": {"A": "b"}} for n in range(count)}}, indent=1)


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_import_costs_as_much_for_each_of_many_servers_as_for_each_of_few(home: ClientHome, dry_run: bool) -> None:
    def work(count: int) -> None:
        home.write("claude", many(count))
        assert home.imported("claude", dry_run=dry_run).count("wrapped") == count

    assert growth_of_calls(work, 1_100, 4_400) < 1.2
    assert growth(work, 1_100, 4_400, limit=2) < 2


@pytest.mark.parametrize("count", [importing.MAX_SERVERS + 1, 200_000])
def test_more_servers_than_any_client_starts_are_refused_with_a_sentence(home: ClientHome, count: int) -> None:
    text = many(count)
    path = home.write("claude", text, "project")
    report = home.imported("claude", "project")
    assert report.status == "refused" and "holds more than 10000 servers" in (report.error or "")
    assert path.read_text() == text
    if count > importing.MAX_COMMAND_WORDS:
        assert calls_made(lambda: home.imported("claude", "project")) < 1_000, "it is not even read"


def test_options_that_came_with_a_routed_entry_are_pointed_out(home: ClientHome) -> None:
    args = ["shim", "--policy", "/tmp/lax.yaml", "--server-name", "fs", "--", "x"]
    home.write("claude", json.dumps({"mcpServers": {"fs": {"command": SUB, "args": args}}}))
    (server,) = home.imported("claude").servers
    assert server.status == "already" and "--policy" in (server.detail or "")


def test_only_the_chosen_servers_and_scopes_are_routed(home: ClientHome) -> None:
    both = {"a": {"command": "x"}, "b": {"command": "y"}}
    path = home.write("claude", json.dumps({"mcpServers": both, "projects": {"/p": {"mcpServers": both}}}))
    home.choice = Choice(servers=["a"], scopes=["local"])
    (server,) = home.imported("claude").servers
    assert (server.name, server.scope, server.project) == ("a", "local", "/p")
    value = json.loads(path.read_bytes())
    assert value["mcpServers"] == both
    assert value["projects"]["/p"]["mcpServers"]["a"]["command"] == SUB
    assert value["projects"]["/p"]["mcpServers"]["b"] == both["b"]


def test_entries_that_make_no_sense_are_named_with_the_reason(home: ClientHome) -> None:
    home.write(
        "claude", '{"mcpServers": {"a": {"command": 5}, "b": {"args": []},\n"c": {"command": "x", "command": "y"}}}'
    )
    details = {server.name: server.detail or "" for server in home.imported("claude").servers}
    assert "not a string" in details["a"]
    assert "no command" in details["b"]
    assert "twice (line 2)" in details["c"]


def test_literal_secrets_are_named_and_never_shown(home: ClientHome) -> None:
    env = {"GITHUB_TOKEN": TOKEN, "LEVEL": "debug", "OTHER_TOKEN": "${OTHER_TOKEN}", "URL": "postgres://u:hunter22@h/d"}
    secret = {"mcpServers": {"gh": {"command": "x", "env": env}}, "primaryApiKey": "sk-ant-0123456789abcdefgh"}
    path = home.write("claude", json.dumps(secret))
    report = home.imported("claude", dry_run=True)
    assert [(found.server, found.variable) for found in report.literals] == [("gh", "GITHUB_TOKEN"), ("gh", "URL")]
    shown = str(report)
    assert SUB in shown
    for value in (TOKEN, "hunter22", "sk-ant-0123456789abcdefgh"):
        assert value not in shown
    assert json.loads(path.read_bytes()) == secret


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("API_KEY", "abcdef123456", True),
        ("API_KEY", "${API_KEY}", False),
        ("API_KEY", "$API_KEY", False),
        ("API_KEY", "${input:key}", False),
        ("API_KEY", "{env:API_KEY}", False),
        ("API_KEY", "", False),
        ("KEYBOARD", "qwertyuiop", False),
        ("PATH", "/usr/bin:/bin", False),
        ("TOKEN_FILE", "/run/secrets/token", False),
        ("MAX_TOKENS", "4096000", False),
        ("ANYTHING", TOKEN, True),
        ("DATABASE_URL", "postgres://me:sesame@db/x", True),
        ("DATABASE_URL", "postgres://db/x", False),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str, secret: bool) -> None:
    assert looks_secret(name, value) is secret


def test_a_dry_run_writes_nothing_at_all(home: ClientHome) -> None:
    path = home.write("claude", '{"mcpServers": {"a": {"command": "x"}}}')
    before = path.stat()
    report = home.imported("claude", dry_run=True)
    assert report.status == "changed" and report.backup is None
    assert "+++" in (report.diff or "") and SUB in (report.diff or "")
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino
    assert not home.sub_home.exists()


def test_a_file_of_five_megabytes_is_no_trouble(home: ClientHome) -> None:
    def there_and_back(lines: int) -> int:
        history = [{"display": f'line {i} "quoted" \\ and é', "pasted": {}} for i in range(lines)]
        value = {
            "projects": {"/p": {"history": history, "mcpServers": {"a": {"command": "x", "args": ["1"]}}}},
            "mcpServers": {"b": {"command": "y"}},
        }
        original = json.dumps(value, indent=2).encode()
        path = home.write("claude", original)
        assert home.imported("claude").count("wrapped") == 2
        assert home.imported("claude").status == "unchanged"
        assert home.restored("claude").exact is True
        assert path.read_bytes() == original
        return len(original)

    assert growth(there_and_back, 6_000, 60_000, limit=3) < 3
    assert there_and_back(60_000) > 5_000_000


WORD = st.sampled_from(
    ["--", "--server-name", "--server-name=a=b", "--client", "--policy=p", "--events", "-h", "b", ""]
)


@given(st.lists(WORD, max_size=8))
@example(["--server-name", "--", "--", "x"])
@example(["--server-name=a", "--policy", "-h", "--", "x"])
def test_an_entry_is_read_as_the_shim_reads_its_own_command_line(words: list[str]) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "/opt/sub", "args": ["shim", *words]}}})
    document, (entry,) = entries(CLIENTS["claude"], text.encode())
    found = routed.recognise(entry)
    assert found is not None
    try:
        options = parse(words)
    except UsageError:
        return
    if not options.help:
        assert found.server_name == options.server_name
        assert found.is_remote == options.is_remote
        if not options.is_remote:
            assert routed.launch(entry, document) == options.command
