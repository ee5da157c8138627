"""The HTTP API: what it answers, whom it turns away, and that its OpenAPI document tells the truth."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from aiohttp import ClientSession, WSServerHandshakeError

from harness.ledger import EventMaker, connect_ledgerd, ledgerd, spool_of
from harness.waiting import wait_for
from subluminal.contracts.errors import UsageError
from subluminal.ledger.http.serve import http_token, parse_address


class Server:
    def __init__(self, home: Path) -> None:
        log = (home / "ledgerd.log").read_text()
        self.port = int(re.search(r"HTTP on 127\.0\.0\.1:(\d+)", log)[1])  # type: ignore[index]
        self.base = f"http://127.0.0.1:{self.port}"
        self.token = (home / "http_token").read_text().strip()
        self.home = home

    def has_follower(self) -> bool:
        with connect_ledgerd(self.home) as connection, connection.makefile("rwb") as stream:
            stream.write(b'{"control":"status"}\n')
            stream.flush()
            return bool(json.loads(stream.readline())["status"]["followers"])

    def ask(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
        sent = {"Authorization": f"Bearer {self.token}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        request = urllib.request.Request(self.base + path, data=data, headers=sent)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("api") / "home"
    spool_of(home)
    lines = EventMaker("run-1", "shim-1").whole_run(5)
    (home / "spool" / "shim-1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    with ledgerd(home, "--http", "127.0.0.1:0"):
        wait_for(lambda: not list((home / "spool").glob("*.jsonl")))
        yield Server(home)


def test_it_answers_what_the_query_layer_knows(server: Server) -> None:
    status, page = server.ask("/v1/calls?tool_name=git_*&limit=2")
    assert status == 200 and len(page["rows"]) == 2 and page["next_cursor"]
    assert len(server.ask(f"/v1/calls?limit=10&cursor={page['next_cursor']}")[1]["rows"]) == 3
    assert server.ask("/v1/runs")[1]["rows"][0]["run_id"] == "run-1"
    assert server.ask("/v1/runs/run-1")[1]["producers"][0]["shim_id"] == "shim-1"
    assert len(server.ask("/v1/runs/run-1/events?limit=4")[1]["events"]) == 4
    assert server.ask("/v1/calls/shim-1-2")[1]["args_preview"] == '{"path":"."}'
    assert server.ask("/v1/groups?by=tool_name")[1]["groups"][0]["calls"] == 5


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/runs/none", 404),
        ("/v1/calls/none", 404),
        ("/v1/nothing", 404),
        ("/v1/calls?limit=0", 400),
        ("/v1/calls?limit=x", 400),
        ("/v1/calls?decision=MAYBE", 400),
        ("/v1/calls?since_ms=1&since_ms=2", 400),
        ("/v1/calls?tool_name=[z-a]", 400),
        ("/v1/groups?by=tool_name&cursor=1", 400),
        ("/v1/runs?status=OK", 400),
        ("/v1/groups", 400),
        ("/v1/live", 426),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(server: Server, path: str, status: int) -> None:
    code, answer = server.ask(path)
    assert code == status and answer["error"]


_NUMBERS = [
    "/v1/runs?limit=",
    "/v1/calls?limit=",
    "/v1/calls?limit=1&limit=",
    "/v1/groups?by=tool_name&limit=",
    "/v1/runs/run-1/events?limit=",
    "/v1/runs/run-1/events?after_n=",
    "/v1/runs/run-1/events?after_n=0&after_n=",
    "/v1/calls?cursor=",
    "/v1/runs?cursor=2026-01-01T00:00:00.000Z~",
    "/v1/calls?min_latency_ms=",
    "/v1/calls?since_ms=",
    "/v1/runs?until_ms=",
]
_NO_NUMBERS = {
    "thousands of zeros": "0" * 5000,
    "thousands of nines": "9" * 5000,
    "a one after thousands of zeros": "0" * 5000 + "1",
    "beyond 64 bits": "9223372036854775808",
    "Arabic digits": "%D9%A1%D9%A2",
    "full-width digits": "%EF%BC%91",
    "a superscript": "%C2%B2",
    "an underscore": "1_0",
    "a sign": "%2B1",
    "a space": "%201",
    "no UTF-8": "%ff",
    "a NUL": "1%00",
    "an exponent": "1e3",
}


@pytest.mark.parametrize("path", _NUMBERS)
@pytest.mark.parametrize("text", _NO_NUMBERS.values(), ids=_NO_NUMBERS.keys())
def test_what_is_no_number_to_every_reader_is_refused_with_a_sentence(server: Server, path: str, text: str) -> None:
    code, answer = server.ask(path + text)
    assert code == 400 and answer["error"] and len(answer["error"]) < 200


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/calls?tol_name=x", "Did you mean tool_name?"),
        ("/v1/groups?by=tool_name&tool=x", "Did you mean tool_name?"),
        ("/v1/runs?since=x", "Did you mean since_ms?"),
        ("/v1/calls?limits=x", "Did you mean limit?"),
    ],
)
def test_a_filter_that_does_not_exist_is_never_passed_over_in_silence(server: Server, path: str, hint: str) -> None:
    status, answer = server.ask(path)
    assert status == 400 and "is no filter" in answer["error"] and hint in answer["hint"]


def test_the_hint_ledger_says_what_followed_a_refusal(server: Server) -> None:
    maker = EventMaker("run-hints", "shim-hints", start_ms=1_900_000_000_000)
    lines = [maker.run_start(), *maker.call("BLOCK"), *maker.call(), maker.run_end()]
    assert server.ask("/v1/events", b"\n".join(lines))[0] == 200
    (rule,) = server.ask("/v1/hints?since_ms=1900000000000&rule_id=deny-writes")[1]["rules"]
    assert (rule["outcomes"]["corrected"], rule["recovery_rate"]) == (1, 1.0)
    assert server.ask("/v1/hints?rule_id=other") == (200, {"rules": []})
    assert server.ask("/v1/hints?rule=x")[1]["hint"].startswith("Did you mean rule_id?")
    assert len(server.ask("/v1/hints?run_id=run-hints")[1]["rules"]) == 1
    assert server.ask("/v1/hints?run_id=none") == (200, {"rules": []})
    assert server.ask(f"/v1/hints?since_ms={1 << 60}") == (200, {"rules": []})


def test_the_recovery_of_each_run_that_is_named(server: Server) -> None:
    maker = EventMaker("run-recovers", "shim-recovers", start_ms=1_910_000_000_000)
    lines = [maker.run_start(), *maker.call("BLOCK"), *maker.call(), maker.run_end()]
    assert server.ask("/v1/events", b"\n".join(lines))[0] == 200
    code, told = server.ask("/v1/recovery?run_id=run-recovers&run_id=none")
    assert (code, told["runs"]) == (
        200,
        [
            {"run_id": "run-recovers", "corrected": 1, "counted": 1, "recovery_rate": 1.0},
            {"run_id": "none", "corrected": None, "counted": None, "recovery_rate": None},
        ],
    )
    for path in ("/v1/recovery", "/v1/recovery?" + "&".join(f"run_id={number}" for number in range(101))):
        code, told = server.ask(path)
        assert code == 400 and told["error"] == "Name between 1 and 100 runs with run_id."


def test_a_live_stream_with_an_unknown_filter_is_refused_before_it_begins(server: Server) -> None:
    async def follow() -> int:
        async with ClientSession() as session:
            with pytest.raises(WSServerHandshakeError) as refused:
                await session.ws_connect(server.base + "/v1/live?tool=x", protocols=[f"bearer.{server.token}"])
            return refused.value.status

    assert asyncio.run(follow()) == 400


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("tool_name=git_%5B!p%5D*", 5),
        ("tool_name=git_%5B!s%5D*", 0),
        ("args_hash=" + f"{2:064x}", 1),
        ("agent_id=repo-fixer&client=claude&env=dev&principal=ann", 5),
        ("status=OK&severity=info&reason_code=DEFAULT_ALLOW", 5),
        ("status=ERROR&status=PENDING", 0),
        ("min_latency_ms=4", 0),
        ("since_ms=1600000000000&until_ms=1900000000000&text=CLEAN", 5),
    ],
)
def test_the_filters_of_the_table_narrow_what_it_answers(server: Server, query: str, count: int) -> None:
    assert len(server.ask(f"/v1/calls?run_id=run-1&{query}")[1]["rows"]) == count


def test_events_can_be_posted_and_posting_them_again_adds_nothing(server: Server) -> None:
    lines = EventMaker("run-2", "shim-2").whole_run(1)
    body = b"\n".join(lines)
    assert server.ask("/v1/events", body) == (200, {"stored": 5, "known": 0, "bad": []})
    assert server.ask("/v1/events", body) == (200, {"stored": 0, "known": 5, "bad": []})
    status, answer = server.ask("/v1/events", b'nonsense\n{"control":"stop"}\n' + lines[0])
    assert status == 422 and answer["known"] == 1 and [bad["line"] for bad in answer["bad"]] == [1, 2]


def test_what_a_terminal_or_page_would_obey_is_escaped_in_every_answer(server: Server) -> None:
    evil = "a\x9b\u202e\u2028\ufeff\U000e0041é"
    maker = EventMaker("run-evil", "shim-evil")
    server.ask("/v1/events", b"\n".join([maker.run_start(), *maker.call(tool=evil)]))
    request = urllib.request.Request(server.base + "/v1/calls?run_id=run-evil")
    request.add_header("Authorization", f"Bearer {server.token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read().decode()
    assert not set(text) & set(evil[1:-1]) and "é" in text
    assert json.loads(text)["rows"][0]["tool_name"] == evil


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic dXNlcjpwYXNz"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://127.0.0.1"}, 403),
    ],
)
def test_pages_strangers_and_rebound_names_are_turned_away(
    server: Server, headers: dict[str, str], status: int
) -> None:
    for path in ("/v1/runs", "/v1/openapi.json", "/v1/live"):
        assert server.ask(path, **headers)[0] == status
    assert server.ask("/v1/events", b"x", **headers)[0] == status


def test_its_own_origin_and_name_are_welcome(server: Server) -> None:
    assert server.ask("/v1/runs", Origin=server.base)[0] == 200
    assert server.ask("/v1/runs", Host=f"localhost:{server.port}")[0] == 200


def test_the_live_stream_brings_new_events_to_whoever_has_the_token(server: Server) -> None:
    async def follow() -> list[str]:
        url = server.base + "/v1/live?tool_name=git_push"
        async with ClientSession() as session:
            with pytest.raises(WSServerHandshakeError):
                await session.ws_connect(url)
            with pytest.raises(WSServerHandshakeError):
                await session.ws_connect(url, protocols=[f"bearer.{server.token}"], origin="http://evil.example")
            async with session.ws_connect(url, protocols=[f"bearer.{server.token}"]) as stream:
                await asyncio.to_thread(wait_for, server.has_follower, what="the daemon knew the follower")
                maker = EventMaker("run-3", "shim-3")
                lines = [maker.run_start(), *maker.call(tool="ls"), *maker.call(tool="git_push")]
                await asyncio.to_thread(server.ask, "/v1/events", b"\n".join(lines))
                return [json.loads((await stream.receive(20)).data)["type"] for _ in range(3)]

    assert asyncio.run(follow()) == ["tool_call_start", "tool_call_decision", "tool_call_end"]


def test_the_token_is_private_and_stays_the_same(tmp_path: Path) -> None:
    token = http_token(str(tmp_path))
    assert len(token) > 40 and http_token(str(tmp_path)) == token
    assert (tmp_path / "http_token").stat().st_mode & 0o777 == 0o600
    (tmp_path / "http_token").write_text("short")
    with pytest.raises(UsageError, match="no usable token"):
        http_token(str(tmp_path))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0:80",
        "192.168.1.5:80",
        "example.com:80",
        "[::]:80",
        "127.0.0.1:http",
        ":",
        "127.0.0.1:" + "0" * 5000,
        "9" * 5000,
    ],
)
def test_only_this_machine_is_served(address: str) -> None:
    with pytest.raises(UsageError):
        parse_address(address)


def test_loopback_addresses_are_understood() -> None:
    assert parse_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_address("[::1]:80") == ("::1", 80)
    assert parse_address("8080") == ("127.0.0.1", 8080)
    assert parse_address("localhost") == ("localhost", 7411)


def test_the_document_and_the_server_agree(server: Server) -> None:
    """A short schemathesis profile: generated requests, good and bad, against every operation."""
    import schemathesis  # takes a second: only where it is used
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    _, document = server.ask("/v1/openapi.json")
    for path in ("/v1/live", "/v1/live/calls"):  # WebSockets, tested elsewhere
        del document["paths"][path]
    schema = schemathesis.openapi.from_dict(document)
    headers = {"Authorization": f"Bearer {server.token}"}
    tested = []
    for result in schema.get_all_operations():
        operation = result.ok()

        @hypothesis.settings(
            max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(case=operation.as_strategy())
        def conforms(case: Any) -> None:
            answer = case.call(base_url=server.base, headers=headers)
            assert answer.status_code < 500, answer.text
            # Any text can be posted; that some of it is no event is for the server to say.
            excluded = [positive_data_acceptance] if case.method == "POST" else []
            case.validate_response(answer, excluded_checks=excluded)

        conforms()
        tested.append(operation.label)
    assert len(tested) == len([method for path in document["paths"].values() for method in path])


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell what is loaded")
def test_without_http_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spool_of(home)
    with ledgerd(home) as process:
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
        assert "python" in loaded and "aiohttp" not in loaded and "_asyncio" not in loaded
        assert isinstance(process, subprocess.Popen)
