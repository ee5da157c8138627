"""Entries with a URL: what an import makes of them for each client, and what it leaves alone and why."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.client_files import SUB, ClientHome
from harness.effort import growth_of_calls
from subluminal.adapters.stdio.options import parse
from subluminal.clients.codex import PASSED_VARIABLES
from subluminal.clients.importing import Choice
from subluminal.clients.registry import CLIENTS
from subluminal.clients.remote import asking
from subluminal.clients.remote.asking import Answer
from subluminal.clients.report import FileReport
from subluminal.host.secrets.headers import MAX_HEADERS

URL = "https://e.test/mcp"
TABLES = {"vscode": "servers", "zed": "context_servers", "opencode": "mcp"}


def import_entry(
    home: ClientHome, entry: Any, client: str = "claude", scope: str = "user", name: str = "a"
) -> FileReport:
    home.write(client, json.dumps({TABLES.get(client, "mcpServers"): {name: entry}}), scope)
    return home.imported(client, scope)


def entry_now(home: ClientHome, client: str = "claude", scope: str = "user", name: str = "a") -> Any:
    data = json.loads(Path(home.file_of(client, scope).path).read_bytes())
    return data[TABLES.get(client, "mcpServers")][name]


def words(*more: str, client: str = "claude") -> list[str]:
    return ["shim", "--server-name", "a", "--client", client, *more]


@pytest.fixture
def logged_in(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Logins that there are, as (name, url)."""
    logins: list[tuple[str, str]] = []
    monkeypatch.setattr(asking, "find", lambda name, url: object() if (name, url) in logins else None)
    return logins


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "claude",
        {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${T}", "X-A": "${A:-b}"}, "timeout": 5},
        {
            "type": "stdio",
            "command": SUB,
            "args": words(
                "--url",
                URL,
                "--header-env",
                "Authorization=SUB_HEADER_AUTHORIZATION",
                "--header-env",
                "X-A=SUB_HEADER_X_A",
            ),
            "env": {"SUB_HEADER_AUTHORIZATION": "Bearer ${T}", "SUB_HEADER_X_A": "${A:-b}"},
            "timeout": 5,
        },
    ),
    (
        "claude",
        {"type": "sse", "url": "${BASE}/sse"},
        {"type": "stdio", "command": SUB, "args": words("--url", "${BASE}/sse", "--transport", "sse")},
    ),
    (
        "claude",
        {"type": "http", "url": "https://e.test/mcp?key=${KEY}"},
        {
            "type": "stdio",
            "command": SUB,
            "args": words("--url-env", "SUB_SERVER_URL"),
            "env": {"SUB_SERVER_URL": "https://e.test/mcp?key=${KEY}"},
        },
    ),
    (
        "claude",
        {"type": "http", "url": "https://e.test/${API_TOKEN}/mcp"},
        {
            "type": "stdio",
            "command": SUB,
            "args": words("--url-env", "SUB_SERVER_URL"),
            "env": {"SUB_SERVER_URL": "https://e.test/${API_TOKEN}/mcp"},
        },
    ),
    (
        "vscode",
        {"type": "http", "url": URL, "headers": {"X-Key": "${input:key}"}},
        {
            "type": "stdio",
            "command": SUB,
            "args": words("--url", URL, "--header-env", "X-Key=SUB_HEADER_X_KEY", client="custom"),
            "env": {"SUB_HEADER_X_KEY": "${input:key}"},
        },
    ),
    (
        "gemini",
        {"httpUrl": URL, "headers": {"X-Key": "$KEY"}, "trust": True},
        {
            "command": SUB,
            "args": words("--url", URL, "--header-env", "X-Key=SUB_HEADER_X_KEY", client="custom"),
            "env": {"SUB_HEADER_X_KEY": "$KEY"},
            "trust": True,
        },
    ),
    ("gemini", {"url": URL}, {"command": SUB, "args": words("--url", URL, "--transport", "sse", client="custom")}),
    ("windsurf", {"serverUrl": URL}, {"command": SUB, "args": words("--url", URL, client="custom")}),
    ("cursor", {"url": URL}, {"command": SUB, "args": words("--url", URL, client="custom")}),
    (
        "zed",
        {"source": "custom", "url": URL, "settings": {}},
        {"source": "custom", "command": SUB, "args": words("--url", URL, client="custom"), "settings": {}},
    ),
    (
        "opencode",
        {"type": "remote", "url": URL, "headers": {"K": "{env:K}"}, "oauth": False, "enabled": True},
        {
            "type": "local",
            "command": [SUB, *words("--url", URL, "--header-env", "K=SUB_HEADER_K", client="custom")],
            "environment": {"SUB_HEADER_K": "{env:K}"},
            "enabled": True,
        },
    ),
]


