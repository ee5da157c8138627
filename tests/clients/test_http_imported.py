"""Servers behind a URL with the real clients: imported or through the proxy, they work as before and are governed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients import remote_box
from clients.adopter import Adopter
from clients.models import Decided, ModelServer, ToolCall, Turn
from clients.remote_box import TOKENS, call
from clients.scenarios import GOODBYE, model_for
from harness.http_servers import SdkServer, sdk_server
from harness.oauth_server import OAuthServer, oauth_server
from harness.waiting import wait_for

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
BOX = "box"
KEY = "key-of-the-box-1f8a2c66d0e94b57"
HINT = "Ask it politely, with the word please"
POLICY = f"""
policy_id: team
version: "1"
mode: guardrails
defaults: {{decision_on_error: BLOCK}}
selectors: {{}}
rules:
  - rule_id: politely
    kind: deny
    enabled: true
    severity: warn
    match: {{server_name: {{glob: ["box"]}}, tool_name: {{glob: ["echo"]}}, args: {{key_contains: {{text: now}}}}}}
    effect: {{action: REJECT_WITH_HINT, message: The box was asked rudely, hint_text: "{HINT}"}}
"""


@pytest.fixture(params=["claude_code", "codex"])
def user(request: pytest.FixtureRequest, cli_dir: Path, home: Path) -> Iterator[Adopter]:
    adopter = Adopter(request.param, cli_dir, home)
    yield adopter
    adopter.clean_up()


@pytest.fixture(params=["json", "streams"])
def server(request: pytest.FixtureRequest) -> Iterator[SdkServer]:
    with sdk_server(json=request.param == "json") as running:
        yield running


@pytest.fixture
def streaming() -> Iterator[SdkServer]:
    with sdk_server() as running:
        yield running


@pytest.fixture
def guarded() -> Iterator[OAuthServer]:
    with oauth_server() as running:
        yield running


def session(user: Adopter, *turns: Turn, name: str = BOX) -> ModelServer:
    with model_for(user.kind, (*turns, GOODBYE)) as model:
        remote_box.run(user, model, name)
    return model


def results(model: ModelServer) -> list[str]:
    return [remote_box.result_text(output) for output in model.tool_outputs()]


def recorded(user: Adopter, count: int) -> list[dict[str, Any]]:
    """The calls in the ledger, first to last."""
    return user.calls(count)[::-1]


def credentials_in(text: str) -> dict[str, Any]:
    """Of what the server said came with the call."""
    found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    if isinstance(found.get("result"), str):
        found = json.loads(found["result"])
    return {name: found.get(name) for name in ("authorization", "x-box-key", "x-team")}


def test_an_imported_server_works_as_before_and_is_recorded(user: Adopter, server: SdkServer) -> None:
    original = remote_box.add_server_with_key(user, BOX, server.url, KEY)
    turns = (call(BOX, "echo", text="hello"), call(BOX, "headers"))
    before = session(user, *turns)
    user.sub("import", user.client)
    assert user.config.read_bytes() != original
    after = session(user, *turns)
    assert remote_box.tools_of(after, BOX) == remote_box.tools_of(before, BOX) != []
    assert results(after)[0] == results(before)[0]
    came = credentials_in(results(after)[1])
    assert came == credentials_in(results(before)[1])
    assert came == {"authorization": f"Bearer {KEY}", "x-box-key": KEY, "x-team": "blue"}
    rows = recorded(user, 2)
    assert [(row["server_name"], row["tool_name"], row["decision"], row["status"]) for row in rows] == [
        (BOX, "echo", "ALLOW", "OK"),
        (BOX, "headers", "ALLOW", "OK"),
    ]
    [run] = user.runs()
    assert (run["client"], run["calls_total"]) == (user.client, 2)
    assert {row["run_id"] for row in rows} == {run["run_id"]}
    user.assert_nothing_left()
    wait_for(lambda: not remote_box.processes_naming(server.url), what="the end of the shim")
    held = remote_box.files_with(user, re.compile(KEY.encode()))
    assert [path for path in held if user.sub_home in path.parents] == []
    user.sub("restore", user.client)
    assert user.config.read_bytes() == original


def politely(model: ModelServer) -> Turn:
    """A model that reads the hint and does as it says."""
    assert HINT in json.dumps(model.requests[-1])
    return call(BOX, "echo", text="please")


def assert_corrected(user: Adopter, model: ModelServer) -> None:
    assert "please" in results(model)[1]
    assert "rudely" not in results(model)[2] and json.dumps(["please"]) in results(model)[2].replace('\\"', '"')
    refused, corrected, _ = recorded(user, 3)
    assert (refused["decision"], refused["rule_id"], refused["status"]) == ("REJECT_WITH_HINT", "politely", "ERROR")
    assert (corrected["decision"], corrected["status"]) == ("ALLOW", "OK")
    [run] = user.runs()
    assert (run["calls_total"], run["calls_blocked"]) == (3, 1)


def test_a_refused_call_is_corrected_by_the_model(user: Adopter, streaming: SdkServer) -> None:
    remote_box.add_server(user, BOX, streaming.url)
    user.sub("import", user.client)
    (user.sub_home / "policy.yaml").write_text(POLICY)
    rude = call(BOX, "echo", text="now!")
    assert_corrected(user, session(user, rude, Decided(politely), call(BOX, "what_ran")))


def test_a_server_that_is_restarted_in_mid_session_is_used_on(user: Adopter, streaming: SdkServer) -> None:
    remote_box.add_server(user, BOX, streaming.url)
    user.sub("import", user.client)

    def after_a_restart(_: ModelServer) -> ToolCall:
        streaming.restart()
        return call(BOX, "echo", text="second")

    model = session(user, call(BOX, "echo", text="first"), Decided(after_a_restart), call(BOX, "what_ran"))
    assert "first" in results(model)[0] and "second" in results(model)[1]
    assert "second" in results(model)[2] and "first" not in results(model)[2], "it is a new server"
    assert [(row["tool_name"], row["status"]) for row in recorded(user, 3)] == [
        ("echo", "OK"), ("echo", "OK"), ("what_ran", "OK"),
    ]  # fmt: skip


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_an_entry_as_claude_mcp_add_writes_it_by_itself(cli_dir: Path, home: Path, transport: str) -> None:
    """In the local scope, in the file that Claude Code writes anew whenever it runs."""
    user = Adopter("claude_code", cli_dir, home)
    user.config = home / ".claude.json"
    with sdk_server(sse=transport == "sse") as server:
        remote_box.add_to_claude(user, BOX, server.url, "--header", f"X-Box-Key: {KEY}", transport=transport)
        original = user.config.read_bytes()
        user.sub("import", "claude")
        user.sub("restore", "claude")
        assert user.config.read_bytes() == original
        user.sub("import", "claude")
        model = session(user, call(BOX, "headers"))
        assert credentials_in(results(model)[0])["x-box-key"] == KEY
        [row] = recorded(user, 1)
        assert (row["server_name"], row["status"]) == (BOX, "OK")
        user.sub("restore", "claude")
    [project] = json.loads(user.config.read_bytes())["projects"].values()
    [entry_before] = json.loads(original)["projects"].values()
    assert list(project["mcpServers"][BOX].items()) == list(entry_before["mcpServers"][BOX].items())
    user.clean_up()


def test_a_login_is_used_and_renewed_and_nobody_sees_its_token(user: Adopter, guarded: OAuthServer) -> None:
    original = remote_box.add_server(user, "guarded", guarded.url)
    shown = user.sub("import", user.client, check=False)
    assert shown.returncode == 1, "it wants a login"
    assert f"sub login guarded --url {guarded.url}" in shown.stdout + shown.stderr
    assert user.config.read_bytes() == original
    remote_box.log_in_as_shown(user, shown.stdout + shown.stderr)
    user.sub("import", user.client)
    first = remote_box.stored_tokens(user)
    processes: list[bytes] = []

    def after_the_token_has_died(_: ModelServer) -> ToolCall:
        guarded.forget_tokens("access")
        processes.append(remote_box.seen_in_processes(user, guarded.url))
        return call("guarded", "add", a=3, b=4)

    model = session(user, call("guarded", "add", a=1, b=2), Decided(after_the_token_has_died), name="guarded")
    assert "3" in results(model)[0] and "7" in results(model)[1]
    rows = recorded(user, 2)
    assert [(row["tool_name"], row["status"]) for row in rows] == [("add", "OK"), ("add", "OK")]
    second = remote_box.stored_tokens(user)
    assert len(first) == len(second) == 2 and not first & second, "both tokens were renewed"
    assert guarded.requests("POST /token") == 2
    assert guarded.url.encode() in processes[0], "the shim was looked at"
    assert not TOKENS.search(processes[0])
    assert not TOKENS.search(json.dumps([*model.requests, *model.side_requests]).encode())
    assert remote_box.files_with(user, TOKENS) == []
    user.sub("restore", user.client)
    assert user.config.read_bytes() == original


def test_through_the_proxy_a_refused_call_is_corrected_by_the_model(user: Adopter, streaming: SdkServer) -> None:
    user.sub_home.mkdir(mode=0o700)
    (user.sub_home / "policy.yaml").write_text(POLICY)
    with remote_box.proxy_in_front(user, BOX, streaming.url) as url:
        original = remote_box.add_server(user, BOX, url)
        rude = call(BOX, "echo", text="now!")
        assert_corrected(user, session(user, rude, Decided(politely), call(BOX, "what_ran")))
        assert user.config.read_bytes() == original


def test_through_the_proxy_tools_and_answers_are_the_servers_own(user: Adopter, server: SdkServer) -> None:
    with remote_box.proxy_in_front(user, BOX, server.url) as url:
        remote_box.add_server_with_key(user, BOX, url, KEY)
        turns = (call(BOX, "echo", text="hello"), call(BOX, "headers"))
        through = session(user, *turns)
        user.config.write_text(user.config.read_text().replace(url, server.url))
        direct = session(user, *turns)
    assert remote_box.tools_of(through, BOX) == remote_box.tools_of(direct, BOX) != []
    assert results(through)[0] == results(direct)[0]
    assert credentials_in(results(through)[1]) == credentials_in(results(direct)[1])
    rows = recorded(user, 2)
    assert [(row["tool_name"], row["decision"], row["status"]) for row in rows] == [
        ("echo", "ALLOW", "OK"),
        ("headers", "ALLOW", "OK"),
    ]


def test_a_credential_of_the_proxy_needs_none_of_the_client(user: Adopter, streaming: SdkServer) -> None:
    user.variables["BOX_KEY"] = KEY
    options = ("--bearer-env", "BOX_KEY", "--header-env", "X-Box-Key=BOX_KEY")
    with remote_box.proxy_in_front(user, BOX, streaming.url, *options) as url:
        del user.variables["BOX_KEY"]
        remote_box.add_server(user, BOX, url)
        model = session(user, call(BOX, "headers"))
    came = credentials_in(results(model)[0])
    assert came == {"authorization": f"Bearer {KEY}", "x-box-key": KEY, "x-team": None}
    [row] = recorded(user, 1)
    assert (row["tool_name"], row["status"]) == ("headers", "OK")
    held = remote_box.files_with(user, re.compile(KEY.encode()))
    assert [path for path in held if user.sub_home in path.parents] == []


def test_a_call_that_the_client_repeats_after_a_restart_is_one_call(user: Adopter, streaming: SdkServer) -> None:
    with remote_box.proxy_in_front(user, BOX, streaming.url) as url:
        remote_box.add_server(user, BOX, url)

        def after_a_restart(_: ModelServer) -> ToolCall:
            streaming.restart()
            return call(BOX, "echo", text="second")

        model = session(user, call(BOX, "echo", text="first"), Decided(after_a_restart), call(BOX, "what_ran"))
        assert "second" in results(model)[1] and "second" in results(model)[2]
        rows = recorded(user, 3)
    assert [(row["tool_name"], row["status"]) for row in rows] == [("echo", "OK"), ("echo", "OK"), ("what_ran", "OK")]
    [run] = user.runs()
    assert run["calls_total"] == 3