@pytest.mark.parametrize(("client", "before", "after"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_an_entry_with_a_url_becomes_a_command(home: ClientHome, client: str, before: Any, after: Any) -> None:
    (server,) = import_entry(home, before, client).servers
    assert (server.status, server.detail) == ("wrapped", None)
    assert entry_now(home, client) == after
    assert home.imported(client).status == "unchanged"
    home.restored(client)
    assert entry_now(home, client) == before


@pytest.mark.parametrize(("client", "before", "after"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_without_a_backup_it_is_put_back_with_the_same_meaning(
    home: ClientHome, client: str, before: Any, after: Any
) -> None:
    import_entry(home, before, client)
    shutil.rmtree(home.sub_home)
    home.restored(client)
    assert entry_now(home, client) == {key: value for key, value in before.items() if key != "oauth"}


def test_the_shim_reads_what_an_import_wrote(home: ClientHome) -> None:
    import_entry(home, {"type": "sse", "url": URL, "headers": {"A": "1", "B": "2"}}, name="-x")
    options = parse(entry_now(home, name="-x")["args"][1:])
    assert (options.server_name, options.client, options.url, options.transport) == ("-x", "claude", URL, "sse")
    assert options.header_envs == [("A", "SUB_HEADER_A"), ("B", "SUB_HEADER_B")]


def test_codex_hands_on_the_variables_that_headers_come_from(home: ClientHome) -> None:
    path = home.write(
        "codex",
        f'[mcp_servers.a]\nurl = "{URL}"\nbearer_token_env_var = "TOKEN"\nhttp_headers = {{ X-A = "1" }}\n'
        'env_http_headers = { X-B = "VB" }\ntool_timeout_sec = 9\nenabled_tools = ["t"]\n',
    )
    original = path.read_text()
    home.imported("codex")
    entry = tomllib.loads(path.read_text())["mcp_servers"]["a"]
    headers = ["--header-env", "X-A=SUB_HEADER_X_A", "--header-env", "X-B=VB", "--bearer-env", "TOKEN"]
    assert (entry["command"], entry["args"]) == (SUB, words("--url", URL, *headers, client="codex"))
    assert entry["env"] == {"SUB_HEADER_X_A": "1"}
    assert entry["env_vars"] == [*PASSED_VARIABLES, "VB", "TOKEN"]
    assert (entry["tool_timeout_sec"], entry["enabled_tools"]) == (9, ["t"])
    known = {"command", "args", "env", "env_vars", "tool_timeout_sec", "enabled_tools"}
    assert entry.keys() == known, (
        "Codex refuses some keys beside a command, and with --strict-config all that it does not know"
    )
    shutil.rmtree(home.sub_home)
    home.restored("codex")
    assert tomllib.loads(path.read_text()) == tomllib.loads(original)


def test_what_codex_has_dropped_comes_back_from_the_words(home: ClientHome) -> None:
    """`codex mcp add` writes its servers anew and keeps only what it knows."""
    text = f'[mcp_servers.a]\nurl = "{URL}"\nbearer_token_env_var = "TOKEN"\nenv_http_headers = {{ X-B = "VB" }}\n'
    path = home.write("codex", text)
    home.imported("codex")
    assert path.read_text().count("#subluminal:") == 2
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith("#subluminal:")))
    home.restored("codex")
    assert tomllib.loads(path.read_text()) == tomllib.loads(text)


def test_what_is_set_aside_in_one_entry_comes_back_there_and_nowhere_else(home: ClientHome) -> None:
    lines = f'url = "{URL}"\r\n  bearer_token_env_var = "TOKEN" # mine\r\n'
    text = f"\ufeff[mcp_servers.a]\r\n{lines}[mcp_servers.b]\r\n{lines}"
    path = home.write("codex", text)
    home.imported("codex")
    home.choice = Choice(["b"])
    home.restored("codex")
    servers = tomllib.loads(path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n"))["mcp_servers"]
    assert "bearer_token_env_var" not in servers["a"] and servers["b"]["bearer_token_env_var"] == "TOKEN"
    home.choice = Choice()
    home.restored("codex")
    assert path.read_bytes() == text.encode()


def test_a_setting_in_pieces_between_braces_is_left_alone(home: ClientHome) -> None:
    text = f'[mcp_servers]\na = {{ url = "{URL}", env_http_headers.A = "VA", env_http_headers.B = "VB" }}\n'
    path = home.write("codex", text)
    assert home.imported("codex").servers[0].status == "skipped"
    assert path.read_text() == text


def test_a_header_that_was_added_after_the_import_stays_a_header(home: ClientHome) -> None:
    import_entry(home, {"type": "http", "url": URL, "headers": {"A": "1"}})
    path = Path(home.file_of("claude").path)
    text = path.read_text().replace('"SUB_HEADER_A": "1"', '"SUB_HEADER_A": "1", "SUB_HEADER_B": "2"')
    path.write_text(text.replace('"--header-env"', '"--header-env", "B=SUB_HEADER_B", "--header-env"'))
    home.restored("claude")
    assert entry_now(home) == {"type": "http", "url": URL, "headers": {"A": "1", "B": "2"}}


def test_an_entry_with_variables_of_its_own_is_not_put_back_wrongly(home: ClientHome) -> None:
    import_entry(home, {"type": "http", "url": URL, "headers": {"A": "1"}})
    path = Path(home.file_of("claude").path)
    path.write_text(path.read_text().replace('"SUB_HEADER_A"', '"MINE": "x", "SUB_HEADER_A"'))
    (server,) = home.restored("claude").servers
    assert server.status == "skipped" and "MINE" in (server.detail or "")


def test_another_place_of_sub_and_a_stale_name_are_brought_up_to_date(home: ClientHome) -> None:
    import_entry(home, {"type": "http", "url": URL})
    path = Path(home.file_of("claude").path)
    path.write_text(path.read_text().replace('{"a"', '{"b"'))
    report = home.imported("claude", sub="/elsewhere/sub")
    assert [server.status for server in report.servers] == ["updated"]
    entry = entry_now(home, name="b")
    assert (entry["command"], parse(entry["args"][1:]).server_name) == ("/elsewhere/sub", "b")


def test_a_repository_does_not_choose_options_of_the_shim(home: ClientHome) -> None:
    args = ["shim", "--policy", "/lax", "--server-name", "x", "--url", URL, "--header-env=A=B", "--events=none"]
    (server,) = import_entry(home, {"command": "/tmp/sub", "args": args}, scope="project").servers
    assert server.status == "corrected"
    entry = entry_now(home, scope="project")
    assert (entry["command"], entry["args"]) == (SUB, words("--url", URL, "--header-env", "A=B"))


def test_a_url_and_a_command_at_once_are_no_way_around(home: ClientHome) -> None:
    args = ["shim", "--server-name", "a", "--url", URL, "--", "evil"]
    (server,) = import_entry(home, {"command": SUB, "args": args}, scope="project").servers
    assert server.status == "skipped" and "one of them" in (server.detail or "")


STAYS: list[tuple[str, dict[str, Any], str, str]] = [
    ("claude", {"type": "http", "url": URL, "headersHelper": "make"}, "http", "only the client runs"),
    ("claude", {"type": "ws", "url": "wss://e.test"}, "http", "neither HTTP nor SSE"),
    ("vscode", {"type": "http", "url": "unix:///run/mcp.sock"}, "http", "http:// or https://"),
    ("claude-desktop", {"type": "http", "url": URL}, "http", "no servers over HTTP"),
    ("gemini", {"httpUrl": URL, "url": URL}, "skipped", "keep one"),
    ("claude", {"type": "http"}, "skipped", "names no address"),
    ("claude", {"type": "http", "url": 5}, "skipped", "not a string"),
    ("claude", {"type": "http", "url": URL, "headers": []}, "skipped", "not a table"),
    ("claude", {"type": "http", "url": URL, "headers": {"A": 1}}, "skipped", "no header can have"),
    ("claude", {"type": "http", "url": URL, "env": {"A": "b"}}, "skipped", "take it out"),
    ("claude", {"type": "http", "url": URL, "proxyUrl": "http://x"}, "http", "cannot carry over"),
    ("claude", {"type": "http", "url": URL, "requestInit": {}}, "http", "cannot carry over"),
]


@pytest.mark.parametrize(("client", "entry", "status", "says"), STAYS)
def test_what_cannot_be_served_stays_and_says_why(
    home: ClientHome, client: str, entry: Any, status: str, says: str
) -> None:
    (server,) = import_entry(home, entry, client).servers
    assert server.status == status and says in (server.detail or "")
    assert entry_now(home, client) == entry


HOSTILE: list[dict[str, Any]] = [
    {"url": "https://e.test/\r\nX-Evil: 1"},
    {"url": "https://e.test/\0"},
    {"url": "https://e.test/a b"},
    {"url": "--policy=/lax"},
    {"url": "--"},
    {"url": "-- evil"},
    {"url": "javascript:alert(1)"},
    {"url": "file:///etc/passwd"},
    {"url": "https://"},
    {"url": "https://e.test/" + "a" * 10_000},
    {"url": "https://\u202e.test/"},
    {"url": ""},
    {"url": URL, "headers": {"X\r\nEvil": "1"}},
    {"url": URL, "headers": {"X:Y": "1"}},
    {"url": URL, "headers": {"": "1"}},
    {"url": URL, "headers": {"A=SUB_POLICY": "1"}},
    {"url": URL, "headers": {"A": "1\r\nHost: evil"}},
    {"url": URL, "headers": {"A": "1\n"}},
    {"url": URL, "headers": {"A": "\x1b[2J"}},
    {"url": URL, "headers": {"Host": "evil"}},
    {"url": URL, "headers": {"Transfer-Encoding": "chunked"}},
    {"url": URL, "headers": {"A": "1", "a": "2"}},
    {"url": URL, "headers": {f"X-{number}": "v" for number in range(10_000)}},
    {"url": URL, "headers": {"A": "x" * 100_000}},
]


@pytest.mark.parametrize("entry", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_entry_is_refused_with_a_sentence(home: ClientHome, entry: dict[str, Any]) -> None:
    entry = {"type": "http", **entry}
    (server,) = import_entry(home, entry, scope="project").servers
    assert server.status == "skipped"
    assert server.detail is not None and len(server.detail) < 200 and server.detail.isprintable()
    assert "evil" not in server.detail.lower() and "/lax" not in server.detail
    assert entry_now(home, scope="project") == entry


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"http","url":"https://good.test/","url":"https://evil.test/"}',
        '{"type":"http","url":"https://e.test/","headers":{"A":"1"},"headers":{"A":"2"}}',
        '{"type":"http","type":"stdio","url":"https://e.test/"}',
        '{"type":"http","url":"https://e.test/","headers":{"A":"1","A":"2"}}',
    ],
)
def test_what_two_parsers_read_differently_is_refused(home: ClientHome, text: str) -> None:
    path = home.write("claude", '{"mcpServers":{"a":' + text + "}}", "project")
    before = path.read_bytes()
    (server,) = home.imported("claude", "project").servers
    assert server.status == "skipped" and "twice" in (server.detail or "")
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["--", "--url", "-x", "a b", "a=b", "é", '"', "\n", "x" * 500])
def test_odd_names_reach_the_shim_unchanged(home: ClientHome, name: str) -> None:
    import_entry(home, {"type": "http", "url": URL}, name=name)
    options = parse(entry_now(home, name=name)["args"][1:])
    assert (options.server_name, options.url) == (name, URL)


@pytest.mark.parametrize("variable", ["SUB_POLICY", "SUB_SECRET_X", "a b", "A=B", "-x", ""])
def test_codex_variables_that_are_ours_or_no_names_are_refused(home: ClientHome, variable: str) -> None:
    text = f'[mcp_servers.a]\nurl = "{URL}"\nbearer_token_env_var = "{variable}"\n'
    path = home.write("codex", text)
    assert home.imported("codex").servers[0].status == "skipped"
    assert path.read_text() == text


def test_as_many_headers_as_a_server_takes_are_routed(home: ClientHome) -> None:
    headers = {f"X-{number}": "v" for number in range(MAX_HEADERS)}
    assert import_entry(home, {"type": "http", "url": URL, "headers": headers}).servers[0].status == "wrapped"
    assert len(entry_now(home)["env"]) == MAX_HEADERS


def test_the_work_grows_with_the_servers_and_no_faster(home: ClientHome) -> None:
    def work(size: int) -> None:
        entries = {f"s{n}": {"type": "http", "url": URL, "headers": {"A": "b"}} for n in range(size)}
        home.write("claude", json.dumps({"mcpServers": entries}))
        assert home.imported("claude").count("wrapped") == size

    assert growth_of_calls(work, 50, 200) < 6


def test_secrets_in_headers_are_pointed_out_and_never_shown(home: ClientHome) -> None:
    token = "ghp_ThisIsNotARealTokenAtAll0000000000"
    entry = {"type": "http", "url": f"https://e.test/?token={token}", "headers": {"X-Api-Key": token, "X-Mode": "fast"}}
    home.write("claude", json.dumps({"mcpServers": {"a": entry}}, indent=1))
    report = home.imported("claude", dry_run=True)
    assert report.diff is not None and token not in report.diff and "--url-env" in report.diff
    assert [(literal.server, literal.variable) for literal in report.literals] == [("a", "SUB_HEADER_X_API_KEY")]


@pytest.mark.parametrize("client", ["claude", "vscode", "cursor", "gemini"])
def test_references_are_no_secrets(home: ClientHome, client: str) -> None:
    key = "httpUrl" if client == "gemini" else "url"
    entry = {key: URL, "headers": {"Authorization": "Bearer ${SOME_LONG_TOKEN_NAME}"}}
    assert import_entry(home, entry, client).literals == []


def answered(home: ClientHome, answer: Answer, entry: dict[str, Any]) -> FileReport:
    home.write("claude", json.dumps({"mcpServers": {"my docs": entry}}))
    return home.imported("claude", answers={URL: answer})  # type: ignore[arg-type]


def test_a_server_that_wants_a_login_stays_until_there_is_one(
    home: ClientHome, logged_in: list[tuple[str, str]]
) -> None:
    entry = {"type": "http", "url": URL}
    (server,) = answered(home, Answer(asks_for_login=True), entry).servers
    assert server.status == "login" and f"sub login 'my docs' --url {URL}" in (server.detail or "")
    assert entry_now(home, name="my docs") == entry
    logged_in.append(("my docs", URL))
    assert answered(home, Answer(asks_for_login=True), entry).servers[0].status == "wrapped"


def test_an_entry_with_credentials_is_routed_whatever_its_server_said(home: ClientHome) -> None:
    entry = {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${T}"}}
    assert answered(home, Answer(asks_for_login=True), entry).servers[0].status == "wrapped"


def test_a_server_that_cannot_be_reached_is_routed_with_a_warning(home: ClientHome) -> None:
    report = answered(home, Answer(fault="cannot be reached (Connection refused)"), {"type": "http", "url": URL})
    assert report.servers[0].status == "wrapped"
    assert "my docs is routed, but its server cannot be reached (Connection refused)" in report.warnings


LOGINS: list[tuple[str, dict[str, Any]]] = [
    ("claude", {"type": "http", "url": URL, "oauth": {"clientId": "x"}}),
    ("claude", {"oauth": {"clientId": "x"}, "type": "http", "url": URL, "timeout": 1}),
    ("opencode", {"type": "remote", "oauth": {}, "url": URL}),
    ("cursor", {"auth": {"CLIENT_ID": "x"}, "oauth": {}, "url": URL}),
    ("gemini", {"httpUrl": URL, "oauth": {}, "authProviderType": "g", "trust": True, "targetAudience": "t"}),
]


@pytest.mark.parametrize(("client", "entry"), LOGINS)
def test_a_login_of_the_client_gives_way_to_ours(
    home: ClientHome, logged_in: list[tuple[str, str]], client: str, entry: Any
) -> None:
    (server,) = import_entry(home, entry, client).servers
    assert server.status == "login" and f"sub login a --url {URL}" in (server.detail or "")
    assert entry_now(home, client) == entry
    logged_in.append(("a", URL))
    assert home.imported(client).servers[0].status == "wrapped"
    http = CLIENTS[client].http
    assert http is not None and not set(http.logins) & entry_now(home, client).keys()
    home.restored(client)
    assert entry_now(home, client) == entry


def test_a_login_of_codex_gives_way_to_ours(home: ClientHome, logged_in: list[tuple[str, str]]) -> None:
    text = f'[mcp_servers.a]\nscopes = [ # wide\n  "x",\n]\nurl = "{URL}"\n[mcp_servers.a.oauth]\nclient_id = "c"\n'
    path = home.write("codex", text)
    assert home.imported("codex").servers[0].status == "login"
    logged_in.append(("a", URL))
    assert home.imported("codex").servers[0].status == "wrapped"
    assert not {"scopes", "oauth", "url"} & tomllib.loads(path.read_text())["mcp_servers"]["a"].keys()
    path.write_text("# edited\n" + path.read_text())
    home.restored("codex")
    assert path.read_text() == "# edited\n" + text
